"""Jobs that are there, to and from the messages of the wire: to list, get, cancel and retry them.

Requests and answers stand together, and apart from the others: who only looks after jobs loads no more.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from airunner.codec.building import refusing
from airunner.codec.enums import enum_from_pb, to_wire
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import job_from_pb, job_to_pb
from airunner.domain.errors import InvalidArgument
from airunner.domain.job import Job, JobState
from airunner.domain.limits import DEFAULT_PAGE_SIZE
from airunner.domain.listing import JobPage, JobQuery


class GetArguments(TypedDict):
    """The arguments of `get_job`."""

    job_id: str
    wait_seconds: int
    want_payload_urls: bool
    abridge: bool


class RetryArguments(TypedDict):
    """The arguments of `retry_job`."""

    job_id: str
    request_id: str


@refusing
def query_to_pb(query: JobQuery) -> pb.ListJobsRequest:
    """Return the message of a query; with a cursor, the first page is no page at all."""
    return pb.ListJobsRequest(
        queue=query.queue,
        state=to_wire(query.state) if query.state else pb.JOB_STATE_UNSPECIFIED,
        page=0 if query.cursor and query.page == 1 else query.page,
        page_size=query.page_size,
        cursor=query.cursor,
    )


def query_from_pb(message: pb.ListJobsRequest) -> JobQuery:
    """Return a query; one with both a page and a cursor is refused."""
    if message.cursor and message.page:
        raise InvalidArgument("page and cursor exclude each other")
    return JobQuery(
        queue=message.queue,
        state=enum_from_pb(JobState, message.state, "state") if message.state else None,
        page=message.page or 1,
        page_size=message.page_size or DEFAULT_PAGE_SIZE,
        cursor=message.cursor,
    )


def page_to_pb(page: JobPage) -> pb.ListJobsResponse:
    """Return the message of a page of jobs."""
    return pb.ListJobsResponse(
        jobs=map(job_to_pb, page.jobs), last_page=page.last_page, next_cursor=page.next_cursor
    )


def page_from_pb(message: pb.ListJobsResponse) -> JobPage:
    """Return a page of jobs."""
    return JobPage(
        jobs=list(map(job_from_pb, message.jobs)),
        last_page=message.last_page,
        next_cursor=message.next_cursor,
    )


@refusing
def get_to_pb(**arguments: Unpack[GetArguments]) -> pb.GetJobRequest:
    """Return the message that asks for a job."""
    return pb.GetJobRequest(**arguments)


def get_from_pb(message: pb.GetJobRequest) -> GetArguments:
    """Return which job is asked for, and how."""
    return GetArguments(
        job_id=message.job_id,
        wait_seconds=message.wait_seconds,
        want_payload_urls=message.want_payload_urls,
        abridge=message.abridge,
    )


def found_to_pb(job: Job) -> pb.GetJobResponse:
    """Return the message of a job that was asked for."""
    return pb.GetJobResponse(job=job_to_pb(job))


@refusing
def cancel_to_pb(job_id: str) -> pb.CancelJobRequest:
    """Return the message that cancels a job."""
    return pb.CancelJobRequest(job_id=job_id)


def cancel_from_pb(message: pb.CancelJobRequest) -> str:
    """Return the job to cancel."""
    return message.job_id


def cancelled_to_pb(job: Job) -> pb.CancelJobResponse:
    """Return the message of a job after its cancellation."""
    return pb.CancelJobResponse(job=job_to_pb(job))


@refusing
def retry_to_pb(**arguments: Unpack[RetryArguments]) -> pb.RetryJobRequest:
    """Return the message that asks for a copy of a job."""
    return pb.RetryJobRequest(**arguments)


def retry_from_pb(message: pb.RetryJobRequest) -> RetryArguments:
    """Return the job to copy, and the id of the request."""
    return RetryArguments(job_id=message.job_id, request_id=message.request_id)


def retried_to_pb(job: Job) -> pb.RetryJobResponse:
    """Return the message of the copy of a job."""
    return pb.RetryJobResponse(job=job_to_pb(job))


def one_job_from_pb(message: pb.GetJobResponse | pb.CancelJobResponse | pb.RetryJobResponse) -> Job:
    """Return the one job of an answer, as far as the wire tells."""
    return job_from_pb(message.job)
