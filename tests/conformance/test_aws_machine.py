"""Whatever is asked in whatever order, each answer of the production store is one that the model allows.

It may give jobs in another order and later than the model would, so it chooses, and the model follows: what
it chose must be claimable there. When time enough has passed, it must give all that the model has.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, multiple, precondition, rule

from airunner.domain import lifecycle
from airunner.domain.answers import DequeuedJob, QueueStats
from airunner.domain.job import Job
from airunner.domain.listing import JobQuery
from airunner.domain.requests import Abilities
from airunner.stores.aws.upkeep import open_jobs
from airunner.stores.memory import MemoryStore
from airunner.testing.conformance.stores.backend import Api
from tests.conformance.conftest import in_process
from tests.conformance.test_state_machine import DAY, THOROUGHNESS, StoreMachine, able, queues
from tests.conformance.twin import RULES, Pair, Twin
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws
from tests.support.aws_stores import make_resources, make_store

pytestmark = pytest.mark.timeout(1800)
QUEUES = ("one", "two")
# So long that nothing lapses but when the machine wants it: in between, stores may differ.
VISIBILITY_SECONDS = 3600


class FollowingModel(MemoryStore):
    """Claims what it is told to, if a claim is allowed."""

    chosen: Sequence[str] = ()

    def allowed(self, queue: str) -> set[str]:
        """The jobs that a dequeue may claim now."""
        return {job.job_id for job in super()._claimable(queue, 10**6, self._clock.now())}

    def _claimable(self, queue: str, _: int, now: int, abilities: frozenset[str] | None = None) -> list[Job]:
        allowed = {job.job_id: job for job in super()._claimable(queue, 10**6, now, abilities)}
        return [allowed[job_id] for job_id in self.chosen if job_id in allowed]


class AwsTwin(Twin):
    """The model, and a store on tables and queues of its own."""

    emulator: ClassVar[EmulatorProcess]

    def __init__(self) -> None:
        self._env = f"t{secrets.token_hex(4)}"
        emulator = self.emulator
        self._aws = StrictAws(emulator.url, lambda: time.monotonic() + emulator.ahead_seconds)
        self._layout: Any = None
        super().__init__(in_process)

    def advance(self, seconds: float) -> None:
        """Let time pass for jobs and messages, and let both look after their jobs."""
        self.clock.advance(seconds)
        self.emulator.advance(seconds)
        self.ask(lambda api: api.services.maintenance.run_once())

    def dequeue(self, *names: str, max_jobs: int, abilities: Abilities | None = None) -> Pair:
        """Let the store choose, and the model follow."""

        async def dequeue(api: Api) -> Sequence[DequeuedJob]:
            return await api.dequeue(
                names[0],
                more_queues=names,
                max_jobs=max_jobs,
                visibility_seconds=VISIBILITY_SECONDS,
                abilities=abilities,
            )

        given = self.run(dequeue(self.subject))
        self._follow_ends()
        self.following.chosen = [self._name(held.job.job_id) for held in given]
        expected = self.run(dequeue(self.model))
        self.compare(expected, given)
        return Pair(model=expected, subject=given)

    def _follow_ends(self) -> None:
        """Let the model end what a claim of the store has ended: it leaves these to maintenance."""
        now = self.clock.now()
        for pair in self.jobs:
            job = self.memory._jobs.get(pair.model)
            if job is None or job.life.expires_at is None or job.life.expires_at > now:
                continue
            if self.run(self.subject.jobs.get_job(pair.subject)).state.terminal:
                self.memory._save(job, lifecycle.expire(job.life, now=now))

    @property
    def following(self) -> FollowingModel:
        assert isinstance(self.memory, FollowingModel)
        return self.memory

    def restart(self) -> None:
        # Jobs of one instant are listed in the order of their making only by who made them.
        self.advance(1)
        self.reopen()

    def make_memory(self) -> MemoryStore:
        return FollowingModel(self.clock)

    async def _enter(self) -> tuple[Api, Api]:
        proxy = await self._open.enter_async_context(self._aws.proxy())
        if self._layout is None:
            made = await make_resources(proxy.url, self._env, queues=QUEUES)
            chosen = {queue: made.queues[queue] for queue in QUEUES}
            self._layout = replace(made, queues=chosen, listing_shards=1)
        store = make_store(proxy.url, self._layout, self.clock)
        model = await self._open.enter_async_context(in_process(self.memory, self.clock, RULES))
        return model, await self._open.enter_async_context(in_process(store, self.clock, RULES))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Job):
            value = replace(value, receipt="")
        return super()._plain(value)


class AwsMachine(StoreMachine):
    twin: AwsTwin

    dequeue_waiting = None  # type: ignore[assignment]  # who gets what is another question
    age = None  # type: ignore[assignment]  # see grow_old

    def make_twin(self) -> AwsTwin:
        return AwsTwin()

    @rule(
        target=StoreMachine.helds,
        first=queues,
        both=st.booleans(),
        max_jobs=st.integers(1, 3),
        abilities=able,
    )
    def dequeue(
        self, first: str, both: bool, max_jobs: int, abilities: Abilities | None
    ) -> MultipleResults[Pair]:
        names = (first, *(queue for queue in QUEUES if queue != first and both))
        return self.taken(self.twin.dequeue(*names, max_jobs=max_jobs, abilities=abilities))

    @rule(held=StoreMachine.helds, seconds=st.sampled_from([0, VISIBILITY_SECONDS]))
    def beat(self, held: Pair, seconds: int) -> None:
        self.twin.ask(lambda api: api.beat(held.model, seconds), lambda api: api.beat(held.subject, seconds))

    @rule(seconds=st.sampled_from([1, 5, 10]))
    def advance(self, seconds: int) -> None:
        self.twin.advance(seconds)

    @rule(days=st.sampled_from([3, 8, 31]))
    @precondition(lambda self: len(self.twin.jobs) > 6)
    def grow_old(self, days: int) -> None:
        self.twin.advance(days * DAY)

    @rule(target=StoreMachine.helds)
    def lapse_and_take_all(self) -> MultipleResults[Pair]:
        """Let all claims lapse: whatever the model would give now, the store gives."""
        self.twin.advance(VISIBILITY_SECONDS + self.twin.subject.capabilities.redelivery_slack_seconds + 1)
        taken: list[Pair] = []
        for queue in QUEUES:
            allowed = self.twin.following.allowed(queue)
            while (answers := self.twin.dequeue(queue, max_jobs=10)).subject:
                allowed -= {held.job.job_id for held in answers.model}
                pairs = zip(answers.model, answers.subject, strict=True)
                taken += [Pair(model=mine, subject=theirs) for mine, theirs in pairs]
            assert not allowed
        return multiple(*taken)

    @rule()
    def list_queues(self) -> None:
        self.twin.ask(_queues_with_jobs)

    def list_on(self, mine: JobQuery, theirs: JobQuery) -> None:
        self.twin.ask(lambda api: _jobs_after(api, mine), lambda api: _jobs_after(api, theirs))


async def _jobs_after(api: Api, query: JobQuery) -> tuple[Sequence[Job], bool]:
    """A page after a cursor, without the number of the last one: nobody counts what was before."""
    page = await api.jobs.list_jobs(query)
    return page.jobs, bool(page.next_cursor)


async def _queues_with_jobs(api: Api) -> list[QueueStats]:
    """The queues, without those that are only configured."""
    return [stats for stats in await api.jobs.list_queues() if stats.scheduled or stats.running]


@pytest.fixture(scope="module", autouse=True)
def _emulated(emulator: EmulatorProcess) -> Iterator[None]:
    AwsTwin.emulator = emulator
    with pytest.MonkeyPatch.context() as patch:
        # A count that is remembered may be of a moment ago, with the oldest job of that time.
        patch.setattr(open_jobs, "TRUSTED_MS", 0)
        yield
    del AwsTwin.emulator


class TestFirstQuarter(AwsMachine.TestCase):  # type: ignore[valid-type,misc]  # made when it is asked for
    """A part of the examples: several processes of a test run share them."""

    settings = settings(
        max_examples=int(25 * THOROUGHNESS),
        stateful_step_count=25,
        suppress_health_check=[HealthCheck.too_slow],
    )


@pytest.mark.slow
class TestSecondQuarter(TestFirstQuarter):
    pass


@pytest.mark.slow
class TestThirdQuarter(TestFirstQuarter):
    pass


@pytest.mark.slow
class TestLastQuarter(TestFirstQuarter):
    pass
