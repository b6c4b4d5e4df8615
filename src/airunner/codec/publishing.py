"""Calls that bring events of an attempt, to and from the messages of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.building import refusing
from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.requests import ReleaseRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent, Event


@refusing
def release_to_pb(request: ReleaseRequest) -> pb.ReleaseJobRequest:
    """Return the message of an attempt given back."""
    return pb.ReleaseJobRequest(
        task_token=request.task_token,
        delay_seconds=request.delay_seconds,
        unstarted=request.unstarted,
        events=map(event_to_packed_pb, request.events),
        error_message=request.error,
    )


def release_from_pb(message: pb.ReleaseJobRequest, now: int) -> tuple[ReleaseRequest, list[EncodedEvent]]:
    """Return an attempt given back, and its last events, checked and encoded; `now` dates those without."""
    release = ReleaseRequest(
        task_token=message.task_token,
        delay_seconds=message.delay_seconds,
        unstarted=message.unstarted,
        error=message.error_message,
    )
    return release, admit_events(message.events, now)


@refusing
def publish_to_pb(task_token: str, events: Sequence[Event]) -> pb.PublishJobEventBatchRequest:
    """Return the message of events to append."""
    return pb.PublishJobEventBatchRequest(task_token=task_token, events=map(event_to_packed_pb, events))


def publish_from_pb(
    message: pb.PublishJobEventBatchRequest | pb.PublishJobEventsRequest, now: int
) -> tuple[str, list[EncodedEvent]]:
    """Return a task token, and the events to append, checked and encoded; `now` dates those without."""
    return message.task_token, admit_events(message.events, now)
