"""What a server cannot read of its tables: it holds up nobody else, and a newer server may go on with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.domain.errors import InternalError, JobNotFound
from airunner.domain.event import Gap
from airunner.domain.job import JobParams, JobState
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.stores.aws.layout import Layout, queue_key
from airunner.stores.aws.upkeep import reconcile
from airunner.stores.records import ApiKey
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_batch, make_line, make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store

pytest_plugins = ("tests.support.aws",)

Changes = Mapping[str, Any]
NEWER_STATE = {"state": {"N": "17"}}
DAMAGES = {
    "a state of the future": NEWER_STATE,
    "broken execution settings": {"execution": {"B": b"\xff\xff\xff"}},
    "broken parameters": {"job_params": {"B": b"\xff\xff\xff"}},
    "a text for a number": {"attempt": {"S": "many"}},
    "a text for the parameters": {"job_params": {"S": "make"}},
    # Form 1, field 9: the kind of process.
    "a process of the future": {"job_params": {"B": b"\x48\x63"}},
    "a text for a map of execution settings": {"execution_config": {"S": "usual"}},
    "a number for a command": {"job_params": {"M": {"command": {"N": "1"}}}},
}
PURGED = 8 * 24 * 3600
each_damage = pytest.mark.parametrize("changes", list(DAMAGES.values()), ids=list(DAMAGES))


class Tables:
    """The tables of a store, as somebody else may write to them."""

    def __init__(self, dynamodb: Any, layout: Layout) -> None:
        self._dynamodb = dynamodb
        self._layout = layout

    async def write(self, key: str, changes: Changes) -> None:
        await self._update(self._layout.jobs_table, {"job_id": {"S": key}}, changes)

    async def write_event(self, job_id: str, sequence: int, changes: Changes) -> None:
        key = {"job_id": {"S": job_id}, "sequence": {"N": str(sequence)}}
        await self._update(self._layout.events_table, key, changes)

    async def read(self, key: str) -> dict[str, Any]:
        table = self._layout.jobs_table
        answer = await self._dynamodb.get_item(TableName=table, Key={"job_id": {"S": key}})
        return dict(answer["Item"])

    async def _update(self, table: str, key: dict[str, Any], changes: Changes) -> None:
        await self._dynamodb.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            ExpressionAttributeNames={f"#{name}": name for name in changes},
            ExpressionAttributeValues={f":{name}": value for name, value in changes.items()},
        )


@pytest.fixture
async def layout(borrow_layout: BorrowLayout) -> Layout:
    # Every pass of upkeep looks at each queue.
    borrowed = await borrow_layout()
    return replace(borrowed, queues={QUEUE: borrowed.queues[QUEUE]})


@pytest.fixture
async def tables(aws: StrictProxy, layout: Layout) -> AsyncIterator[Tables]:
    async with client("dynamodb", aws.url) as dynamodb:
        yield Tables(dynamodb, layout)


@pytest.fixture
async def api(aws: StrictProxy, layout: Layout) -> AsyncIterator[Api]:
    clock = ManualClock()
    async with make_services(make_store(aws.url, layout, clock), clock) as services:
        yield Api(jobs=services.jobs, events=services.events, clock=clock, services=services)


@each_damage
async def test_a_dequeue_passes_it_by(api: Api, tables: Tables, changes: Changes) -> None:
    bad, good = await api.enqueue_many(2)
    await tables.write(bad, changes)
    before = await tables.read(bad)
    held = [one for _ in range(3) for one in await api.dequeue(max_jobs=10)]
    assert [one.job.job_id for one in held] == [good]
    # It costs no try, and whoever can read it finds it as it was.
    assert await tables.read(bad) == before


async def test_alone_it_makes_no_dequeue_fail_and_keeps_its_message(
    api: Api, tables: Tables, aws: StrictProxy, emulator: EmulatorProcess
) -> None:
    (bad,) = await api.enqueue_many(1)
    await tables.write(bad, NEWER_STATE)
    assert await api.dequeue() == []
    waiting = await api.started(api.dequeue(wait_seconds=5))
    api.clock.advance(5)
    assert await waiting == []
    assert aws.counts.calls["DeleteMessageBatch"] == 0
    # A server that can read it, once its message shows again.
    await tables.write(bad, {"state": {"N": "1"}})
    emulator.advance(31)
    (held,) = await api.dequeue()
    assert (held.job.job_id, held.job.attempt) == (bad, 1)


async def test_parameters_beside_the_row_are_read_before_the_claim(api: Api, tables: Tables) -> None:
    params = JobParams(command="make", args=("x" * 5_000,))
    damages = [{"B": b"\xff\xff\xff"}, {"S": "{"}, {"S": "[]"}, {"S": '{"command": 1}'}, {"N": "1"}]
    bad = [await api.enqueue(make_request(params=params)) for _ in damages]
    for job_id, payload in zip(bad, damages, strict=True):
        await tables.write(f"params#{job_id}", {"payload": payload})
    assert await api.dequeue(max_jobs=10) == []
    for job_id in bad:
        job = await tables.read(job_id)
        assert (job["attempt"]["N"], job["state"]["N"]) == ("0", "1")
        with pytest.raises(InternalError):
            await api.jobs.get_job(job_id)


@each_damage
async def test_lists_go_without_it(api: Api, tables: Tables, changes: Changes) -> None:
    bad, good = await api.enqueue_many(2)
    await tables.write(bad, changes)
    # Where the row can be read, the job is shown without its parameters.
    listed = [(good, False), (bad, True)] if "job_params" in changes else [(good, False)]
    for query in (JobQuery(queue=QUEUE), JobQuery()):
        jobs = (await api.jobs.list_jobs(query)).jobs
        assert [(job.job_id, job.abridged) for job in jobs] == listed
    (queue,) = await api.jobs.list_queues()
    assert queue.scheduled in (1, 2)
    with pytest.raises(InternalError):
        await api.jobs.get_job(bad)
    if "job_params" in changes:
        cancelled = await api.jobs.cancel_job(bad)
        assert (cancelled.state, cancelled.abridged) == (JobState.CANCELLED, True)


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass look at one job of a shard: there are more that cannot be read."""
    monkeypatch.setattr(reconcile, "_AT_ONCE", 1)
    monkeypatch.setattr(reconcile, "_PAGES", 1)


@pytest.mark.usefixtures("small_passes")
async def test_upkeep_passes_it_by(api: Api, tables: Tables) -> None:
    bad = await api.enqueue_many(4)
    lost = await api.enqueue(make_request(max_attempts=1))
    claimed = [held for _ in range(3) for held in await api.dequeue(max_jobs=10)]
    assert {held.job.job_id for held in claimed} == {*bad, lost}
    for held in claimed:
        await api.beat(held)  # so that a lapse costs a try
    for job_id in bad:
        await tables.write(job_id, NEWER_STATE)
    before = [await tables.read(job_id) for job_id in bad]
    for _ in range(6):
        await api.lapse(60)
    assert (await api.jobs.get_job(lost)).state is JobState.FAILED
    assert [await tables.read(job_id) for job_id in bad] == before


@pytest.mark.usefixtures("small_passes")
async def test_purges_pass_it_by(api: Api, tables: Tables) -> None:
    bad = await api.enqueue_many(4)
    for held in [held for _ in range(3) for held in await api.dequeue(max_jobs=10)]:
        await api.complete(held)
    await api.advance(1)
    old = await api.new_claim()
    await api.complete(old)
    for job_id in bad:
        await tables.write(job_id, NEWER_STATE)
    for _ in range(6):
        await api.advance(PURGED)
    with pytest.raises(JobNotFound):
        await api.job(old)
    assert [(await tables.read(job_id))["state"] for job_id in bad] == [NEWER_STATE["state"]] * 4


async def test_it_is_counted_each_time_and_named_once_in_ten_minutes(api: Api, tables: Tables) -> None:
    bad = await api.enqueue()
    await tables.write(bad, NEWER_STATE)
    counted: list[tuple[float, tuple[str, ...]]] = []
    with structlog.testing.capture_logs() as logs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            telemetry.store_rows_unreadable, "add", lambda amount, *labels: counted.append((amount, labels))
        )
        for _ in range(3):
            await api.jobs.list_jobs(JobQuery(queue=QUEUE))
        api.clock.advance(600)
        await api.jobs.list_jobs(JobQuery(queue=QUEUE))
    named = [entry for entry in logs if entry["event"] == "store.row_unreadable"]
    assert [(entry["kind"], entry["key"]) for entry in named] == [("job", bad)] * 2
    assert counted == [(1, ("job",))] * 4


async def test_an_event_that_cannot_be_read_is_a_gap(api: Api, tables: Tables) -> None:
    held = await api.new_claim()
    await api.publish(held, make_line(1), make_batch(2, 4), make_line(5), make_line(6))
    await tables.write_event(held.job.job_id, 2, {"event_type": {"N": "99"}})
    odd = {"last_sequence": {"S": "five"}, "ttl": {"S": "never"}}
    await tables.write_event(held.job.job_id, 5, odd)
    events = await api.read(StreamRequest(job_id=held.job.job_id, follow=False))
    assert [(event.sequence, isinstance(event.data, Gap)) for event in events] == [
        (1, False),
        (2, True),
        (5, True),
        (6, False),
    ]
    gap = events[1].data
    assert isinstance(gap, Gap)
    assert (gap.first_sequence, gap.last_sequence) == (2, 4)


async def test_a_queue_and_a_key_that_cannot_be_read_hold_up_no_other(api: Api, tables: Tables) -> None:
    job_id = await api.enqueue()
    await tables.write(queue_key(QUEUE), {"paused": {"S": "until Monday"}})
    (queue,) = await api.jobs.list_queues()
    assert not queue.paused
    assert (await api.claim()).job.job_id == job_id
    store = api.services.store
    for key_id in ("one", "two"):
        await store.add_key(ApiKey(key_id=key_id, name="ci", secret_hash=b"", scopes=frozenset()))
    await tables.write("key#one", {"created_at": {"S": "yesterday"}})
    assert [key.key_id for key in await store.list_keys()] == ["two"]
    with pytest.raises(InternalError):
        await store.find_key("one")


async def test_it_keeps_no_other_from_being_recalled(api: Api, tables: Tables) -> None:
    await api.enqueue_many(3)
    held = [one.job.job_id for one in await api.dequeue(max_jobs=3)]
    shards = {job_id: int((await tables.read(job_id))["shard"]["N"]) for job_id in held}
    # The first that is found is the one that cannot be read.
    bad, *others = sorted(held, key=lambda job_id: shards[job_id])
    far = api.clock.now() + 100 * MAX_VISIBILITY_SECONDS * 1000
    for place, job_id in enumerate((bad, *others)):
        await tables.write(job_id, {"visible_until": {"N": str(far)}, "check_at": {"N": str(far + place)}})
    await tables.write(bad, {"attempt": {"S": "many"}})
    await api.services.maintenance.run_once()
    ends = [int((await tables.read(job_id))["visible_until"]["N"]) for job_id in (bad, *others)]
    assert [end == far for end in ends] == [True, False, False]
