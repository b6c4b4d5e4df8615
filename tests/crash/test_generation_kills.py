"""Real relays and workers under `kill -9`, and PostgreSQL too: each row has its effect exactly once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import pytest

from airunner.client import AsyncClient
from airunner.domain.clock import SystemClock
from airunner.generation.lost import LostPass
from airunner.handlers.registry import Registry
from airunner.local.postgres import LocalPostgres
from airunner.outbox.table import CLAIM_SECONDS
from airunner.outbox.upkeep import OutboxUpkeep
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.forking import ForkedProcess
from tests.support.generation import HOOKS, effects, enqueue, registry, until_sessions
from tests.support.generation_site import Site
from tests.support.postgres import pass_time
from tests.support.processes import Stack

pytest_plugins = ("tests.support.generation_site",)

KILLS = [
    ("sqs", 20),
    pytest.param("jobs", 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    pytest.param("sqs", 1_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    pytest.param("jobs", 1_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)]),
]
ROWS_A_KILL = 6
LOST_HANDLERS: Registry = registry(paint=(lambda: None, HOOKS))
LIMIT_SECONDS = 120
KILLS_A_ROUND = 50
_OPEN = "generation_sessions WHERE finished_at IS NULL"


@pytest.mark.parametrize(("sink", "kills"), KILLS)
async def test_relays_and_workers_are_killed_and_each_row_has_its_effect_once(
    site: Site, emulator: EmulatorProcess, stack: Stack, seed: int, sink: str, kills: int
) -> None:
    start, jobs = _starts(site), None
    if sink == "jobs":
        await stack.start_server()
        start, jobs = _starts(site, server=stack.url), stack.client()
    async with jobs or nullcontext():
        wanted = await _kill_in_turns(site, emulator, random.Random(seed), kills, start, jobs)
    found = await effects(site.database)
    assert sorted(session_id for session_id, _ in found) == sorted(wanted)
    ends = dict(found)
    # A try that died five times is lost, and compensated as well.
    assert {key: end for key, end in ends.items() if end not in (wanted[key], "failed:lost")} == {}
    assert sum(end == "failed:lost" for end in ends.values()) < kills


async def test_postgresql_is_killed_under_a_worker(site: Site, postgres: LocalPostgres) -> None:
    """The handler has its result when PostgreSQL dies: it is called once, its verdict is written later."""
    session_id = await enqueue(site.database, "paint", {"waits": True})
    relay, worker = site.start("outbox", "relay"), site.start()
    await until(lambda: site.calls == [session_id], limit_seconds=LIMIT_SECONDS)
    postgres.kill()
    try:
        (site.folder / "go").touch()
        await worker.until_said("verdict.failed")
    finally:
        postgres.start()
    await until_sessions(site.database, done=1)
    assert site.calls == [session_id]
    assert await effects(site.database) == [(session_id, "done")]
    # Both go on with what comes then.
    another = await enqueue(site.database, "paint", {})
    await until_sessions(site.database, done=2)
    assert site.calls == [session_id, another]
    for process in (relay, worker):
        process.send(signal.SIGTERM)
        assert await process.ended() == 0


async def _kill_in_turns(
    site: Site,
    emulator: EmulatorProcess,
    rng: random.Random,
    kills: int,
    start: Callable[[str], ForkedProcess],
    jobs: AsyncClient | None,
) -> dict[str, str]:
    """Kill relay and worker in turns, and let all rows come to their ends; return how each should end."""
    wanted, seconds = dict[str, str](), 0
    processes = {name: start(name) for name in ("relay", "worker")}
    for number in range(1, kills + 1):
        called = len(site.calls)
        for _ in range(ROWS_A_KILL):
            is_refused = rng.random() < 0.2
            session_id = await enqueue(site.database, "paint", {"refuses": is_refused})
            wanted[session_id] = "refused" if is_refused else "done"
        victim = ("relay", "worker")[number % 2]
        await _some_progress(site, victim, rng.randint(1, ROWS_A_KILL - 1), called)
        await processes[victim].kill()
        # What the dead one held comes again when its time is over.
        if victim == "worker":
            emulator.advance(121)
        else:
            seconds += CLAIM_SECONDS + 1
            await pass_time(site.database, seconds=seconds)
        processes[victim] = start(victim)
        # More rows than that would wait longer than they are worked on.
        if number % KILLS_A_ROUND == 0 or number == kills:
            seconds = await _finish(site, emulator, seconds, jobs)
    return wanted


def _starts(site: Site, server: str = "") -> Callable[[str], ForkedProcess]:
    """Return what starts a relay or a worker; those of jobs, if there is a server for them."""
    handlers = str(site.folder / "handlers.py")
    of_messages = {"relay": ("outbox", "relay"), "worker": ()}
    of_jobs = {
        "relay": ("outbox", "relay"),
        "worker": (
            *("worker", "--queue", "generation", "--handlers", handlers),
            *("--concurrency", "5", "--visibility-timeout", "3"),
        ),
    }
    commands: Mapping[str, tuple[str, ...]] = of_jobs if server else of_messages
    environment = {"AIRUNNER_SERVER": server, "AIRUNNER_OUTBOX__SINK": "jobs"} if server else {}
    return lambda name: site.fork(*commands[name], **environment)


async def _some_progress(site: Site, victim: str, steps: int, called: int) -> None:
    """Return once a process has come so far that it is in the middle of something.

    `called` is how many calls of handlers there were before the last rows were enqueued.
    """
    if victim == "worker":
        await until(lambda: len(site.calls) >= called + steps, limit_seconds=LIMIT_SECONDS)
    else:
        await _until_at_most(site, ROWS_A_KILL - steps, "outbox WHERE state = 'pending'")


async def _finish(site: Site, emulator: EmulatorProcess, seconds: int, jobs: AsyncClient | None) -> int:
    """Let all that is left come to its end: what was put aside is sent anew, what died five times is lost.

    Return how far the database's clock is ahead then.
    """
    for number in range(20):
        await pass_time(site.database, seconds=seconds)
        await OutboxUpkeep(site.database, "airunner").run_once()
        await LostPass(site.database, "airunner", LOST_HANDLERS, jobs=jobs).run_once()
        if await _all_ended(site, has_messages=jobs is None):
            return seconds
        emulator.advance(121)
        seconds += 3600 if number < 5 else 73 * 3600
    raise AssertionError("some rows never end")


async def _all_ended(site: Site, *, has_messages: bool) -> bool:
    """Wait until all rows have ended, or nothing is under way that could end one."""
    idle, polls, left = 0, 0, await _count(site, _OPEN)
    while left and polls < 500:
        polls, before, left = polls + 1, left, await _count(site, _OPEN)
        if left < before:
            polls = 0
        is_idle = has_messages and not await _count(site, "outbox WHERE state = 'pending'")
        idle = idle + 1 if is_idle and not (await site.queue.depth()).visible else 0
        if idle == 25:
            break
        await SystemClock().sleep(0.02)
    return not left


async def _until_at_most(site: Site, count: int, rows: str) -> None:
    clock = SystemClock()
    limit = clock.monotonic() + LIMIT_SECONDS * 1000
    while await _count(site, rows) > count:
        assert clock.monotonic() < limit, rows
        await clock.sleep(0.02)


async def _count(site: Site, rows: str) -> int:
    return int(await site.database.fetch_value(f"SELECT count(*) FROM airunner.{rows}"))  # noqa: S608  of tests
