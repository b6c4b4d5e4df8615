"""Completions to and from the messages of the wire. What many of one call have in common is mapped once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.building import EncodedMessage, before, refusing, repeated
from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import read_result, result_to_pb
from airunner.domain.record import record
from airunner.domain.requests import CompleteRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import JobResult


class CompletionWriter:
    """Encodes the completions of one call. Those that share events and end alike share their encoding.

    Results and events are told apart by identity first, so the requests must outlive the writer.
    """

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, int], _SharedParts] = {}
        self._by_common: dict[tuple[int, tuple[object, ...]], _SharedParts] = {}

    @refusing
    def write(self, request: CompleteRequest) -> EncodedMessage:
        """Return the message of a completion."""
        result = request.result
        same = id(request.events), id(result)
        shared = self._by_identity.get(same)
        if shared is None:
            shared = self._by_identity[same] = self._shared(request)
        own = _encode_own(request)
        size = len(own) + len(shared.result)
        task_token = request.task_token.encode()
        return EncodedMessage(
            b"".join(
                (
                    *(before(_TASK_TOKEN, len(task_token)), task_token),
                    *(before(_JOB_RESULT, size), own, shared.result),
                    shared.events,
                )
            )
        )

    def _shared(self, request: CompleteRequest) -> _SharedParts:
        alike = id(request.events), request.result.common
        shared = self._by_common.get(alike)
        if shared is None:
            shared = self._by_common[alike] = _encode_shared(request)
        return shared


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


def complete_batch_to_pb(entries: Sequence[EncodedMessage]) -> EncodedMessage:
    """Return the message of many completions."""
    return EncodedMessage(repeated(_COMPLETIONS, [entry.raw for entry in entries]))


@record
class _SharedParts:
    """What completions have in common: the encoding of their result, but for their output, and of events."""

    result: bytes
    events: bytes


def _encode_own(request: CompleteRequest) -> bytes:
    """Return the part of a result that is its job's own."""
    job_id, output_json = request.job_id.encode(), request.result.output_json.encode()
    output_sha256 = request.result.output_sha256
    return b"".join(
        (
            *(before(_JOB_ID, len(job_id)), job_id),
            *(before(_OUTPUT_JSON, len(output_json)), output_json),
            *(before(_OUTPUT_SHA256, len(output_sha256)), output_sha256),
        )
    )


def _encode_shared(request: CompleteRequest) -> _SharedParts:
    result = result_to_pb(request.result.with_output("", b""))
    events = pb.CompleteJobRequest(events=map(event_to_packed_pb, request.events))
    return _SharedParts(result.SerializeToString(), events.SerializeToString())


_COMPLETIONS = pb.CompleteJobsRequest.COMPLETIONS_FIELD_NUMBER
_TASK_TOKEN = pb.CompleteJobRequest.TASK_TOKEN_FIELD_NUMBER
_JOB_RESULT = pb.CompleteJobRequest.JOB_RESULT_FIELD_NUMBER
_JOB_ID = pb.JobResult.JOB_ID_FIELD_NUMBER
_OUTPUT_JSON = pb.JobResult.OUTPUT_JSON_FIELD_NUMBER
_OUTPUT_SHA256 = pb.JobResult.OUTPUT_SHA256_FIELD_NUMBER
