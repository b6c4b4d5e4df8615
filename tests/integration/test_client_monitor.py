"""The monitor over connections that break: what it yields is what an undisturbed stream yields."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest

from airunner.client import (
    AsyncClient,
    CompleteRequest,
    ConnectionState,
    ReleaseRequest,
    StreamOptions,
    StreamRequest,
)
from airunner.codec.streams import batch_to_pb
from airunner.domain.clock import SystemClock
from airunner.domain.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from airunner.domain.event import EncodedEvent, Event, EventType, Gap, Position
from airunner.domain.job import JobParams
from airunner.domain.retry import RetryPolicy
from airunner.rpc import joined_stream
from airunner.services.composition import ServiceRules, Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import AttemptKey
from airunner.testing.conditions import until
from airunner.testing.factories import (
    NEVER_SECONDS,
    NOON,
    make_batch,
    make_end,
    make_error,
    make_line,
    make_services,
    make_start,
    make_success,
)
from tests.support.faulty_proxy import faulty_proxy, unused_url
from tests.support.serving import serve

QUEUE = "builds"
IMPATIENT = RetryPolicy(first_seconds=0.001, max_seconds=0.005)
FIRST_TRY = [make_start(), make_batch(2, 51), make_batch(52, 80), make_line(81), make_error(82)]
SECOND_TRY = [
    make_start(),
    make_batch(2, 40, timestamps=[NOON + 10 * n for n in range(39)]),
    make_batch(41, 90, at=NOON + 380, timestamps=()),
    make_line(91, at=NOON + 3000),
    make_batch(92, 141, at=NOON + 4000),
    Event(
        sequence=142,
        timestamp=NOON + 4001,
        data=Gap(first_sequence=142, last_sequence=150, reason="spool lost"),
    ),
    make_batch(151, 170, at=NOON + 5000),
    make_end(171, at=NOON + 6000),
]
REQUESTS: dict[str, StreamOptions] = {
    "all": {},
    "mid-batch": {"from_sequence": 60},
    "inside a gap": {"from_sequence": 145},
    "beyond the end": {"from_sequence": 1000},
    "first attempt": {"attempt": 1},
    "first attempt, mid-batch": {"attempt": 1, "from_sequence": 30},
    "cursor mid-batch": {"cursor": Position(1, 70).cursor},
    "cursor and sequence": {"cursor": Position(2, 100).cursor, "from_sequence": 50},
    "timestamp mid-batch": {"from_timestamp": NOON + 205},
    "timestamp in simulated ones": {"from_timestamp": NOON + 1000, "attempt": 2},
    "output": {"event_filter": frozenset({EventType.OUTPUT_DATA})},
    "no output": {"event_filter": frozenset({EventType.PROCESS_START, EventType.GAP})},
    "all conditions": {
        "attempt": 2,
        "from_sequence": 20,
        "from_timestamp": NOON + 300,
        "event_filter": frozenset({EventType.OUTPUT_BATCH, EventType.PROCESS_END}),
    },
    "not followed": {"follow": False},
}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    rules = ServiceRules(max_streams_per_job=200, maintenance_interval_seconds=NEVER_SECONDS)
    async with make_services(MemoryStore(clock), clock, rules) as services:
        yield services


async def begin(client: AsyncClient) -> tuple[str, str]:
    made = await client.enqueue(JobParams(command="make"), queue=QUEUE)
    (held,) = await client.dequeue(QUEUE)
    return made.job_id, held.task_token


async def finish(client: AsyncClient, token: str) -> None:
    await client.complete(CompleteRequest(task_token=token, result=make_success()))


async def two_attempts(client: AsyncClient) -> str:
    job_id, token = await begin(client)
    await client.publish_events(token, FIRST_TRY)
    await client.release_job(ReleaseRequest(task_token=token))
    (held,) = await client.dequeue(QUEUE)
    await client.publish_events(held.task_token, SECOND_TRY)
    await finish(client, held.task_token)
    return job_id


async def undisturbed(services: Services, request: StreamRequest) -> list[Event]:
    return [event async for event in services.events.stream_events(request)]


@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS.keys())
async def test_resets_at_random_points_change_nothing(services: Services, options: StreamOptions) -> None:
    draw = random.Random(repr(options))
    async with (
        serve(services) as url,
        faulty_proxy(url) as one,
        faulty_proxy(url) as two,
        AsyncClient(url) as direct,
        AsyncClient([one.url, two.url], retry=IMPATIENT) as client,
    ):
        request = StreamRequest(job_id=await two_attempts(direct), **options)
        expected = await undisturbed(services, request)
        for _ in range(5):
            one.answer_limit = two.answer_limit = lambda: draw.randrange(1, 3000)
            seen = [event async for event in client.monitor(request)]
            assert seen == expected
        # A short answer may fit into what a connection carries; a long one breaks in each round.
        assert len(expected) < 150 or one.resets + two.resets >= 5


@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS.keys())
async def test_batches_survive_resets_whole_and_in_order(services: Services, options: StreamOptions) -> None:
    draw = random.Random(repr(options))
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        job_id = await two_attempts(direct)
        expected = await undisturbed(services, StreamRequest(job_id=job_id, **options))
        lists = [events async for events in direct.monitor_batches(job_id, **options)]
        assert [event for events in lists for event in events] == expected
        proxy.answer_limit = lambda: draw.randrange(1, 3000)
        batches = [batch async for batch in client.stream_batches(job_id, **options)]
        assert [batch.events()[-len(events) :] for batch, events in zip(batches, lists, strict=True)] == lists
        # Only the first one may have more than is wanted.
        assert [batch.events() for batch in batches[1:]] == lists[1:]


async def test_batches_of_a_live_job_are_followed_through_resets(services: Services) -> None:
    states: list[ConnectionState] = []
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        job_id, token = await begin(direct)
        stream = client.stream_batches(job_id, on_state=lambda state, _: states.append(state))
        seen = []
        for first in range(1, 200, 20):
            await direct.publish_events(token, [make_batch(first, first + 19)])
            seen.append(await anext(stream))
            proxy.reset_all()
        await finish(direct, token)
        async with asyncio.timeout(30):
            assert [batch async for batch in stream] == []
    assert [batch.first_sequence for batch in seen] == list(range(1, 200, 20))
    assert states.count(ConnectionState.RECONNECTING) >= 9


@pytest.mark.parametrize("seed", range(3))
async def test_a_live_job_is_followed_through_resets(services: Services, seed: int) -> None:
    draw = random.Random(seed)
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        job_id, token = await begin(direct)
        seen: list[Event] = []

        async def watch() -> None:
            async for event in client.monitor(job_id, from_sequence=20):
                seen.append(event)  # noqa: PERF401  what was seen so far is looked at

        watching = asyncio.create_task(watch())
        for first in range(1, 600, 30):
            await direct.publish_events(token, [make_batch(first, first + 29)])
            if draw.random() < 0.7:
                await until(lambda: bool(seen))
                proxy.reset_all()
        await finish(direct, token)
        async with asyncio.timeout(30):
            await watching
        assert [event.sequence for event in seen] == list(range(20, 601))
        assert proxy.connections > 1


async def test_the_current_attempt_is_settled_at_the_call(services: Services) -> None:
    """The position asked for is beyond the first attempt; the second one is shown from its beginning."""
    async with serve(services) as url, AsyncClient(url) as client:
        job_id, token = await begin(client)
        await client.publish_events(token, [make_line(1)])
        watching = asyncio.create_task(collect(client, StreamRequest(job_id=job_id, from_sequence=10)))
        await until(lambda: services.watchers.streams == 1)
        await client.release_job(ReleaseRequest(task_token=token))
        (held,) = await client.dequeue(QUEUE)
        await client.publish_events(held.task_token, [make_batch(1, 20)])
        await finish(client, held.task_token)
        assert [(event.attempt, event.sequence) for event in await watching] == [
            (2, sequence) for sequence in range(1, 21)
        ]


async def test_a_reset_in_the_next_attempt_skips_nothing_of_it(services: Services) -> None:
    """Where the watcher began counts for the attempt in which it began: no reconnection asks for it again."""
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        job_id, token = await begin(direct)
        await direct.publish_events(token, [make_batch(1, 30)])
        seen: list[tuple[int, int]] = []

        async def watch() -> None:
            async for event in client.monitor(job_id, from_sequence=20):
                seen.append((event.attempt, event.sequence))  # noqa: PERF401  what was seen so far is looked at

        watching = asyncio.create_task(watch())
        await until(lambda: len(seen) == 11)
        await direct.release_job(ReleaseRequest(task_token=token))
        (held,) = await direct.dequeue(QUEUE)
        await direct.publish_events(held.task_token, [make_line(1)])
        await until(lambda: len(seen) == 12)
        proxy.reset_all()
        await direct.publish_events(held.task_token, [make_line(sequence) for sequence in range(2, 26)])
        await finish(direct, held.task_token)
        async with asyncio.timeout(30):
            await watching
        first = [(1, sequence) for sequence in range(20, 31)]
        assert seen == first + [(2, sequence) for sequence in range(1, 26)]
        assert proxy.connections > 1


async def test_a_reset_before_the_first_event_skips_nothing_either(services: Services) -> None:
    """Where the watcher began is known as soon as it is connected, though nothing was shown yet."""
    states: list[ConnectionState] = []
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        job_id, token = await begin(direct)
        await direct.publish_events(token, [make_line(1)])
        stream = client.monitor(job_id, from_sequence=10, on_state=lambda state, _: states.append(state))
        first = asyncio.create_task(anext(stream))
        await until(lambda: states == [ConnectionState.CONNECTED])
        proxy.answer_limit = lambda: 0
        proxy.reset_all()
        await direct.release_job(ReleaseRequest(task_token=token))
        (held,) = await direct.dequeue(QUEUE)
        await direct.publish_events(held.task_token, [make_batch(1, 20)])
        proxy.answer_limit = lambda: None
        async with asyncio.timeout(30):
            event = await first
        assert (event.attempt, event.sequence) == (2, 1)
        await stream.aclose()


async def test_a_server_that_does_not_tell_where_it_begins_is_asked_for_the_job(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is older does not."""
    monkeypatch.setattr(joined_stream, "start_to_pb", lambda _: batch_to_pb(None, packed=True))
    async with serve(services) as url, AsyncClient(url) as client:
        request = StreamRequest(job_id=await two_attempts(client), from_sequence=60)
        assert await collect(client, request) == await undisturbed(services, request)


async def test_every_cursor_resumes_after_its_event(services: Services) -> None:
    async with serve(services) as url, AsyncClient(url) as client:
        job_id = await two_attempts(client)
        whole = await collect(client, StreamRequest(job_id=job_id))
        assert all(
            Position.from_cursor(a.cursor) < Position.from_cursor(b.cursor) for a, b in pairwise(whole)
        )
        for index in range(0, len(whole), 37):
            rest = await collect(client, StreamRequest(job_id=job_id, cursor=whole[index].cursor))
            assert [event.cursor for event in rest] == [event.cursor for event in whole[index + 1 :]]


async def test_a_batch_that_cannot_be_decoded_is_a_gap(services: Services) -> None:
    async with serve(services) as url, AsyncClient(url) as client:
        job_id, token = await begin(client)
        broken = EncodedEvent(
            first_sequence=1,
            last_sequence=50,
            first_timestamp=NOON,
            last_timestamp=NOON,
            event_type=EventType.OUTPUT_BATCH,
            payload=b"\xff\xff",
        )
        await services.store.append_events(AttemptKey(job_id=job_id, attempt=1), [broken], NOON)
        await client.publish_events(token, [make_line(51)])
        await finish(client, token)
        gap, line = await collect(client, StreamRequest(job_id=job_id, from_timestamp=NOON))
        assert isinstance(gap.data, Gap)
        assert (gap.data.first_sequence, gap.last_sequence, gap.attempt) == (1, 50, 1)
        assert line.sequence == 51


async def test_silence_is_a_broken_connection(services: Services) -> None:
    states: list[tuple[ConnectionState, str]] = []
    async with (
        serve(services) as url,
        faulty_proxy(url) as mute,
        faulty_proxy(url) as well,
        AsyncClient(url) as direct,
        AsyncClient([mute.url, well.url], retry=IMPATIENT) as client,
    ):
        job_id, token = await begin(direct)
        await direct.publish_events(token, [make_line(1)])
        stream = client.monitor(
            job_id, silence_seconds=1, on_state=lambda state, reason: states.append((state, reason))
        )
        assert (await anext(stream)).sequence == 1
        mute.silent = True
        await direct.publish_events(token, [make_line(2)])
        assert (await anext(stream)).sequence == 2
        await stream.aclose()
        assert well.connections == 1
    assert [state for state, _ in states] == [
        ConnectionState.CONNECTED,
        ConnectionState.RECONNECTING,
        ConnectionState.CONNECTED,
    ]
    assert "silent" in states[1][1]


async def test_the_watch_is_given_up_in_time(services: Services) -> None:
    async with AsyncClient(unused_url(), retry=IMPATIENT) as client:
        with pytest.raises(Unavailable, match="cannot connect"):
            await anext(client.monitor("0" * 32, give_up_seconds=0.05))


async def test_the_watch_is_given_up_after_enough_tries(services: Services) -> None:
    three = RetryPolicy(attempts=3, max_seconds=0.01)
    async with (
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=three) as client,
    ):
        job_id, token = await begin(direct)
        await direct.publish_events(token, [make_line(1)])
        stream = client.monitor(job_id)
        await anext(stream)
        proxy.answer_limit = lambda: 0
        before = proxy.connections
        proxy.reset_all()
        await direct.publish_events(token, [make_line(2)])
        with pytest.raises(Unavailable, match="lost the connection"):
            await anext(stream)
        assert proxy.connections - before == 2


async def test_refusals_are_raised(services: Services) -> None:
    async with serve(services) as url, AsyncClient(url) as client:
        with pytest.raises(NotFound):
            await anext(client.monitor("0" * 32))
        with pytest.raises(InvalidArgument):
            await anext(client.monitor("0" * 32, cursor="nonsense"))
        with pytest.raises(NotFound):
            await anext(client.monitor("0" * 32, from_sequence=5))
        with pytest.raises(InvalidArgument, match="from_sequence"):
            await anext(client.monitor("0" * 32, from_sequence=-1))
        job_id, _ = await begin(client)
        services.watchers._max_streams = 0
        with pytest.raises(ResourceExhausted):
            await anext(client.monitor(job_id))
        with pytest.raises(ResourceExhausted):
            await anext(client.monitor(job_id, from_sequence=5))


async def test_a_stream_the_server_still_counts_does_not_end_the_watch(services: Services) -> None:
    async with serve(services) as url, faulty_proxy(url) as proxy, AsyncClient(url) as direct:
        job_id, token = await begin(direct)
        await direct.publish_events(token, [make_line(1)])
        async with AsyncClient(proxy.url, retry=IMPATIENT) as client:
            stream = client.monitor(job_id)
            await anext(stream)
            services.watchers._max_streams = 0
            before = proxy.connections
            proxy.reset_all()
            await direct.publish_events(token, [make_line(2)])
            following = asyncio.create_task(anext(stream))
            await until(lambda: proxy.connections > before)
            await until(lambda: services.watchers.streams == 0)
            services.watchers._max_streams = 1
            assert (await following).sequence == 2
            await stream.aclose()


async def collect(client: AsyncClient, request: StreamRequest) -> Sequence[Event]:
    async with asyncio.timeout(30):
        return [event async for event in client.stream_events(request)]
