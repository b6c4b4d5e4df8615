"""Which hop is broken, from what was seen of an item: all that a real stack shows only at rare moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airunner.generation.diagnosis.hops import ItemProgress, Observation, QueueLook, judge

DONE = ItemProgress(
    outbox_state="dispatched",
    reason="",
    is_claimed=False,
    relays_waiting=0,
    state="done",
    code="",
    error="",
    last_error="",
    attempts=1,
    images=0,
    created_at=100.0,
    dispatched_at=100.25,
    started_at=101.0,
    finished_at=103.0,
)
SENT = replace(DONE, state="queued", attempts=0, started_at=None, finished_at=None)
PENDING = replace(SENT, outbox_state="pending", dispatched_at=None)
CLAIMED = replace(PENDING, is_claimed=True)
RUNNING = replace(DONE, state="running", finished_at=None)


def seen(progress: ItemProgress = DONE, **more: Any) -> Observation:
    told: dict[str, Any] = {"heard_at": 103.125, "told_at": 103.5, "is_stream_over": True, **more}
    return Observation(progress=progress, handler="paint", **told)


def test_each_hop_has_its_time_by_one_clock() -> None:
    hops = judge(seen())
    assert [(hop.name.value, hop.seconds) for hop in hops] == [
        ("relay", 0.25),
        ("queue", 0.75),
        ("worker", 2.0),
        ("notify", 0.125),
        ("sse", 0.5),
    ]
    assert all(hop.is_ok for hop in hops)


def test_no_time_is_less_than_none() -> None:
    """A worker may begin before the relay has marked the row, and clocks are known to within a moment."""
    hops = judge(seen(replace(DONE, dispatched_at=101.5), heard_at=102.9999))
    assert [hop.seconds for hop in hops][:2] == [1.5, 0.0]
    assert hops[3].seconds == 0.0
    unmarked = judge(seen(replace(DONE, outbox_state="pending", dispatched_at=None)))
    assert all(hop.is_ok for hop in unmarked)


@pytest.mark.parametrize(
    ("observation", "hop", "telling"),
    [
        (seen(PENDING), "relay", "no relay has claimed the row"),
        (seen(PENDING, queue=QueueLook()), "relay", "no relay has claimed the row"),
        # That this process may not ask SQS says nothing about the relay.
        (seen(PENDING, queue=QueueLook(trouble="no credentials")), "relay", "no relay has claimed the row"),
        (seen(CLAIMED), "relay", "it died, or its call hangs"),
        (seen(CLAIMED, queue=QueueLook(trouble="SQS does not answer")), "queue", "SQS does not answer"),
        (seen(PENDING, queue=QueueLook(is_missing=True)), "queue", "no such queue"),
        (seen(PENDING, has_waiting_relay=True), "queue", "outbox.queue_missing"),
        (seen(CLAIMED, has_waiting_relay=True), "queue", "outbox.queue_missing"),
        (seen(replace(PENDING, reason="too large")), "queue", "too large"),
        (seen(replace(PENDING, outbox_state="parked", reason="too large")), "queue", "outbox retry"),
        (seen(SENT, queue=QueueLook(is_missing=True)), "queue", "no such queue"),
        (seen(SENT, queue=QueueLook(visible=3)), "worker", "3 messages wait"),
        (seen(SENT, queue=QueueLook()), "worker", "the queue is empty"),
        (seen(SENT, queue=QueueLook(in_flight=1)), "worker", "no worker has begun"),
        (seen(SENT, queue=QueueLook(trouble="no credentials")), "worker", "no worker has begun"),
        (seen(SENT), "worker", "no worker has begun"),
        (seen(RUNNING), "worker", "there is no verdict"),
        (seen(replace(RUNNING, last_error="OSError: away")), "worker", "OSError: away"),
        (seen(replace(DONE, state="failed", code="lost")), "worker", "lost: no reason given"),
        (seen(replace(DONE, images=2), outputs=3), "worker", "3 outputs and made 2 images"),
        (seen(heard_at=None), "notify", "postgres.listen_dsn"),
        (seen(told_at=None, is_stream_over=False), "sse", "is a proxy buffering"),
        (seen(is_stream_over=False), "sse", "no 'end'"),
        (seen(stream_trouble="it broke"), "sse", "it broke"),
        (seen(told_at=107.5), "sse", "4.5 s late"),
        (seen(is_server_listening=False), "sse", "no server listens"),
    ],
)
def test_the_first_hop_that_is_broken_is_named_with_what_to_look_at(
    observation: Observation, hop: str, telling: str
) -> None:
    *before, last = judge(observation)
    assert all(passed.is_ok for passed in before)
    assert (last.name.value, last.is_ok) == (hop, False)
    assert telling in last.text
