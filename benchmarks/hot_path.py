"""Single calls, beside the least that they could cost: a bare round trip, a bare commit, a bare interpreter.

None of these yardsticks is code of ours, so that a ratio falls when our own code gets faster.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bare
from benchmarks.callers import CLIENT, DISPATCH, Load, Order, carry_out
from benchmarks.cpu import cpu_of_command
from benchmarks.harness import (
    ROOT,
    ROUNDS,
    Row,
    Service,
    a_core_each,
    end,
    folder,
    free_port,
    median,
    rate_row,
    server,
    worker,
)

SERVER = "server"
_CALLERS = 16
_GAP_SECONDS = 0.03
_COLD_CALLS = 100
_STARTS = 15


@dataclass(frozen=True, slots=True)
class Echo:
    """A running echo server."""

    port: int
    pid: int

    def order(self, calls: int, callers: int = _CALLERS, gap_seconds: float = 0) -> Order:
        """Return the order to send it so many messages."""
        return Order(
            what="echo",
            address=str(self.port),
            calls=calls,
            callers=callers,
            gap_seconds=gap_seconds,
            processes={SERVER: self.pid},
        )


async def run() -> list[Row]:
    """All of them, each with its yardstick measured in the same minute."""
    return [
        *await calls_beside_echo(),
        await sequential_no_op(),
        await sequential_enqueue(),
        await one_publisher(),
        await dispatch(),
        await command_line(),
    ]


async def calls_beside_echo() -> list[Row]:
    """A call that does nothing and a single enqueue, 16 callers: CPU of both sides beside that of an echo."""
    async with server() as service:
        with echo_server() as echo:
            orders = (
                echo.order(20_000),
                order_of("no-op", service, 6_000),
                order_of("enqueue", service, 4_000),
                order_of("shared enqueue", service, 8_000),
            )
            # Each in a process of its own: what one did before may double or halve what its reads cost.
            loads = [(await carried_out(order))[0] for order in orders * ROUNDS]
    echoes, no_ops, enqueues, shared = (loads[number :: len(orders)] for number in range(len(orders)))
    return [
        cpu_row(f"a call that does nothing, {_CALLERS} callers", no_ops, echoes, 3),
        cpu_row(f"a single enqueue, {_CALLERS} callers", enqueues, echoes, 6),
        cpu_row(f"the same, {_CALLERS} callers of one client, who share calls", shared, echoes, 6),
    ]


async def sequential_no_op() -> Row:
    """One call that does nothing after the other, beside one echo after the other."""
    calls = 2_000
    async with server() as service:
        with echo_server() as echo:
            orders = (echo.order(calls, callers=1), order_of("no-op", service, calls, callers=1))
            loads = [(await carried_out(order))[0] for order in orders * ROUNDS]
    took, limit = (min(1 / load.rate for load in loads[number::2]) for number in (1, 0))
    return Row(
        name="calls that do nothing, one after the other",
        measured=f"{took * 1e6:.0f} us",
        limit=f"{limit * 1e6:.0f} us, a bare echo of 200 bytes",
        ratio=took / limit,
    )


async def sequential_enqueue() -> Row:
    """One enqueue after the other, beside bare commits of one row each."""
    calls = 1_000
    measured, limit = [], []
    async with server() as service:
        with folder() as directory:
            for _ in range(ROUNDS):
                limit.append(bare.insert_rate(directory, calls, 1))
                (load,) = await carried_out(order_of("enqueue", service, calls, callers=1))
                measured.append(load.rate)
    return rate_row(
        "enqueues, one after the other",
        measured,
        limit,
        units=("calls", "rows"),
        beside="bare sqlite3 committing each",
        at_least=0.35,
        wished=0.4,
    )


async def one_publisher() -> Row:
    """Batches of 50 lines, one after the other, beside bare commits of each batch."""
    batches = 1_000
    measured, limit = [], []
    async with server() as service:
        with folder() as directory:
            for _ in range(ROUNDS):
                limit.append(bare.batch_commit_rate(directory, batches))
                (load,) = await carried_out(order_of("publish", service, batches, callers=1))
                measured.append(50 * load.rate)
    return rate_row(
        "lines published by one, 50 a batch",
        measured,
        limit,
        units=("lines", "lines"),
        beside="bare sqlite3 committing each batch",
        at_least=0.60,
    )


async def dispatch() -> Row:
    """A job every 30 ms, from its enqueue to its handler, beside one echo and one commit at such gaps."""
    took, cold = [], []
    async with server() as service:
        handlers = ("--handlers", "benchmarks.noted_handler")
        with folder() as directory, echo_server() as echo, worker(service.url, *handlers):
            for _ in range(ROUNDS):
                cold.append(await cold_seconds(echo, directory))
                order = order_of(DISPATCH, service, _COLD_CALLS, callers=1, gap_seconds=_GAP_SECONDS)
                (load,) = await carried_out(order)
                took.append(median(load.took))
    ratio = min(took) / min(cold)
    return Row(
        name=f"dispatch, a job every {_GAP_SECONDS * 1000:.0f} ms, p50",
        measured=f"{min(took) * 1000:.2f} ms",
        limit=f"{min(cold) * 1000:.2f} ms, one echo and one bare commit at such gaps",
        ratio=ratio,
        goal="<= 4 (3 wished)",
        met=ratio <= 4,
    )


async def command_line() -> Row:
    """The CPU of `airunner list` beside that of an interpreter that does nothing."""
    async with server() as service:
        spent, limit = await asyncio.to_thread(cpu_of_list, service, _STARTS)
    return Row(
        name="`airunner list`, CPU",
        measured=f"{spent * 1000:.0f} ms",
        limit=f"{limit * 1000:.1f} ms, `python -c pass`",
        ratio=spent / limit,
        goal="<= 15 (12 wished)",
        met=spent / limit <= 15,
    )


def cpu_of_list(service: Service, starts: int) -> tuple[float, float]:
    """Return the CPU seconds of `airunner list` and of an interpreter that does nothing, the best of each."""
    ours = (str(Path(sys.executable).with_name("airunner")), "list", "--server", service.url)
    nothing = (sys.executable, "-c", "pass")
    # The first one may still have to compile.
    cpu_of_command(ours)
    pairs = [(cpu_of_command(ours), cpu_of_command(nothing)) for _ in range(starts)]
    spent, limit = (min(side) for side in zip(*pairs, strict=True))
    return spent, limit


@contextmanager
def echo_server() -> Iterator[Echo]:
    """Run an echo server in a process of its own, on the core that servers have."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.echo", str(port)]
    with a_core_each() as start:
        process = start(lambda: subprocess.Popen(command, cwd=ROOT))
        try:
            yield Echo(port, process.pid)
        finally:
            end(process)


async def carried_out(*orders: Order) -> list[Load]:
    """Carry out orders, in turns as they are given, without holding up the loop."""
    return await asyncio.to_thread(carry_out, *orders)


def order_of(
    what: str, service: Service, calls: int, callers: int = _CALLERS, gap_seconds: float = 0
) -> Order:
    """Return the order to call a server so often."""
    return Order(
        what=what,
        address=service.url,
        calls=calls,
        callers=callers,
        gap_seconds=gap_seconds,
        processes={SERVER: service.pid},
    )


async def cold_seconds(echo: Echo, directory: Path) -> float:
    """Return the p50 of an echo and that of a bare commit, both with gaps before them, added."""
    (echoes,) = await carried_out(echo.order(_COLD_CALLS, callers=1, gap_seconds=_GAP_SECONDS))
    commits = await asyncio.to_thread(bare.commit_seconds, directory, _COLD_CALLS, _GAP_SECONDS)
    return median(echoes.took) + median(commits)


def cpu_row(name: str, loads: list[Load], echoes: list[Load], goal: float) -> Row:
    """Return the row of calls whose CPU may be so many times that of an echo; the best of each counts."""
    best, echo = (min(side, key=lambda load: load.cpu_of_a_call) for side in (loads, echoes))
    ratio = best.cpu_of_a_call / echo.cpu_of_a_call
    return Row(
        name=name,
        measured=f"{_sides(best)} of CPU, {best.rate:,.0f} calls/s",
        limit=f"{_sides(echo)}, a bare echo of 200 bytes",
        ratio=ratio,
        goal=f"<= {goal:g}",
        met=ratio <= goal,
    )


def _sides(load: Load) -> str:
    server_us, client_us = (load.cpu[side] / load.calls * 1e6 for side in (SERVER, CLIENT))
    return f"{server_us:.0f} + {client_us:.0f} us (server + client)"
