"""What calls and jobs may cost in CPU time: both sides apart, beside a bare echo, the best of five.

A budget is one and a half times its share of the goal in docs/performance.md, so that only a change of the
code breaks it. The yardstick is the CPU of an echo at both sides, measured right before each round.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from airunner import AsyncClient
from benchmarks.before.scenarios import HANDLERS, drain_jobs
from benchmarks.callers import CLIENT, Load
from benchmarks.harness import server, worker
from benchmarks.hot_path import SERVER, carried_out, cpu_of_list, echo_server, order_of

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ROUNDS = 5
SLACK = 1.5
# Of the time of an echo, one of the two sides is at work nearly always.
LEAST_BUSY = 0.6


@dataclass(frozen=True)
class Budget:
    """How many echoes a call, or a job, may cost: the server's share, and the client's or the worker's."""

    what: str
    calls: int
    callers: int
    server: float
    client: float


# The shares of the first two add up to what is promised. A replay is of 1,000 lines: 3.9 us a line at the
# client and 1.5 ms at the server, where an echo takes 37 us. A fan-out is of a line to ten watchers in one
# process, its publishing and its commit included: what it costs today.
BUDGETS = (
    Budget("no-op", calls=800, callers=16, server=1.5, client=1.5),
    Budget("enqueue", calls=800, callers=16, server=4, client=2),
    Budget("replay", calls=5, callers=1, server=40, client=105),
    Budget("fan-out", calls=200, callers=1, server=20, client=18),
)
# By one worker, from claim to end; what is reached, since the goal is beside an earlier commit.
DRAIN = Budget("drain", calls=2_000, callers=1, server=1.1, client=0.8)

_ECHOES = 10_000

Measured = dict[str, list[tuple[Load, Load]]]
"""Of each, its rounds: an echo, and what came after it."""


@pytest.fixture(scope="module")
def measured() -> Measured:
    return {**asyncio.run(_measure()), DRAIN.what: asyncio.run(_measure_drain())}


@pytest.mark.parametrize("budget", [*BUDGETS, DRAIN], ids=lambda budget: budget.what)
@pytest.mark.parametrize("side", [SERVER, CLIENT])
def test_a_call_keeps_to_its_budget(measured: Measured, budget: Budget, side: str) -> None:
    rounds = [(echo, load) for echo, load in measured[budget.what] if was_undisturbed(echo)]
    if not rounds:
        pytest.skip("other programs had the CPU in all rounds")
    ratios = sorted(load.cpu[side] / load.calls / echo.cpu_of_a_call for echo, load in rounds)
    share = budget.server if side == SERVER else budget.client
    assert ratios[0] <= share * SLACK, f"{budget.what}: {ratios} times an echo at the {side}"


def test_a_command_keeps_to_its_budget() -> None:
    ours, nothing = asyncio.run(_measure_list())
    assert ours / nothing <= 15 * SLACK, f"{ours * 1e3:.0f} ms beside {nothing * 1e3:.1f} ms"


def was_undisturbed(echo: Load) -> bool:
    """Return whether both processes had the CPU when they wanted it.

    While they wait for it, messages gather, and those that are read together cost half as much.
    """
    return sum(echo.cpu.values()) > LEAST_BUSY * echo.seconds


async def _measure() -> Measured:
    measured: Measured = {budget.what: [] for budget in BUDGETS}
    async with server() as service:
        with echo_server() as echo:
            orders = [
                order_of(budget.what, service, budget.calls, callers=budget.callers) for budget in BUDGETS
            ]
            for _ in range(ROUNDS):
                # By itself: in a process that has called a server before, an echo costs a third or all of it.
                (bare,) = await carried_out(echo.order(_ECHOES))
                for budget, load in zip(BUDGETS, await carried_out(*orders), strict=True):
                    measured[budget.what].append((bare, load))
    return measured


async def _measure_drain() -> list[tuple[Load, Load]]:
    rounds = []
    async with server() as service, AsyncClient(service.url) as client:
        with echo_server() as echo, worker(service.url, *HANDLERS) as process:
            pids = (service.pid, process.pid)
            await drain_jobs(client, "equal", 200, pids)
            for _ in range(ROUNDS):
                (load,) = await carried_out(echo.order(_ECHOES))
                spent, seconds = await drain_jobs(client, "equal", DRAIN.calls, pids)
                cpu = {SERVER: spent["server"], CLIENT: spent["worker"]}
                rounds.append((load, Load(calls=DRAIN.calls, seconds=seconds, cpu=cpu, took=[])))
    return rounds


async def _measure_list() -> tuple[float, float]:
    async with server() as service:
        return await asyncio.to_thread(cpu_of_list, service, ROUNDS)
