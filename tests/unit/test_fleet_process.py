"""The life of a part of a fleet's work: opened when that is possible, drained, and never left half open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from airunner.app import build_fleet_process, build_server, build_services
from airunner.config import ConfigError, FleetPart, load_settings
from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.domain.outcomes import single
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.lease import TaskLease
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.process import FleetProcess, MessageWork
from airunner.fleet.task_run import TaskRun
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request
from tests.support.fleet import FakeRecords


class Work:
    """Implements FleetWork: it works until it is told to end."""

    def __init__(self) -> None:
        self.healthy = True
        self.waiting = False
        self.log: list[str] = []
        self._end = asyncio.Event()

    async def run(self) -> None:
        self.log.append("run")
        await self._end.wait()

    def stop(self) -> None:
        self.log.append("stop")
        self._end.set()

    def kill(self) -> None:
        self.log.append("kill")


class Opener:
    """Opens the work, or fails first as a test says; `opened` counts what nobody closed yet."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.opened = 0
        self.tries = 0
        self.work = Work()

    async def __call__(self, stack: AsyncExitStack) -> Work:
        self.tries += 1
        self.opened += 1
        stack.callback(self._close)
        if self.failures:
            raise self.failures.pop(0)
        return self.work

    def _close(self) -> None:
        self.opened -= 1


async def test_what_is_away_is_waited_for() -> None:
    clock, opener = ManualClock(), Opener(Unavailable("away"), Unavailable("away"))
    process = FleetProcess("termination", opener, clock)
    running = asyncio.create_task(process.run())
    await until(lambda: opener.tries == 1 and clock.waiting == 1)
    assert (process.state, process.healthy, opener.opened) == ("waiting", True, 0)
    clock.advance(60)
    await until(lambda: opener.tries == 2 and clock.waiting == 1)
    clock.advance(60)
    await until(lambda: opener.work.log == ["run"])
    assert process.state == "ok"
    # To restart a server since AWS is away would help nobody.
    opener.work.waiting = True
    assert (process.state, process.healthy) == ("waiting", True)
    opener.work.healthy = False
    assert (process.state, process.healthy) == ("stuck", False)
    await process.drain()
    await running
    assert opener.work.log == ["run", "stop"]
    assert opener.opened == 0


async def test_a_stop_does_not_wait_for_what_is_away() -> None:
    clock, opener = ManualClock(), Opener(Unavailable("away"))
    process = FleetProcess("termination", opener, clock)
    running = asyncio.create_task(process.run())
    await until(lambda: clock.waiting == 1)
    process.stop()
    await running
    assert (opener.tries, opener.opened, opener.work.log) == (1, 0, [])


async def test_what_cannot_pass_is_raised_and_nothing_stays_open() -> None:
    opener = Opener(FailedPrecondition("there is no queue"))
    process = FleetProcess("termination", opener, ManualClock())
    with pytest.raises(FailedPrecondition, match="no queue"):
        await process.run()
    assert opener.opened == 0


async def test_one_that_is_stopped_before_it_begins_opens_nothing() -> None:
    opener = Opener()
    process = FleetProcess("termination", opener, ManualClock())
    process.stop()
    await process.run()
    assert opener.tries == 0


async def test_a_cancelled_one_closes_what_it_opened() -> None:
    opener = Opener()
    process = FleetProcess("termination", opener, ManualClock())
    running = asyncio.create_task(process.run())
    await until(lambda: opener.work.log == ["run"])
    process.kill()
    assert opener.work.log == ["run", "stop", "kill"]
    running.cancel()
    await asyncio.wait({running})
    assert opener.opened == 0


class Messages:
    """A processor of messages on a queue in memory; each message waits for what a test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.queue = MemoryQueue(clock, name="housekeeping", max_receive_count=3)
        self.dependencies = Dependencies(clock)
        self.begun: list[str] = []
        self.call: Callable[[], Awaitable[None]] = asyncio.Event().wait  # type: ignore[assignment]  # it hangs
        consumer, source = fleet_consumer(
            self.queue, str, self._process, dependencies=self.dependencies, clock=clock, concurrency=4
        )
        self.work = MessageWork(consumer, source, self.dependencies, clock)

    async def _process(self, body: str) -> None:
        self.begun.append(body)
        await self.dependencies.call("any", self.call, seconds=None)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, second by second, and everything happen that is due meanwhile."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            for _ in range(10):
                await asyncio.sleep(0)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[MessageWork]:
        running = asyncio.create_task(self.work.run())
        try:
            yield self.work
        finally:
            self.work.kill()
            await running


async def test_one_that_waits_for_what_is_away_is_healthy_however_long() -> None:
    messages = Messages(ManualClock())

    async def fail() -> None:
        raise Unavailable("away")

    messages.call = fail
    await messages.queue.send([NewMessage(body="any")])
    async with messages.working() as work:
        await until(lambda: work.waiting)
        await messages.pass_time(1000)
        assert (work.waiting, work.healthy) == (True, True)


async def test_one_without_messages_is_healthy() -> None:
    messages = Messages(ManualClock())
    async with messages.working() as work:
        await messages.pass_time(1000)
        assert (work.waiting, work.healthy) == (False, True)
        await messages.queue.send([NewMessage(body="any")])
        await until(lambda: messages.begun == ["any"])
        assert work.healthy


async def test_one_whose_messages_hang_is_unwell() -> None:
    messages = Messages(ManualClock())
    async with messages.working() as work:
        await messages.queue.send([NewMessage(body="any")])
        await until(lambda: messages.begun == ["any"])
        await messages.pass_time(299)
        assert work.healthy
        await messages.pass_time(2)
        assert (work.waiting, work.healthy) == (False, False)


async def test_a_message_that_takes_long_is_no_harm_while_it_tells_of_its_steps() -> None:
    messages = Messages(ManualClock())
    run = TaskRun(
        messages.clock,
        TaskLease(FakeRecords(), messages.clock, TaskType.OLD_JOBS, "any"),
        on_step=messages.dependencies.progress.note,
    )

    async def purge() -> None:
        for _ in range(10):
            await messages.clock.sleep(30)
            await run.keep()
        await asyncio.Event().wait()

    messages.call = purge
    await run._lease.take()
    async with messages.working() as work:
        await messages.queue.send([NewMessage(body="any")])
        await messages.pass_time(590)
        assert work.healthy
        await messages.pass_time(20)
        assert not work.healthy


async def test_one_whose_receive_hangs_is_unwell(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = Messages(ManualClock())
    monkeypatch.setattr(messages.queue, "receive", lambda *_, **__: asyncio.Event().wait())
    async with messages.working() as work:
        await messages.pass_time(299)
        assert work.healthy
        await messages.pass_time(5)
        assert not work.healthy


async def test_a_queue_that_is_away_makes_nobody_unwell(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = Messages(ManualClock())

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(messages.queue, "receive", fail)
    async with messages.working() as work:
        await messages.pass_time(1000)
        assert work.healthy


def test_beside_an_embedded_store_a_fleet_has_no_process_of_its_own(tmp_path: Path) -> None:
    settings = load_settings(environ={"AWS_REGION": "eu-west-1"}, cwd=tmp_path).settings
    with pytest.raises(ConfigError, match=r"fleet\.run: with store\.type sqlite .* to termination there"):
        build_fleet_process(settings, FleetPart.TERMINATION)


def test_a_server_that_shall_run_a_fleet_says_at_once_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airunner.aws.clients.configured_region", lambda: "")
    variables = {"AIRUNNER_DATA_DIR": str(tmp_path), "AIRUNNER_FLEET__RUN": "termination"}
    with pytest.raises(ConfigError, match=r"store\.aws\.region"):
        build_server(load_settings(environ=variables, cwd=tmp_path).settings)


@pytest.mark.parametrize("purge_by", ["server", "housekeeping"])
async def test_servers_leave_old_jobs_to_housekeeping_where_that_is_set(
    tmp_path: Path, purge_by: str
) -> None:
    variables = {
        "AIRUNNER_DATA_DIR": str(tmp_path),
        "AIRUNNER_STORE__TYPE": "memory",
        "AIRUNNER_STORE__PURGE_BY": purge_by,
    }
    settings, clock = load_settings(environ=variables, cwd=tmp_path).settings, ManualClock()
    async with build_services(settings, clock) as services:
        job_id = single(await services.jobs.enqueue_jobs([make_request()])).job_id
        await services.jobs.cancel_job(job_id)
        clock.step(8 * 24 * 3600)
        await services.maintenance.run_once()
        left = await services.store.purge_jobs(clock.now() - 7 * 24 * 3600_000, limit=25)
        assert left.jobs == (purge_by == "housekeeping")
