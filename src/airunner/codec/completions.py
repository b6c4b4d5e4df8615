"""Completions to and from the messages of the wire. What many of one call have in common is mapped once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import read_result, result_to_pb
from airunner.codec.requests import refusing
from airunner.domain.requests import CompleteRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import JobResult


class CompletionWriter:
    """Writes the completions of one call. Those that share a result and events are copies of one message.

    Results and events are told apart by identity, so the requests must outlive the writer.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], pb.CompleteJobRequest] = {}

    def write(self, request: CompleteRequest) -> pb.CompleteJobRequest:
        """Return the message of a completion."""
        shared = id(request.result), id(request.events)
        written = self._written.get(shared)
        if written is None:
            message = self._written[shared] = _complete_to_pb(request)
            return message
        message = pb.CompleteJobRequest()
        message.CopyFrom(written)
        message.task_token = request.task_token
        message.job_result.job_id = request.job_id
        return message


class CompletionReader:
    """Reads the completions of one call.

    Completions of jobs that begin and end together often differ in their job and task token alone: the rest
    is read once, and their results and events are the same objects.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._known: dict[bytes, tuple[JobResult, bytes, list[EncodedEvent]]] = {}

    def read(self, message: pb.CompleteJobRequest) -> tuple[CompleteRequest, list[EncodedEvent]]:
        """Return a completion with a valid result, and its events, checked and encoded.

        The message is used up. Events without a timestamp are dated now.
        """
        task_token, job_id = message.task_token, message.job_result.job_id
        message.ClearField("task_token")
        message.job_result.ClearField("job_id")
        rest = message.SerializeToString()
        known = self._known.get(rest)
        if known is None:
            known = *read_result(message.job_result), admit_events(message.events, self._now)
            self._known[rest] = known
        result, result_bytes, events = known
        return CompleteRequest(task_token, result, (), job_id, result_bytes), events


def complete_batch_to_pb(entries: Sequence[pb.CompleteJobRequest]) -> pb.CompleteJobsRequest:
    """Return the message of many completions."""
    return pb.CompleteJobsRequest(completions=entries)


@refusing
def _complete_to_pb(request: CompleteRequest) -> pb.CompleteJobRequest:
    return pb.CompleteJobRequest(
        task_token=request.task_token,
        job_result=result_to_pb(request.result, request.job_id),
        events=map(event_to_packed_pb, request.events),
    )
