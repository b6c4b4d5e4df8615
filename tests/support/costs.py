"""What a job asks of AWS in its life, counted: the tables of docs/aws-costs.md.

The services are the real ones, and AWS is a model in virtual time that charges each call as DynamoDB does.
`python -m tests.support.costs` counts again and writes the tables into the page.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.batching import Batcher, Flush
from airunner.domain.event import EncodedEvent, Event, ProcessEnd, ProcessStart, StreamType
from airunner.domain.execution import BatchingConfig
from airunner.domain.job import JobParams
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    EnqueueRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.services.composition import ServiceRules, Services
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import Completion, Retention
from airunner.testing.factories import NEVER_SECONDS, make_request, make_services, make_success
from tests.doubles.aws.model.calls import ModelAws
from tests.doubles.aws.model.dynamodb import ModelDynamoDb
from tests.doubles.aws.model.sqs import ModelSqs
from tests.doubles.aws.model.tables import Table
from tests.doubles.aws.model.virtual_time import VirtualClock, run_in_virtual_time
from tests.doubles.aws.tables.throughput import Throughput

PAGE: Final = Path(__file__).parents[2] / "docs" / "aws-costs.md"

QUEUE: Final = "builds"
KEPT_SECONDS: Final = 7 * 24 * 3600
HEARTBEAT_SECONDS: Final = 30
# Of list prices in dollars: see the page.
WRITE_UNIT: Final = 0.625e-6
READ_UNIT: Final = 0.125e-6
REQUEST: Final = 0.40e-6

_LINE: Final = b"%06d 2026-11-15T11:00:00Z INFO step of the build did what it had to do, in %d ms\n"
_CHATTY_LINES: Final = 20
# A model that never refuses.
_PLENTY: Final = 1e6
_SQS: Final = frozenset(
    {"send_message", "send_message_batch", "receive_message", "delete_message_batch"}
    | {"change_message_visibility_batch", "get_queue_attributes"}
)
_PARAMS: Final = {"small": 100, "4 KiB": 4000}


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked of AWS: units of DynamoDB by where they were taken, and calls by their operations."""

    units: Counter[str] = field(default_factory=Counter)
    """Of `row and items`, `listing` and `checks` for writes, and of `reads`."""
    calls: Counter[str] = field(default_factory=Counter)

    def __sub__(self, before: Usage) -> Usage:
        return Usage(_minus(self.units, before.units), _minus(self.calls, before.calls))

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.units + other.units, self.calls + other.calls)

    def times(self, number: int) -> Usage:
        """Return so many of the same."""
        return Usage(
            Counter({name: units * number for name, units in self.units.items()}),
            Counter({name: calls * number for name, calls in self.calls.items()}),
        )

    def divided(self, number: int) -> Usage:
        """Return one of so many, all being alike."""
        return Usage(
            Counter({name: units / number for name, units in self.units.items()}),
            Counter({name: calls // number for name, calls in self.calls.items()}),
        )

    @property
    def writes(self) -> float:
        return sum(units for name, units in self.units.items() if name != "reads")

    @property
    def reads(self) -> float:
        return self.units["reads"]

    @property
    def requests(self) -> int:
        """Requests of SQS."""
        return sum(calls for name, calls in self.calls.items() if name in _SQS)

    @property
    def dollars(self) -> float:
        return self.writes * WRITE_UNIT + self.reads * READ_UNIT + self.requests * REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a job goes about its work."""

    name: str
    lines_at_once: int = 0
    lines_per_second: int = 0
    watched: bool = False
    elsewhere: bool = False
    """Whether it is watched at another server."""


BRIEF: Final = Manner(name="brief", lines_at_once=1)
QUIET: Final = Manner(name="quiet")
CHATTY: Final = Manner(name="chatty", lines_per_second=_CHATTY_LINES)
WATCHED: Final = Manner(name="watched", lines_per_second=_CHATTY_LINES, watched=True)
ELSEWHERE: Final = Manner(
    name="watched at another server", lines_per_second=_CHATTY_LINES, watched=True, elsewhere=True
)


class Site:
    """Two servers on one model, of which the second is there for watchers only."""

    def __init__(self, clock: VirtualClock, *, shards: int = 8) -> None:
        self.clock = clock
        self._throughput = throughput = Throughput(lambda: clock.monotonic() / 1000, scale=_PLENTY)
        layout = Layout(env="model", queues={QUEUE: QUEUE}, listing_shards=shards)
        sqs = ModelSqs(lambda: clock.monotonic() / 1000)
        dynamodb = ModelDynamoDb(map(Table, shapes.tables(layout)), throughput)
        self._connections = [
            ModelAws({"dynamodb": dynamodb, "sqs": sqs, "polls": sqs}, clock) for _ in range(2)
        ]
        self.stores = [AwsStore(aws, layout, clock, watches_parts=False) for aws in self._connections]
        rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
        self.servers = [make_services(store, clock, rules) for store in self.stores]

    async def used(self) -> Usage:
        """Return what was asked so far, with all that follows answers."""
        for store in self.stores:
            await store._background_tasks.finish()
        units: Counter[str] = Counter()
        for (place, kind), taken in self._throughput.taken.items():
            units["reads" if kind == "read" else place.index or "row and items"] += taken  # type: ignore[assignment]
        calls = sum((aws.counts for aws in self._connections), start=Counter[str]())
        return Usage(units, Counter(calls))


@dataclass(frozen=True, slots=True)
class Life:
    """What each step of a job's life took."""

    enqueue: Usage
    claim: Usage
    work: Usage
    end: Usage
    purge: Usage

    @property
    def whole(self) -> Usage:
        return self.enqueue + self.claim + self.work + self.end + self.purge


async def live(clock: VirtualClock, manner: Manner, seconds: int, params: str) -> Life:
    """Let one job live its life, and be purged when its retention is over."""
    site = Site(clock)
    async with site.servers[0], site.servers[1]:
        steps = await _live(site, manner, seconds, params)
    # Nothing else turns meanwhile, or the time would take its time.
    await clock.sleep(KEPT_SECONDS)
    await site.stores[0].open()
    first, second = await _pass(site), await _pass(site)
    await site.stores[0].close()
    enqueue, claim, work, end = steps
    return Life(enqueue, claim, work, end, first - second)


async def _live(site: Site, manner: Manner, seconds: int, params: str) -> list[Usage]:
    jobs = site.servers[0].jobs
    # As if the queue had been used before.
    site.stores[0]._enqueuer._used_queues.add(QUEUE)
    marks = [await site.used()]
    (added,) = await jobs.enqueue_jobs([_request(params)])
    assert isinstance(added, Enqueued)
    marks.append(await site.used())
    (held,) = await jobs.dequeue_jobs(DequeueRequest(queue=QUEUE))
    marks.append(await site.used())
    async with _watching(site, held, manner):
        last = await _work(site.servers[0], held, manner, seconds)
        marks.append(await site.used())
        events = [event for flush in last for event in flush.events]
        result = make_success(final_sequence=events[-1].last_sequence)
        completion = CompleteRequest(task_token=held.task_token, result=result)
        await jobs.complete_prepared([jobs.prepare_completion(completion, _packed(events))])
        marks.append(await site.used())
    return [later - earlier for earlier, later in itertools.pairwise(marks)]


async def live_together(clock: VirtualClock, jobs: int) -> Usage:
    """Let jobs live together that print a line and are over in a moment; return what all of it took.

    They are in one shard: where jobs are many, those of each shard go together.
    """
    site = Site(clock, shards=1)
    async with site.servers[0], site.servers[1]:
        server = site.servers[0]
        site.stores[0]._enqueuer._used_queues.add(QUEUE)
        before = await site.used()
        await server.jobs.enqueue_jobs([_request("small") for _ in range(jobs)])
        held = await server.jobs.dequeue_jobs(DequeueRequest(queue=QUEUE, max_jobs=jobs))
        ends = [await _end(server, one) for one in held]
        await server.jobs.complete_prepared(ends)
        lived = await site.used() - before
    await clock.sleep(KEPT_SECONDS)
    await site.stores[0].open()
    first, second = await _pass(site), await _pass(site)
    await site.stores[0].close()
    return lived + (first - second)


async def _end(server: Services, held: DequeuedJob) -> Completion:
    (flush,) = await _work(server, held, BRIEF, 0)
    result = make_success(final_sequence=flush.events[-1].last_sequence)
    completion = CompleteRequest(task_token=held.task_token, result=result)
    return server.jobs.prepare_completion(completion, _packed(flush.events))


def _request(params: str) -> EnqueueRequest:
    return make_request(QUEUE, params=JobParams(command="make", args=("x" * _PARAMS[params],)))


async def _pass(site: Site) -> Usage:
    """Return what a pass of the maintenance takes."""
    before = await site.used()
    await site.stores[0]._reconciler.run(Retention(), site.clock.now())
    return await site.used() - before


async def _work(server: Services, held: DequeuedJob, manner: Manner, seconds: int) -> Sequence[Flush]:
    """Do what a worker does while a job runs; return what its completion carries."""
    batcher, clock = Batcher(BatchingConfig()), server.clock
    beating = asyncio.create_task(_beat(server, held, batcher))
    end_at = clock.now() + seconds * 1000
    start = ProcessStart(pid=1, started_at=clock.now())
    await _publish(server, held, batcher, batcher.add(start, clock.now()))
    lines = [_LINE % (number, 0) for number in range(manner.lines_at_once)]
    await _publish(server, held, batcher, batcher.add_output(lines, StreamType.STDOUT, clock.now()))
    for number, when in enumerate(_printing(manner, clock.now(), end_at)):
        await _until(server, held, batcher, when)
        lines = [_LINE % (number, number * 7919 % 1000)]
        await _publish(server, held, batcher, batcher.add_output(lines, StreamType.STDOUT, clock.now()))
    await _until(server, held, batcher, end_at)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    return batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=seconds * 1000), clock.now())


def _printing(manner: Manner, begin: int, end: int) -> Iterator[int]:
    """Yield the instants at which a job prints a line."""
    if manner.lines_per_second:
        yield from range(begin + 500, end, 1000 // manner.lines_per_second)


async def _until(server: Services, held: DequeuedJob, batcher: Batcher, when: int) -> None:
    """Let time pass, and publish what has waited long enough meanwhile."""
    while (now := server.clock.now()) < when:
        await asyncio.sleep((min(when, batcher.due_at or when) - now) / 1000)
        await _publish(server, held, batcher, batcher.tick(server.clock.now()))


async def _publish(server: Services, held: DequeuedJob, batcher: Batcher, flushes: Sequence[Flush]) -> None:
    for flush in flushes:
        published = await server.events.publish_encoded(held.task_token, _packed(flush.events))
        batcher.watched = published.watched


def _packed(events: Sequence[Event]) -> list[EncodedEvent]:
    """Return events as a worker sends them."""
    return admit_events(map(event_to_packed_pb, events), 0)


async def _beat(server: Services, held: DequeuedJob, batcher: Batcher) -> None:
    """Keep one call outstanding, from the first second on, as a worker does."""
    await asyncio.sleep(1)
    while True:
        answer = await server.jobs.update_job(
            UpdateRequest(
                queue=QUEUE,
                task_token=held.task_token,
                wait_seconds=HEARTBEAT_SECONDS,
                watched=batcher.watched,
            )
        )
        batcher.watched = answer.watched


@asynccontextmanager
async def _watching(site: Site, held: DequeuedJob, manner: Manner) -> AsyncIterator[None]:
    if not manner.watched:
        yield
        return

    async def watch() -> None:
        server = site.servers[1 if manner.elsewhere else 0]
        async for _ in server.events.stream_events(StreamRequest(job_id=held.job.job_id)):
            pass

    watching = asyncio.create_task(watch())
    yield
    await watching


@cache
def count(manner: Manner, seconds: int, params: str) -> Life:
    """Count a life. Of an hour a minute is counted for all, being alike."""
    if seconds <= 120:
        return run_in_virtual_time(lambda clock: live(clock, manner, seconds, params))
    # One that is watched publishes so often that half of a minute has to do.
    short = 30 if manner.watched else 60
    one, two = (count(manner, times * short, params) for times in (1, 2))
    more = (two.work - one.work).times(seconds // short - 2)
    return Life(two.enqueue, two.claim, two.work + more, two.end, two.purge)


# The tables


def steps_table() -> str:
    """The steps of a small job that prints a line and is over in a moment."""
    life = count(BRIEF, 0, "small")
    rows = [
        _step("enqueue, and mark as sent", life.enqueue),
        _step("claim", life.claim),
        _step("complete with its output", life.end),
        _step("purge", life.purge),
        _step("**together**", life.whole),
    ]
    head = ["Step", "Calls", "Row and items", "`listing`", "`checks`", "Write units", "Read units"]
    return _table(head, rows)


def chunks_table() -> str:
    """The same job by itself, and as one of ten whose calls go together."""
    ten = run_in_virtual_time(lambda clock: live_together(clock, 10))
    one = run_in_virtual_time(lambda clock: live_together(clock, 1))
    rows = [
        [name, _number(calls), *(_number(number) for number in (writes, reads, requests)), dollars]
        for name, calls, writes, reads, requests, dollars in (
            ("by itself", *_of_each(one, 1)),
            ("one of ten", *_of_each(ten, 10)),
        )
    ]
    return _table(["A small job", "Calls", "Write units", "Read units", "SQS", "1,000 of them"], rows)


def _of_each(usage: Usage, jobs: int) -> tuple[float, float, float, float, str]:
    calls, requests = sum(usage.calls.values()) / jobs, usage.requests / jobs
    dollars = f"${usage.dollars / jobs * 1000:.4f}"
    return calls, usage.writes / jobs, usage.reads / jobs, requests, dollars


def parts_table() -> str:
    """What comes on top while a job runs, with small parameters and with large ones."""
    quiet = {params: count(QUIET, 3600, params).work for params in _PARAMS}
    chatty = {params: count(CHATTY, 60, params).work - count(CHATTY, 30, params).work for params in _PARAMS}
    silent = {params: count(QUIET, 60, params).work - count(QUIET, 30, params).work for params in _PARAMS}
    rows = []
    for params in _PARAMS:
        publishes = (chatty[params] - silent[params]).calls["put_item"]
        publish = (chatty[params] - silent[params]).divided(publishes)
        rows.append(_part("a publish", params, publish))
        rows.append(
            _part("an hour of holding it: heartbeats, and looks for a cancellation", params, quiet[params])
        )
    return _table(["What", "Parameters", "Write units", "Read units", "SQS", "1,000 of them"], rows)


def lives_table() -> str:
    """Whole lives, by how long they are, what goes on in them, and how large their parameters are."""
    rows = []
    for seconds, duration in ((1, "1 s"), (60, "1 min"), (3600, "1 h")):
        for manner in (QUIET, CHATTY, WATCHED):
            for params in _PARAMS:
                whole = count(manner, seconds, params).whole
                rows.append(_life(duration, manner, params, whole))
    rows.append(_life("1 h", ELSEWHERE, "small", count(ELSEWHERE, 3600, "small").whole))
    head = ["Runs for", "It is", "Parameters", "Write units", "Read units", "SQS", "1,000 of them"]
    return _table(head, rows)


def _step(name: str, usage: Usage) -> list[str]:
    names = [f"{calls} {_camel(call)}" if calls > 1 else _camel(call) for call, calls in usage.calls.items()]
    counted = [usage.units["row and items"], usage.units["listing"], usage.units["checks"]]
    calls = str(sum(usage.calls.values())) if name.startswith("**") else ", ".join(names)
    return [name, calls, *map(_number, counted), f"**{_number(usage.writes)}**", _number(usage.reads)]


def _part(name: str, params: str, usage: Usage) -> list[str]:
    numbers = [_number(usage.writes), _number(usage.reads), _number(usage.requests)]
    return [name, params, *numbers, _dollars(usage)]


def _life(duration: str, manner: Manner, params: str, usage: Usage) -> list[str]:
    numbers = [_number(usage.writes), _number(usage.reads), _number(usage.requests)]
    return [duration, manner.name, params, *numbers, _dollars(usage)]


def _dollars(usage: Usage) -> str:
    dollars = usage.dollars * 1000
    return f"${dollars:.4f}" if dollars < 1 else f"${dollars:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def _number(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _minus(later: Counter[str], earlier: Counter[str]) -> Counter[str]:
    return Counter({name: later[name] - earlier[name] for name in later if later[name] != earlier[name]})


TABLES: Final = {"steps": steps_table, "chunks": chunks_table, "parts": parts_table, "lives": lives_table}


def block(name: str) -> re.Pattern[str]:
    """Return what finds a table in the page."""
    return re.compile(rf"(<!-- counted: {name} -->\n\n)(.*?)\n\n<!-- end -->", re.DOTALL)


def main() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        found = block(name).search(text)
        if not found:
            sys.exit(f"{PAGE.name} has no place for {name}")
        text = f"{text[: found.start(2)]}{table()}{text[found.end(2) :]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
