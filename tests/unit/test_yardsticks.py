"""What figures are measured by: CPU of processes, bare echoes, and a process that calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from airunner.domain.clock import SystemClock
from airunner.stores.memory import MemoryStore
from airunner.testing.factories import make_services
from benchmarks import echo
from benchmarks.callers import CLIENT, Load, Order, call
from benchmarks.cpu import CpuMeter, cpu_of_command
from benchmarks.hot_path import SERVER, cpu_row
from tests.support.serving import serve

SPIN_IN_A_THREAD = """
import sys, threading, time
def spin():
    while time.thread_time() < 0.05:
        pass
sys.stdin.readline()
thread = threading.Thread(target=spin)
thread.start()
thread.join()
print("done", flush=True)
sys.stdin.readline()
"""


def test_cpu_of_a_process_has_that_of_threads_that_have_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPIN_IN_A_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        meter = CpuMeter({"spinning": process.pid, "this": os.getpid()})
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        spent = meter.spent()
        process.stdin.close()
    assert spent["spinning"] >= 0.05
    assert spent["this"] >= 0


def test_cpu_of_a_command() -> None:
    spin = "import time\nwhile time.process_time() < 0.1: pass"
    assert cpu_of_command([sys.executable, "-c", spin]) >= 0.1


def test_a_command_that_fails_has_no_figure() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        cpu_of_command([sys.executable, "-c", "raise SystemExit(3)"])


async def test_echoes_go_there_and_back() -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(echo.EchoServer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        order = Order(what="echo", address=str(port), calls=40, callers=4)
        load = await call(order)
    assert load.calls == 40
    assert load.cpu[CLIENT] > 0


async def test_whoever_waits_for_an_echo_hears_that_the_server_is_gone() -> None:
    class Rude(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    loop = asyncio.get_running_loop()
    async with await loop.create_server(Rude, "127.0.0.1", 0) as server:
        client = await echo.connect(server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(client.exchange(1), 30)


@pytest.mark.parametrize(
    ("what", "callers"), [("no-op", 4), ("enqueue", 4), ("shared enqueue", 4), ("publish", 1), ("replay", 1)]
)
async def test_calls_are_made_and_counted(what: str, callers: int) -> None:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as services, serve(services) as url:
        order = Order(what=what, address=url, calls=8, callers=callers, processes={SERVER: os.getpid()})
        load = await call(order)
        jobs = sum(queue.scheduled for queue in await services.jobs.list_queues())
    assert load.calls == 8
    assert set(load.cpu) == {CLIENT, SERVER}
    # Each caller makes one call before it counts.
    assert jobs == (8 + callers if what.endswith("enqueue") else 0)


async def test_calls_with_gaps_are_timed_one_by_one() -> None:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as services, serve(services) as url:
        load = await call(Order(what="no-op", address=url, calls=3, gap_seconds=0.001))
    assert len(load.took) == 3
    assert all(took > 0 for took in load.took)


@pytest.mark.parametrize(("spent", "met"), [(0.3, True), (0.31, False)])
def test_a_row_is_cpu_of_both_sides_beside_that_of_an_echo(spent: float, met: bool) -> None:
    loads = [_load(server=9, client=9), _load(server=spent / 2, client=spent / 2)]
    echoes = [_load(server=0.06, client=0.04), _load(server=8, client=8)]
    row = cpu_row("a call", loads, echoes, goal=3.0001)
    assert row.ratio == pytest.approx(spent / 0.1)
    assert row.met is met


def _load(*, server: float, client: float) -> Load:
    return Load(calls=1, seconds=1, cpu={SERVER: server, CLIENT: client}, took=[])
