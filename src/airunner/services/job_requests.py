"""What callers ask of jobs, checked and with its defaults, as the store is asked for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner.codec.execution import encode_execution, merge_execution
from airunner.codec.jobs import encode_params
from airunner.domain import limits
from airunner.domain.errors import FailedPrecondition, InvalidArgument
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import mint_uuid
from airunner.stores.records import Demand, NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.requests import DequeueRequest, EnqueueRequest, ReleaseRequest
    from airunner.services.caller import Caller
    from airunner.services.queue_names import QueueNames
    from airunner.services.settings.execution import LiveExecution


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """What the operator decides about jobs."""

    execution: ExecutionConfig = ExecutionConfig()
    visibility_timeout_seconds: int = limits.DEFAULT_VISIBILITY_SECONDS
    max_attempts: int = limits.DEFAULT_MAX_ATTEMPTS
    max_queued: int = 0


class JobRequests:
    """Checks requests and fills in defaults. It asks no store and changes nothing but the names of queues.

    InvalidArgument for what is malformed or out of range, PermissionDenied for a queue that is not the
    caller's. Zero means default; nothing is clamped.
    """

    def __init__(self, rules: JobRules, execution: LiveExecution, queue_names: QueueNames) -> None:
        self._rules = rules
        self._execution = execution
        self._queue_names = queue_names

    def new_job(self, request: EnqueueRequest, caller: Caller, now: int) -> NewJob:
        """Return the job that a request adds, with a new id."""
        caller.check_queue(limits.check_queue(request.queue))
        request.params.validate()
        delay = limits.check_range(request.delay_seconds, "delay_seconds", 0, limits.MAX_DELAY_SECONDS)
        max_attempts = limits.in_range_or_default(
            request.max_attempts, "max_attempts", self._rules.max_attempts, 1, limits.MAX_ATTEMPTS
        )
        params_bytes = request.params_bytes or encode_params(request.params)
        limits.check_size(params_bytes, "job_params", limits.MAX_PARAMS_BYTES)
        override = request.execution_bytes or (
            encode_execution(request.execution) if request.execution else b""
        )
        execution = self._execution.current
        return NewJob(
            job_id=mint_uuid(now),
            # Last of all: a request that is refused for something else makes no queue.
            queue=self._queue_names.check(request.queue),
            principal=caller.principal,
            request_id=limits.check_uuid(request.request_id, "request_id"),
            fingerprint=_fingerprint(request.queue, delay, request.max_attempts, params_bytes, override),
            params=request.params,
            params_bytes=params_bytes,
            execution=merge_execution(override, execution) if override else execution,
            max_attempts=max_attempts,
            created_at=now,
            due_at=now + delay * 1000,
        )

    def demand(self, request: DequeueRequest, caller: Caller) -> tuple[Demand, int]:
        """Return what a dequeue claims, and for how many seconds it waits for that."""
        limits.check_range(len(request.more_queues), "more_queues", 0, limits.MAX_MORE_QUEUES)
        queues = tuple(dict.fromkeys((request.queue, *request.more_queues)))
        for queue in queues:
            caller.check_queue(limits.check_queue(queue))
        for field in ("worker_id", "instance_id"):
            limits.check_size(getattr(request, field), field, limits.MAX_NAME_BYTES)
        wait_seconds = request.wait_seconds
        if wait_seconds is None:
            wait_seconds = limits.DEFAULT_DEQUEUE_WAIT_SECONDS
        limits.check_range(wait_seconds, "wait_seconds", 0, limits.MAX_DEQUEUE_WAIT_SECONDS)
        lease_seconds = request.first_lease_seconds
        demand = Demand(
            queues=queues,
            first_lease_seconds=limits.check_range(
                lease_seconds, "first_lease_seconds", 0, limits.MAX_VISIBILITY_SECONDS
            ),
            max_jobs=limits.in_range_or_default(request.max_jobs, "max_jobs", 1, 1, limits.MAX_DEQUEUE_JOBS),
            visibility_seconds=limits.in_range_or_default(
                request.visibility_timeout_seconds,
                "visibility_timeout_seconds",
                self._rules.visibility_timeout_seconds,
                1,
                limits.MAX_VISIBILITY_SECONDS,
            ),
            worker_id=request.worker_id,
            instance_id=request.instance_id,
            waits=wait_seconds > 0,
            abilities=_ability_keys(request),
        )
        return demand, wait_seconds


def retried_job(job: Job, request_id: str, caller: Caller, now: int) -> NewJob:
    """Return a copy of an ended job, as a new job; FailedPrecondition if it cannot be run again."""
    if not job.state.terminal:
        raise FailedPrecondition("only a job that has ended can be retried")
    if job.abridged:
        raise FailedPrecondition("the parameters of this job cannot be read")
    if missing := job.params.missing_secrets:
        raise FailedPrecondition(
            f"secrets were dropped when the job ended: {', '.join(missing)}; enqueue the job again with them"
        )
    return NewJob(
        job_id=mint_uuid(now),
        queue=job.queue,
        principal=caller.principal,
        request_id=request_id,
        fingerprint=hashlib.sha256(f"retry {job.job_id}".encode()).digest(),
        params=job.params,
        params_bytes=encode_params(job.params),
        execution=job.execution,
        max_attempts=job.life.max_attempts,
        created_at=now,
        due_at=now,
        retried_from=job.job_id,
    )


def check_release(request: ReleaseRequest, events: Sequence[EncodedEvent]) -> None:
    """Refuse a release whose fields are out of range or contradict each other."""
    limits.check_range(request.delay_seconds, "delay_seconds", 0, limits.MAX_DELAY_SECONDS)
    limits.check_size(request.error, "error_message", limits.MAX_ERROR_TEXT_BYTES)
    if request.unstarted and (events or request.error):
        raise InvalidArgument("an unstarted attempt has neither events nor an error")


def _ability_keys(request: DequeueRequest) -> frozenset[str] | None:
    if request.abilities is None:
        return None
    request.abilities.validate()
    return request.abilities.keys


def _fingerprint(queue: str, delay: int, max_attempts: int, params: bytes, override: bytes) -> bytes:
    """Return a hash of all that a request says, before defaults: two with the same id can differ in it."""
    head = f"{queue} {delay} {max_attempts} {len(params)} ".encode()
    return hashlib.sha256(head + params + override).digest()
