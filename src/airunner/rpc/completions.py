"""Completions of the wire, as the service takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.events import admit_events
from airunner.codec.jobs import read_result
from airunner.domain.errors import AirunnerError
from airunner.domain.requests import CompleteRequest

if TYPE_CHECKING:
    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import JobResult
    from airunner.services.jobs import JobService
    from airunner.stores.records import Completion


class CompletionReader:
    """Reads the completions of one call.

    Jobs that begin and end together often say the same, but for whose end it is: that is read once, and
    their results and events are the same objects.
    """

    def __init__(self, service: JobService, now: int) -> None:
        self._service = service
        self._now = now
        self._known: dict[bytes, tuple[JobResult, bytes, list[EncodedEvent]]] = {}

    def read(self, request: pb.CompleteJobRequest) -> Completion:
        """Return a completion that is fit for the store. The request is used up."""
        task_token, job_id = request.task_token, request.job_result.job_id
        request.ClearField("task_token")
        request.job_result.ClearField("job_id")
        said = request.SerializeToString()
        known = self._known.get(said)
        if known is None:
            known = *read_result(request.job_result), admit_events(request.events, self._now)
            self._known[said] = known
        result, result_bytes, events = known
        complete = CompleteRequest(task_token, result, (), job_id, result_bytes)
        return self._service.prepare_completion(complete, events)

    def read_or_error(self, request: pb.CompleteJobRequest) -> Completion | AirunnerError:
        """Return a completion, or what is wrong with it."""
        try:
            return self.read(request)
        except AirunnerError as error:
            return error
