"""Completions to and from the messages of the wire. What many of one call have in common is mapped once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import read_result, result_to_pb
from airunner.codec.refusing import refusing
from airunner.domain.requests import CompleteRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import JobResult


class CompletionWriter:
    """Writes the completions of one call. Those that share events and end alike are copies of one message.

    Results and events are told apart by identity first, so the requests must outlive the writer.
    """

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, int], pb.CompleteJobRequest] = {}
        self._by_common: dict[tuple[int, tuple[object, ...]], pb.CompleteJobRequest] = {}

    def write(self, request: CompleteRequest) -> pb.CompleteJobRequest:
        """Return the message of a completion."""
        same = id(request.events), id(request.result)
        written = self._by_identity.get(same)
        if written is None:
            alike = id(request.events), request.result.common
            written = self._by_common.get(alike)
            message = _likewise(written, request) if written else _complete_to_pb(request)
            self._by_identity[same] = self._by_common[alike] = message
            return message
        return _likewise(written, request)


class CompletionReader:
    """Reads the completions of one call.

    Completions of jobs that begin and end together often differ in their job, task token and output alone:
    the rest is read once, and events that are equal are the same objects.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._known: dict[bytes, tuple[JobResult, bytes, list[EncodedEvent]]] = {}
        self._events: dict[bytes, list[EncodedEvent]] = {}

    def read(self, message: pb.CompleteJobRequest) -> tuple[CompleteRequest, list[EncodedEvent]]:
        """Return a completion with a valid result, and its events, checked and encoded.

        The message is used up. Events without a timestamp are dated now.
        """
        ended = message.job_result
        task_token, job_id, output_json = message.task_token, ended.job_id, ended.output_json
        message.ClearField("task_token")
        ended.ClearField("job_id")
        if output_json:
            ended.ClearField("output_json")
        result, result_bytes, events = self._read_known(message)
        if output_json:
            result = result.with_output(output_json, result.output_sha256)
            result.validate()
            # The fields of a message may come in any order.
            result_bytes += pb.JobResult(output_json=output_json).SerializeToString()
        return CompleteRequest(task_token, result, (), job_id, result_bytes), events

    def _read_known(self, message: pb.CompleteJobRequest) -> tuple[JobResult, bytes, list[EncodedEvent]]:
        """Read what is likely to be as that of another."""
        rest = message.SerializeToString()
        known = self._known.get(rest)
        if known is None:
            known = self._known[rest] = *read_result(message.job_result), self._read_events(message)
        return known

    def _read_events(self, message: pb.CompleteJobRequest) -> list[EncodedEvent]:
        message.ClearField("job_result")
        encoded = message.SerializeToString()
        events = self._events.get(encoded)
        if events is None:
            events = self._events[encoded] = admit_events(message.events, self._now)
        return events


def complete_batch_to_pb(entries: Sequence[pb.CompleteJobRequest]) -> pb.CompleteJobsRequest:
    """Return the message of many completions."""
    return pb.CompleteJobsRequest(completions=entries)


@refusing
def _likewise(written: pb.CompleteJobRequest, request: CompleteRequest) -> pb.CompleteJobRequest:
    message = pb.CompleteJobRequest()
    message.CopyFrom(written)
    message.task_token = request.task_token
    result = message.job_result
    result.job_id = request.job_id
    result.output_json, result.output_sha256 = request.result.output_json, request.result.output_sha256
    return message


@refusing
def _complete_to_pb(request: CompleteRequest) -> pb.CompleteJobRequest:
    return pb.CompleteJobRequest(
        task_token=request.task_token,
        job_result=result_to_pb(request.result, request.job_id),
        events=map(event_to_packed_pb, request.events),
    )
