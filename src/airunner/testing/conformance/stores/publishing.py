"""Publishing events: contiguous, idempotent, validated before anything is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airunner.domain.errors import InvalidArgument, NotFound, SequenceMismatch
from airunner.domain.event import Event, Gap, Output, OutputBatch, Progress, StreamType
from airunner.domain.requests import StreamRequest
from airunner.testing.factories import (
    NOON,
    make_batch,
    make_end,
    make_error,
    make_line,
    make_start,
    make_success,
)

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api

BATCH = make_batch(1, 3)


def bad_batch(**changes: Any) -> Event:
    assert isinstance(BATCH.data, OutputBatch)
    return replace(BATCH, data=replace(BATCH.data, **changes))


class PublishConformance:
    async def test_times_that_run_backwards_within_one_publish_are_refused(self, api: Api) -> None:
        held = await api.new_claim()
        backwards = (make_line(1, at=NOON), make_line(2, at=NOON - 1))
        for call in (api.publish, api.release):
            with pytest.raises(InvalidArgument):
                await call(held, *backwards)
        with pytest.raises(InvalidArgument):
            await api.complete(held, make_success(), *backwards)
        assert await api.stored(held.job.job_id) == []
        await api.publish(held, backwards[0])
        await api.publish(held, backwards[1])
        assert await api.stored(held.job.job_id) == [(1, 1), (1, 2)]

    async def test_events_are_appended_and_the_next_sequence_is_told(self, api: Api) -> None:
        held = await api.new_claim()
        assert (await api.publish(held, make_start(1))).next_sequence == 2
        assert (await api.publish(held, make_batch(2, 51))).next_sequence == 52
        answer = await api.publish(held, make_line(52), make_end(53))
        assert (answer.next_sequence, answer.cancel_requested, answer.watched) == (54, False, False)
        assert await api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 54)]
        assert (await api.job(held)).life.last_sequence == 53

    async def test_every_kind_of_event_comes_back_as_it_was(self, api: Api) -> None:
        held = await api.new_claim()
        events = [
            make_start(1, at=NOON + 1),
            make_line(2, at=NOON + 2, stream=StreamType.STDERR),
            make_error(3, at=NOON + 3, message="no such file"),
            Event(sequence=4, timestamp=NOON + 4, data=Gap(first_sequence=4, last_sequence=9, reason="lost")),
            Event(sequence=10, timestamp=NOON + 5, data=Progress(done=1, total=2, message="half")),
            Event(sequence=11, timestamp=NOON + 6, data=Output(bytes(range(256)))),
            make_end(12, at=NOON + 7, exit_code=-9),
        ]
        await api.publish(held, *events)
        read = await api.read(StreamRequest(job_id=held.job.job_id, follow=False))
        assert [replace(event, attempt=0, cursor="") for event in read] == events

    async def test_a_repeat_changes_nothing(self, api: Api) -> None:
        held = await api.new_claim()
        first = await api.publish(held, make_batch(1, 50))
        assert await api.publish(held, make_batch(1, 50)) == first
        await api.publish(held, make_batch(51, 60))
        assert (await api.publish(held, make_batch(1, 50))).next_sequence == 61
        assert len(await api.stored(held.job.job_id)) == 60

    async def test_a_repeat_with_more_behind_it_appends_the_rest(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 50))
        assert (await api.publish(held, make_batch(1, 50), make_batch(51, 60))).next_sequence == 61
        assert len(await api.stored(held.job.job_id)) == 60

    @pytest.mark.parametrize(
        ("events", "expected"),
        [
            ((make_line(5),), 4),
            ((make_batch(3, 6),), 4),
            ((make_batch(2, 5), make_line(6)), 4),
            ((make_line(4), make_line(6)), 5),
        ],
        ids=["gap", "overlap", "overlap before", "gap behind"],
    )
    async def test_a_gap_or_overlap_is_refused_with_the_expected_sequence(
        self, api: Api, events: tuple[Event, ...], expected: int
    ) -> None:
        held = await api.new_claim()
        await api.publish(held, BATCH)
        with pytest.raises(SequenceMismatch) as refused:
            await api.publish(held, *events)
        assert refused.value.expected == expected
        # All or nothing: of a refused call no event is stored.
        assert len(await api.stored(held.job.job_id)) == 3
        assert (await api.publish(held, make_line(4))).next_sequence == 5

    @pytest.mark.parametrize(
        "events",
        [
            (make_line(2), make_line(1)),
            (make_line(1), make_line(1)),
            (make_batch(1, 5), make_line(3)),
            (make_batch(1, 5), make_batch(5, 8)),
        ],
        ids=["falling", "twice", "inside a batch", "overlapping batches"],
    )
    async def test_sequences_of_one_call_must_ascend(self, api: Api, events: tuple[Event, ...]) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.publish(held, *events)
        assert await api.stored(held.job.job_id) == []

    @pytest.mark.parametrize(
        "event",
        [
            make_line(0),
            make_line(-1),
            make_line(10**12),
            bad_batch(end_sequence=4),
            bad_batch(end_sequence=2),
            bad_batch(start_sequence=2),
            bad_batch(outputs=()),
            bad_batch(timestamps=(NOON,)),
            bad_batch(timestamps=(NOON, NOON - 1, NOON)),
            make_batch(1, 51),
            Event(sequence=1, timestamp=NOON, data=Output(b"x" * 350 * 1024)),
            Event(sequence=1, timestamp=NOON, data=Gap(first_sequence=2, last_sequence=3, reason="")),
            Event(sequence=2, timestamp=NOON, data=Gap(first_sequence=2, last_sequence=1, reason="")),
        ],
    )
    async def test_a_malformed_event_is_refused(self, api: Api, event: Event) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.publish(held, event)
        assert (await api.job(held)).life.last_sequence == 0

    async def test_the_limits_themselves_are_accepted(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 50))
        large = Event(sequence=51, timestamp=NOON, data=Output(b"x" * (350 * 1024 - 100)))
        assert (await api.publish(held, large)).next_sequence == 52

    async def test_shape_is_checked_before_position(self, api: Api) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.publish(held, make_batch(100, 151))

    async def test_every_attempt_has_sequences_of_its_own(self, api: Api) -> None:
        first = await api.new_claim()
        await api.publish(first, make_batch(1, 3))
        await api.release(first)
        second = await api.claim()
        assert second.job.life.last_sequence == 0
        with pytest.raises(SequenceMismatch):
            await api.publish(second, make_line(4))
        await api.publish(second, make_batch(1, 2))
        assert await api.stored(first.job.job_id) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]

    async def test_nothing_can_be_published_after_the_end(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_line(1))
        await api.complete(held)
        with pytest.raises(NotFound):
            await api.publish(held, make_line(2))
        assert len(await api.stored(held.job.job_id)) == 1
