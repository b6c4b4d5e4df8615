"""What a store asks of DynamoDB's partition keys under loads of known shapes, and what gives way first.

The store is the real one; AWS is a model in virtual time whose keys can take a hundredth of what those of AWS
can, so that ten jobs a second are to them what a thousand are to AWS. `python -m tests.support.capacity`
prints the table of docs/capacity.md.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from structlog.testing import capture_logs

from airunner.domain.errors import AirunnerError, ResourceExhausted
from airunner.domain.event import EncodedEvent, EventType, Position
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams, JobResult, Outcome
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import AttemptKey, Completion, Demand, EventQuery, NewJob, Retention
from tests.doubles.aws.model.calls import ModelAws
from tests.doubles.aws.model.dynamodb import ModelDynamoDb
from tests.doubles.aws.model.sqs import ModelSqs
from tests.doubles.aws.model.tables import Table
from tests.doubles.aws.model.virtual_time import VirtualClock, run_in_virtual_time
from tests.doubles.aws.tables.throughput import Kind, PartitionKey, Throughput

SCALE: Final = 1 / 100
QUEUE: Final = "builds"
VISIBILITY_SECONDS: Final = 300

# Where so few jobs fall on a key by chance, a second is seldom like another: keys even out a few of them.
_SAVED_SECONDS: Final = 5
# What was saved up shall not be taken for a rate.
_WARM_UP_SECONDS: Final = 8
_MEASURED_SECONDS: Final = 10
_WORKERS: Final = 16
_CHUNK: Final = 10
_MOST_WAITING: Final = 20
_BURST_SECONDS: Final = 5
# So much of a load has to be done.
_FITS: Final = 0.95
_LATER_SECONDS: Final = 3_600
_RETENTION: Final = Retention()
_SHARD: Final = "#SHARD"
_PAYLOAD: Final = b"x" * 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of a load of one shape, and the partition key that it asked most of."""

    shape: str
    shards: int
    demand: str
    done: str
    """Empty where all was done."""
    key: str
    kind: Kind
    share: float
    """Of what the key can take: of each second, or of a burst in seconds, which it takes at least."""
    is_burst: bool = False

    @property
    def fits(self) -> bool:
        """Whether all was done."""
        return not self.done

    @property
    def load(self) -> str:
        """What the key had to take, in bold where that is all that it can."""
        if self.is_burst:
            seconds = f"{self.share:.1f}" if self.share < 1 else f"{self.share:.0f}"
            return f"{seconds} s of all it can take"
        # To 5 %: what is more exact is chance, and so is a debt.
        percent = f"{round(min(self.share, 1) * 20) * 5} %"
        return percent if self.fits and self.share < 1 else f"**{percent}**"

    def row(self) -> str:
        """Return a row of the table."""
        done = f"**{self.done}**" if self.done else "all"
        key = f"`{self.key}`, {self.kind}s"
        return f"| {self.shape} | {self.shards} | {self.demand} | {done} | {key} | {self.load} |"


@dataclass(slots=True, kw_only=True)
class Site:
    """A store on the model, and the clock of both."""

    store: AwsStore
    clock: VirtualClock
    aws: ModelAws
    throughput: Throughput
    shards: int
    done: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 40)))

    def new_job(self, *, due_at: int = 0) -> NewJob:
        """Return a job whose id, and hence shard, is the same in every run."""
        now, number = self.clock.now(), next(self.numbers)
        params = JobParams(command="true")
        return NewJob(
            job_id=f"{now >> 16:08x}-{now & 0xFFFF:04x}-7000-8000-{number:012x}",
            queue=QUEUE,
            principal="somebody",
            request_id=f"request-{number}",
            fingerprint=b"f" * 32,
            params=params,
            params_bytes=b"p" * 100,
            execution=ExecutionConfig(),
            max_attempts=3,
            created_at=now,
            due_at=due_at or now,
        )

    def begin_measuring(self) -> None:
        self.done = 0
        self.throughput.taken.clear()
        self.throughput.refused.clear()

    def steady(self, shape: str, rate: float, noun: str, *, more: str = "") -> Finding:
        """Return what became of a load of so much a second, in full size."""
        done = self.done / _MEASURED_SECONDS / SCALE
        done_text = "" if done > _FITS * rate else f"at most {math.ceil(done / rate * 10) * 10} %"
        return self._finding(shape, f"{rate:,.0f} {noun}/s{more}", done_text, is_burst=False)

    def burst(self, shape: str, count: float) -> Finding:
        """Return what became of so many jobs at once, in full size."""
        return self._finding(shape, f"{count:,.0f} jobs at once", "", is_burst=True)

    def _finding(self, shape: str, demand: str, done: str, *, is_burst: bool) -> Finding:
        shares = self._shares(1 if is_burst else _MEASURED_SECONDS)
        key, kind = max(shares, key=lambda of: shares[of])
        return Finding(
            shape=shape,
            shards=self.shards,
            demand=demand,
            done=done,
            key=key,
            kind=kind,
            share=shares[key, kind],
            is_burst=is_burst,
        )

    def _shares(self, seconds: float) -> dict[tuple[str, Kind], float]:
        """Return what keys took, by the names that they have in the documents.

        Of shards the mean: what one of them has more than others in so small a sample is chance.
        """
        found: dict[tuple[str, Kind], list[float]] = {}
        for (key, kind), units in self.throughput.taken.items():
            share = units / self.throughput.rate(kind) / seconds
            found.setdefault((_name(key), kind), []).append(share)
        return {
            (name, kind): sum(shares) / self.shards if name.endswith(_SHARD) else max(shares)
            for (name, kind), shares in found.items()
        }


# The shapes


async def hot_queue(site: Site, rate: int) -> Finding:
    """So many jobs a second through one queue, in chunks of ten; each publishes once."""
    loads = [_enqueue_steadily(site, rate * SCALE), *(_work(site) for _ in range(_WORKERS))]
    async with _going_on(*loads):
        await asyncio.sleep(_WARM_UP_SECONDS)
        site.begin_measuring()
        await asyncio.sleep(_MEASURED_SECONDS)
        return site.steady("hot queue", rate, "jobs")


async def purge(site: Site, rate: int) -> Finding:
    """The retention of what ended within some seconds is over, and all of it is removed."""
    wanted = int(rate * SCALE * _BURST_SECONDS)
    async with _going_on(_enqueue_steadily(site, rate * SCALE), *(_work(site) for _ in range(_WORKERS))):
        while site.done < wanted:
            await asyncio.sleep(1)
    await asyncio.sleep((_RETENTION.jobs_ms or 0) / 1000 + _BURST_SECONDS)
    site.begin_measuring()
    while await _purged(site):
        pass
    return site.burst("purge", wanted / SCALE)


async def midnight(site: Site, rate: int) -> Finding:
    """Jobs of some seconds that are all due at one instant, which is more than 15 minutes ahead."""
    wanted = int(rate * SCALE * _BURST_SECONDS)
    due_at = site.clock.now() + _LATER_SECONDS * 1000
    for _ in range(0, wanted, _CHUNK):
        await _enqueue(site, [site.new_job(due_at=due_at) for _ in range(_CHUNK)])
        await asyncio.sleep(1)
    await site.clock.sleep((due_at - site.clock.now()) / 1000)
    site.begin_measuring()
    async with _going_on(*(_work(site) for _ in range(_WORKERS)), _look_after(site)):
        while site.done < wanted:
            await asyncio.sleep(1)
    return site.burst("midnight schedule", wanted / SCALE)


async def hot_job(site: Site, rate: int) -> Finding:
    """One job that publishes a tenth as often as jobs come, and is looked at as often."""
    publishes, watchers = rate * SCALE / 10, max(1, int(rate * SCALE / 10))
    await _enqueue(site, [site.new_job()])
    (job,) = await site.store.dequeue_jobs(_demand())
    loads = [_publish_steadily(site, job, publishes), *(_watch(site, job) for _ in range(watchers))]
    async with _going_on(*loads):
        await asyncio.sleep(_WARM_UP_SECONDS)
        site.begin_measuring()
        await asyncio.sleep(_MEASURED_SECONDS)
        more = f", {watchers / SCALE:,.0f} looks/s"
        return site.steady("hot job", rate / 10, "publishes", more=more)


Shape: TypeAlias = "Callable[[Site, int], Coroutine[Any, Any, Finding]]"

FEW: Final[tuple[tuple[Shape, int, int], ...]] = (
    (hot_queue, 1_000, 8),
    (hot_queue, 1_000, 12),
    (hot_job, 1_000, 12),
    (purge, 1_000, 12),
    (midnight, 1_000, 12),
)
MANY: Final[tuple[tuple[Shape, int, int], ...]] = (
    (hot_queue, 10_000, 16),
    (hot_queue, 10_000, 64),
    (hot_job, 10_000, 64),
    (purge, 10_000, 64),
    (midnight, 10_000, 64),
)


def simulate(runs: Sequence[tuple[Shape, int, int]] = (*FEW, *MANY)) -> list[Finding]:
    """Run shapes at the load of so many jobs a second, with so many shards; each alone, and always alike."""
    return [_simulated(*run) for run in runs]


def _simulated(shape: Shape, rate: int, shards: int) -> Finding:
    async def main(clock: VirtualClock) -> Finding:
        async with _opened(clock, shards) as site:
            return await shape(site, rate)

    # Thousands of calls are refused, and each would be told.
    with _the_same_chance(), capture_logs():
        return run_in_virtual_time(main)


def table(findings: Sequence[Finding]) -> str:
    """Return the table of docs/capacity.md."""
    head = "| Shape | Shards | Load | Done | Fullest key | Has to take |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(finding.row() for finding in findings)])


# What goes on at a site


async def _enqueue_steadily(site: Site, rate: float) -> None:
    """Add ten jobs at a time; who has to wait does not hold up the next, unless too many wait."""
    waiting: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            if len(waiting) < _MOST_WAITING:
                jobs = [site.new_job() for _ in range(_CHUNK)]
                waiting.add(task := group.create_task(_enqueue(site, jobs)))
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(_CHUNK / rate)


async def _enqueue(site: Site, jobs: Sequence[NewJob]) -> None:
    """Add jobs, again and again as long as the tables are too busy for some."""
    while jobs:
        try:
            outcomes = await site.store.enqueue_jobs(jobs)
            jobs = [job for job, one in zip(jobs, outcomes, strict=True) if isinstance(one, AirunnerError)]
        except ResourceExhausted:
            await asyncio.sleep(1)


async def _work(site: Site) -> None:
    while True:
        try:
            jobs = await site.store.dequeue_jobs(_demand())
        except AirunnerError:
            await asyncio.sleep(1)
            continue
        await asyncio.gather(*(_repeated(_run, site, job) for job in jobs))


async def _run(site: Site, job: Job) -> None:
    key = _key(job)
    await site.store.append_events(key, [_event(1)], site.clock.now())
    result = JobResult(success=True, outcome=Outcome.SUCCESS, final_sequence=1)
    (outcome,) = await site.store.complete_jobs([Completion(key=key, result=result)], site.clock.now())
    if isinstance(outcome, AirunnerError):
        raise outcome
    site.done += 1


async def _publish_steadily(site: Site, job: Job, rate: float) -> None:
    sequence = 0
    while True:
        sequence += 1

        async def publish(site: Site, job: Job, number: int = sequence) -> None:
            await site.store.append_events(_key(job), [_event(number)], site.clock.now())

        began = site.clock.monotonic()
        await _repeated(publish, site, job)
        site.done += 1
        await asyncio.sleep(max(0.0, 1 / rate - (site.clock.monotonic() - began) / 1000))


async def _watch(site: Site, job: Job) -> None:
    position = Position(1, 0)
    while True:
        try:
            page = await site.store.read_events(EventQuery(job_id=job.job_id, after=position))
            position = page.events[-1].position if page.events else position
        except AirunnerError:
            pass
        await asyncio.sleep(1)


async def _look_after(site: Site) -> None:
    while True:
        try:
            await site.store.maintain(_RETENTION, site.clock.now())
        except AirunnerError:
            await asyncio.sleep(1)
        await asyncio.sleep(1)


async def _purged(site: Site) -> int:
    try:
        return (await site.store.maintain(_RETENTION, site.clock.now())).purged_jobs
    except ResourceExhausted:
        await asyncio.sleep(1)
        return await _purged(site)


async def _repeated(work: Any, site: Site, job: Job) -> None:
    """Do something until the tables are not too busy for it."""
    while True:
        try:
            await work(site, job)
        except ResourceExhausted:
            await asyncio.sleep(1)
        else:
            return


@asynccontextmanager
async def _going_on(*loads: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(load) for load in loads]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
    assert not failures, failures


@asynccontextmanager
async def _opened(clock: VirtualClock, shards: int) -> AsyncIterator[Site]:
    layout = Layout(env="model", queues={QUEUE: QUEUE}, listing_shards=shards)
    throughput = Throughput(lambda: clock.monotonic() / 1000, scale=SCALE, saved_seconds=_SAVED_SECONDS)
    sqs = ModelSqs(lambda: clock.monotonic() / 1000)
    dynamodb = ModelDynamoDb(map(Table, shapes.tables(layout)), throughput)
    aws = ModelAws({"dynamodb": dynamodb, "sqs": sqs, "polls": sqs}, clock)
    store = AwsStore(aws, layout, clock)
    await store.open()
    try:
        yield Site(store=store, clock=clock, aws=aws, throughput=throughput, shards=shards)
    finally:
        await store.close()


@contextmanager
def _the_same_chance() -> Iterator[None]:
    """Let pauses between tries, and the shard that is looked at first, be the same in every run."""
    state, seeded = random.getstate(), random.Random(1)
    random.seed(1)
    # Both names of where everything else has its chance from: the second is that of `secrets`.
    with patch("os.urandom", seeded.randbytes), patch("random._urandom", seeded.randbytes):
        try:
            yield
        finally:
            random.setstate(state)


def _name(key: PartitionKey) -> str:
    """Return what a key is called in the documents: without its shard, and a job's without its id."""
    table = "events" if key.table.endswith("events") else "jobs"
    if key.index:
        return f"{key.index} {key.value.rpartition('#')[0]}{_SHARD}"
    prefix = key.value.partition("#")[0]
    return f"{table} {prefix}#..." if "#" in key.value else f"{table} JOB"


def _demand() -> Demand:
    return Demand(queues=(QUEUE,), max_jobs=_CHUNK, visibility_seconds=VISIBILITY_SECONDS, waits=False)


def _key(job: Job) -> AttemptKey:
    return AttemptKey(job_id=job.job_id, attempt=job.attempt, receipt=job.receipt)


def _event(sequence: int) -> EncodedEvent:
    return EncodedEvent(sequence, sequence, 1, 1, EventType.OUTPUT_BATCH, _PAYLOAD)


if __name__ == "__main__":
    sys.stdout.write(f"{table(simulate())}\n")
