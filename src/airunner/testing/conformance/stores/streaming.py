"""Streaming events: replay and live as one, from any position, through every attempt."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from airunner.codec.events import encode_event
from airunner.domain.errors import InvalidArgument, NotFound, ResourceExhausted
from airunner.domain.event import EncodedEvent, Event, EventType, Gap, Output, ProcessEnd, StreamType
from airunner.domain.job import JobState
from airunner.domain.requests import StreamRequest
from airunner.stores.records import AttemptKey
from airunner.testing.conditions import until
from airunner.testing.factories import (
    NOON,
    make_batch,
    make_end,
    make_error,
    make_line,
    make_request,
    make_start,
    make_success,
)

if TYPE_CHECKING:
    from airunner.domain.answers import DequeuedJob
    from airunner.testing.conformance.stores.backend import Api


def places(events: list[Event]) -> list[tuple[int, int]]:
    return [(event.attempt, event.sequence) for event in events]


def sequences(events: list[Event]) -> list[int]:
    return [event.sequence for event in events]


async def two_attempts(api: Api) -> DequeuedJob:
    """Make a job with three events in its first attempt and two in its second, which is held."""
    first = await api.new_claim()
    await api.publish(first, make_batch(1, 3, at=NOON))
    await api.release(first)
    second = await api.claim()
    await api.publish(second, make_batch(1, 2, at=NOON + 1000))
    return second


class ReplayConformance:
    async def test_a_finished_job_is_replayed_line_by_line_to_its_end(self, api: Api) -> None:
        held = await api.new_claim()
        await api.complete(
            held, make_success(), make_start(1), make_batch(2, 51), make_batch(52, 60), make_end(61)
        )
        events = await api.read(StreamRequest(job_id=held.job.job_id))
        assert places(events) == [(1, sequence) for sequence in range(1, 62)]
        assert events[1].data == Output(b"line 2\n")
        assert isinstance(events[-1].data, ProcessEnd)

    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(b"\xff\xff\xff", id="no message"),
            pytest.param(b"", id="empty"),
            pytest.param(encode_event(make_batch(1, 3)).payload, id="of another place"),
            pytest.param(encode_event(make_batch(2, 4)).payload[:-7], id="cut"),
        ],
    )
    async def test_what_is_stored_and_cannot_be_read_is_a_gap(self, api: Api, payload: bytes) -> None:
        held = await api.new_claim()
        seen: list[Event] = []
        stream = asyncio.create_task(api.watch(StreamRequest(job_id=held.job.job_id), seen))
        await api.publish(held, make_line(1))
        damaged = EncodedEvent(2, 4, NOON, NOON, EventType.OUTPUT_BATCH, payload)
        key = AttemptKey(held.job.job_id, held.job.attempt)
        await api.services.store.append_events(key, [damaged], api.clock.now())
        await api.publish(held, make_line(5))
        await api.complete(held)
        await stream
        assert sequences(seen) == [1, 2, 5]
        gap = seen[1].data
        assert isinstance(gap, Gap)
        assert (gap.first_sequence, gap.last_sequence) == (2, 4)
        assert sequences(await api.read(StreamRequest(job_id=held.job.job_id, from_sequence=5))) == [5]

    async def test_more_than_a_page_of_events_is_replayed(self, api: Api) -> None:
        held = await api.new_claim()
        for first in range(1, 401, 4):
            await api.publish(held, *(make_line(sequence) for sequence in range(first, first + 4)))
        await api.complete(held)
        assert sequences(await api.read(StreamRequest(job_id=held.job.job_id))) == list(range(1, 401))

    @pytest.mark.parametrize(
        "from_sequence", [1, 2, 25, 30, 31, 32, 75, 76, 100, 125, 126, 150, 151, 10**12 - 1]
    )
    async def test_replay_begins_at_any_sequence_of_batches_of_any_size(
        self, api: Api, from_sequence: int
    ) -> None:
        held = await api.new_claim()
        for first, last in ((1, 30), (31, 75), (76, 125), (126, 150)):
            await api.publish(held, make_batch(first, last))
        await api.complete(held)
        request = StreamRequest(job_id=held.job.job_id, from_sequence=from_sequence)
        assert sequences(await api.read(request)) == list(range(from_sequence, 151))[:150]

    async def test_old_single_events_and_batches_are_mixed_correctly(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_line(1), make_line(2), make_batch(3, 5), make_line(6), make_batch(7, 9))
        request = StreamRequest(job_id=held.job.job_id, from_sequence=2, follow=False)
        assert sequences(await api.read(request)) == list(range(2, 10))

    async def test_a_replay_from_inside_a_gap_begins_with_the_gap(self, api: Api) -> None:
        held = await api.new_claim()
        gap = Event(sequence=2, timestamp=NOON, data=Gap(first_sequence=2, last_sequence=9, reason="lost"))
        await api.publish(held, make_line(1), gap, make_line(10))
        request = StreamRequest(job_id=held.job.job_id, from_sequence=5, follow=False)
        assert sequences(await api.read(request)) == [2, 10]

    async def test_from_timestamp_begins_at_the_first_event_at_or_after_it(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 4, timestamps=[NOON, NOON + 10, NOON + 20, NOON + 20]))
        await api.publish(held, make_batch(5, 6, at=NOON + 30))
        for at, expected in (
            (1, 1),
            (NOON, 1),
            (NOON + 1, 2),
            (NOON + 20, 3),
            (NOON + 21, 5),
            (NOON + 31, 7),
        ):
            request = StreamRequest(job_id=held.job.job_id, from_timestamp=at, follow=False)
            assert sequences(await api.read(request)) == list(range(expected, 7))

    async def test_a_clock_that_was_set_back_between_publishes_hides_and_reorders_nothing(
        self, api: Api
    ) -> None:
        held = await api.new_claim()
        for first, at in ((1, NOON), (3, NOON + 20), (5, NOON - 3_600_000), (7, NOON + 30)):
            await api.publish(held, make_batch(first, first + 1, at=at))
        events = await api.read(StreamRequest(job_id=held.job.job_id, follow=False))
        shown = [NOON, NOON, NOON + 20, NOON + 20, NOON + 20, NOON + 20, NOON + 30, NOON + 30]
        assert [event.timestamp for event in events] == shown
        for at, expected in ((NOON + 1, 3), (NOON + 20, 3), (NOON + 21, 7)):
            request = StreamRequest(job_id=held.job.job_id, from_timestamp=at, follow=False)
            assert sequences(await api.read(request)) == list(range(expected, 9))

    async def test_all_given_conditions_must_hold(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_start(1), make_batch(2, 4, at=NOON + 5), make_error(5, at=NOON + 9))
        request = StreamRequest(
            job_id=held.job.job_id,
            from_sequence=3,
            from_timestamp=NOON + 1,
            event_filter=frozenset({EventType.OUTPUT_DATA}),
            attempt=1,
            follow=False,
        )
        assert sequences(await api.read(request)) == [3, 4]

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (set(), [1, 2, 3, 4, 5, 6]),
            ({EventType.OUTPUT_DATA}, [2, 3, 4]),
            ({EventType.OUTPUT_BATCH}, [2, 3, 4]),
            ({EventType.PROCESS_START, EventType.PROCESS_END}, [1, 6]),
            ({EventType.PROCESS_ERROR, EventType.OUTPUT_BATCH}, [2, 3, 4, 5]),
            ({EventType.GAP}, []),
        ],
    )
    async def test_a_filter(self, api: Api, wanted: set[EventType], expected: list[int]) -> None:
        held = await api.new_claim()
        await api.publish(held, make_start(1), make_batch(2, 3), make_line(4), make_error(5), make_end(6))
        await api.complete(held)
        request = StreamRequest(job_id=held.job.job_id, event_filter=frozenset(wanted))
        assert sequences(await api.read(request)) == expected

    async def test_every_cursor_resumes_exactly_behind_its_event(self, api: Api) -> None:
        held = await two_attempts(api)
        await api.complete(held)
        everything = await api.read(StreamRequest(job_id=held.job.job_id))
        for index, event in enumerate(everything):
            rest = await api.read(StreamRequest(job_id=held.job.job_id, cursor=event.cursor))
            assert rest == everything[index + 1 :]

    async def test_without_a_position_every_attempt_is_shown_in_order(self, api: Api) -> None:
        held = await two_attempts(api)
        assert await api.stored(held.job.job_id) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]

    async def test_from_sequence_applies_to_the_current_attempt(self, api: Api) -> None:
        held = await two_attempts(api)
        request = StreamRequest(job_id=held.job.job_id, from_sequence=2, follow=False)
        assert places(await api.read(request)) == [(2, 2)]

    async def test_one_attempt_can_be_shown_alone(self, api: Api) -> None:
        held = await two_attempts(api)
        first = await api.read(StreamRequest(job_id=held.job.job_id, attempt=1))
        assert places(first) == [(1, 1), (1, 2), (1, 3)]
        part = StreamRequest(job_id=held.job.job_id, attempt=1, from_sequence=3)
        assert places(await api.read(part)) == [(1, 3)]
        second = StreamRequest(job_id=held.job.job_id, attempt=2, follow=False)
        assert places(await api.read(second)) == [(2, 1), (2, 2)]

    async def test_a_job_without_events(self, api: Api) -> None:
        job_id = await api.enqueue()
        assert await api.read(StreamRequest(job_id=job_id, follow=False)) == []
        await api.jobs.cancel_job(job_id)
        assert await api.read(StreamRequest(job_id=job_id)) == []

    @pytest.mark.parametrize("attempt", [0, 1])
    async def test_an_unknown_job_is_not_found(self, api: Api, attempt: int) -> None:
        with pytest.raises(NotFound):
            await api.read(StreamRequest(job_id=str(uuid.uuid4()), attempt=attempt))

    @pytest.mark.parametrize(
        "request_",
        [
            StreamRequest(job_id="67890"),
            StreamRequest(job_id=""),
            StreamRequest(job_id=str(uuid.uuid4()), from_sequence=-1),
            StreamRequest(job_id=str(uuid.uuid4()), from_sequence=10**12),
            StreamRequest(job_id=str(uuid.uuid4()), from_timestamp=-1),
            StreamRequest(job_id=str(uuid.uuid4()), attempt=-1),
            StreamRequest(job_id=str(uuid.uuid4()), cursor="not ours"),
        ],
    )
    async def test_what_is_out_of_range_is_refused(self, api: Api, request_: StreamRequest) -> None:
        with pytest.raises(InvalidArgument):
            await api.read(request_)


class LiveConformance:
    async def test_a_stream_shows_what_is_stored_then_what_comes_then_ends(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        seen: list[Event] = []
        stream = await api.started(api.watch(StreamRequest(job_id=held.job.job_id), seen))
        await until(lambda: len(seen) == 3)
        await api.publish(held, make_line(4))
        await until(lambda: len(seen) == 4)
        await api.publish(held, make_batch(5, 6))
        await until(lambda: len(seen) == 6)
        await api.complete(held, make_success(), make_end(7))
        await stream
        assert sequences(seen) == list(range(1, 8))

    async def test_nothing_is_lost_or_repeated_between_replay_and_live(self, api: Api) -> None:
        held = await api.new_claim()
        seen: list[list[Event]] = [[] for _ in range(5)]
        streams = []
        for number in range(100):
            if number % 20 == 5:
                request = StreamRequest(job_id=held.job.job_id)
                streams.append(asyncio.create_task(api.watch(request, seen[number // 20])))
            await api.publish(held, make_line(number + 1))
        await api.complete(held)
        await asyncio.gather(*streams)
        assert [sequences(events) for events in seen] == [list(range(1, 101))] * 5

    async def test_a_job_can_be_watched_before_it_begins(self, api: Api) -> None:
        job_id = await api.enqueue()
        seen: list[Event] = []
        stream = await api.started(api.watch(StreamRequest(job_id=job_id, from_sequence=2), seen))
        held = await api.claim()
        await api.complete(held, make_success(), make_batch(1, 3))
        await stream
        assert places(seen) == [(1, 2), (1, 3)]

    async def test_a_stream_follows_into_the_next_attempt(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        seen: list[Event] = []
        stream = await api.started(api.watch(StreamRequest(job_id=held.job.job_id, from_sequence=3), seen))
        await api.release(held)
        again = await api.claim()
        await api.publish(again, make_batch(1, 2))
        await api.complete(again)
        await stream
        assert places(seen) == [(1, 3), (2, 1), (2, 2)]

    async def test_the_stream_of_one_attempt_ends_with_it(self, api: Api) -> None:
        held = await api.new_claim()
        seen: list[Event] = []
        stream = await api.started(api.watch(StreamRequest(job_id=held.job.job_id, attempt=1), seen))
        await api.release(held, make_batch(1, 2))
        await stream
        assert places(seen) == [(1, 1), (1, 2)]

    async def test_a_stream_ends_when_the_job_is_cancelled(self, api: Api) -> None:
        job_id = await api.enqueue()
        stream = await api.started(api.read(StreamRequest(job_id=job_id)))
        await api.jobs.cancel_job(job_id)
        assert await stream == []

    async def test_a_stream_ends_when_the_job_is_lost(self, api: Api) -> None:
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        await api.publish(held, make_line(1))
        stream = await api.started(api.read(StreamRequest(job_id=held.job.job_id)))
        await api.lapse(10)
        assert sequences(await stream) == [1]
        assert (await api.job(held)).state is JobState.FAILED

    async def test_a_stream_that_only_wants_the_end_is_told_of_it(self, api: Api) -> None:
        held = await api.new_claim()
        wanted = frozenset({EventType.PROCESS_END})
        seen: list[Event] = []
        stream = await api.started(
            api.watch(StreamRequest(job_id=held.job.job_id, event_filter=wanted), seen)
        )
        await api.publish(held, make_batch(1, 50))
        await api.complete(held, make_success(), make_end(51))
        await stream
        assert sequences(seen) == [51]

    async def test_without_following_a_stream_ends_with_what_is_stored(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3, at=NOON), make_line(4, stream=StreamType.STDERR))
        assert len(await api.read(StreamRequest(job_id=held.job.job_id, follow=False))) == 4
        assert (await api.job(held)).state is JobState.RUNNING

    async def test_publishers_and_holders_learn_whether_somebody_watches(self, api: Api) -> None:
        held = await api.new_claim()
        assert not (await api.publish(held, make_line(1))).watched
        stream = await api.started(api.read(StreamRequest(job_id=held.job.job_id)))
        assert (await api.publish(held, make_line(2))).watched
        assert (await api.beat(held)).watched
        stream.cancel()
        await asyncio.wait([stream])
        await until(lambda: api.services.watchers.streams == 0)
        assert not (await api.beat(held)).watched

    async def test_ten_streams_of_a_job_are_enough(self, api: Api) -> None:
        job_id = await api.enqueue()
        request = StreamRequest(job_id=job_id)
        streams = [await api.started(api.read(request)) for _ in range(10)]
        with pytest.raises(ResourceExhausted):
            await api.read(request)
        other = await api.enqueue()
        assert await api.read(StreamRequest(job_id=other, follow=False)) == []
        streams[0].cancel()
        await asyncio.wait([streams[0]])
        await until(lambda: api.services.watchers.streams == 9)
        streams[0] = await api.started(api.read(request))
        await api.jobs.cancel_job(job_id)
        assert await asyncio.gather(*streams) == [[]] * 10
