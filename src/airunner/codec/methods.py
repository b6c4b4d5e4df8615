"""The methods of our services: where each is, what it takes, and what it answers with.

Those that take a stream of requests, or answer with one that nobody reads, are not here: no client of ours
calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from google.protobuf.message import DecodeError

from airunner.codec.building import EncodedMessage
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import InvalidArgument

Q = TypeVar("Q")
R = TypeVar("R")
Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q_contra, R_co]):
    """A method: its path, the type of what it takes, and that of its answer or each message of its stream."""

    path: str
    request: type[Any]
    answer: type[Any]

    @property
    def name(self) -> str:
        """Its name, without that of its service."""
        return self.path.rpartition("/")[2]


def parse_request(method: Method[Q, R], body: bytes) -> Q:
    """Return what is asked of a method; InvalidArgument if it cannot be read."""
    try:
        # No cast at the hottest place of all: it is a call.
        message: Q = method.request.FromString(body)
    except DecodeError as error:
        raise InvalidArgument(f"unmarshal message: {error}") from None
    return message


def parse_answer(method: Method[Q, R], body: bytes) -> R | None:
    """Return the answer of a method from its bytes; None if it cannot be read."""
    try:
        message: R = method.answer.FromString(body)
    except DecodeError:
        return None
    return message


def _method(service: str, request: type[Q], answer: type[R]) -> Method[Q, R]:
    return Method(f"/{service}/{request.__name__.removesuffix('Request')}", request, answer)


def _encoded(method: Method[Q, R]) -> Method[Q | EncodedMessage, R]:
    """Let clients give requests of a method as bytes too."""
    return cast("Method[Q | EncodedMessage, R]", method)


_JOBS: Final = "job.v1.JobService"
_EVENTS: Final = "job.v1.JobEventsService"
_ADMIN: Final = "job.v1.AdminService"

ENQUEUE_JOB: Final = _encoded(_method(_JOBS, pb.EnqueueJobRequest, pb.EnqueueJobResponse))
ENQUEUE_JOBS: Final = _encoded(_method(_JOBS, pb.EnqueueJobsRequest, pb.EnqueueJobsResponse))
DEQUEUE_JOBS: Final = _method(_JOBS, pb.DequeueJobsRequest, pb.DequeueJobsResponse)
UPDATE_JOB: Final = _method(_JOBS, pb.UpdateJobRequest, pb.UpdateJobResponse)
COMPLETE_JOB: Final = _encoded(_method(_JOBS, pb.CompleteJobRequest, pb.CompleteJobResponse))
COMPLETE_JOBS: Final = _encoded(_method(_JOBS, pb.CompleteJobsRequest, pb.CompleteJobsResponse))
RELEASE_JOB: Final = _method(_JOBS, pb.ReleaseJobRequest, pb.ReleaseJobResponse)
GET_JOB: Final = _method(_JOBS, pb.GetJobRequest, pb.GetJobResponse)
LIST_JOBS: Final = _method(_JOBS, pb.ListJobsRequest, pb.ListJobsResponse)
CANCEL_JOB: Final = _method(_JOBS, pb.CancelJobRequest, pb.CancelJobResponse)
RETRY_JOB: Final = _method(_JOBS, pb.RetryJobRequest, pb.RetryJobResponse)
LIST_QUEUES: Final = _method(_JOBS, pb.ListQueuesRequest, pb.ListQueuesResponse)
PAUSE_QUEUE: Final = _method(_JOBS, pb.PauseQueueRequest, pb.PauseQueueResponse)
RESUME_QUEUE: Final = _method(_JOBS, pb.ResumeQueueRequest, pb.ResumeQueueResponse)
LIST_WORKERS: Final = _method(_JOBS, pb.ListWorkersRequest, pb.ListWorkersResponse)

STREAM_JOB_EVENT_BATCHES: Final = _method(
    _EVENTS, pb.StreamJobEventBatchesRequest, pb.StreamJobEventBatchesResponse
)
PUBLISH_JOB_EVENT_BATCH: Final = _method(
    _EVENTS, pb.PublishJobEventBatchRequest, pb.PublishJobEventBatchResponse
)

LIST_DEAD_LETTERS: Final = _method(_ADMIN, pb.ListDeadLettersRequest, pb.ListDeadLettersResponse)
REDRIVE_DEAD_LETTERS: Final = _method(_ADMIN, pb.RedriveDeadLettersRequest, pb.RedriveDeadLettersResponse)
PURGE_DEAD_LETTERS: Final = _method(_ADMIN, pb.PurgeDeadLettersRequest, pb.PurgeDeadLettersResponse)
LIST_SETTINGS: Final = _method(_ADMIN, pb.ListSettingsRequest, pb.ListSettingsResponse)
SET_SETTING: Final = _method(_ADMIN, pb.SetSettingRequest, pb.SetSettingResponse)
UNSET_SETTING: Final = _method(_ADMIN, pb.UnsetSettingRequest, pb.UnsetSettingResponse)
LIST_HOUSEKEEPING_RUNS: Final = _method(
    _ADMIN, pb.ListHousekeepingRunsRequest, pb.ListHousekeepingRunsResponse
)
GET_POOL_REPORT: Final = _method(_ADMIN, pb.GetPoolReportRequest, pb.GetPoolReportResponse)
RUN_HOUSEKEEPING: Final = _method(_ADMIN, pb.RunHousekeepingRequest, pb.RunHousekeepingResponse)
