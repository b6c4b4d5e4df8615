"""Jobs to and from protobuf: messages for the wire, bytes for the stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from airunner.codec.enums import enum_from_pb, enum_or, to_wire
from airunner.codec.execution import decode_execution, execution_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant, set_instant
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams, JobResult, JobState, Outcome, ProcessType
from airunner.domain.lifecycle import Lifecycle


def encode_params(params: JobParams) -> bytes:
    """Return the canonical bytes of parameters: equal parameters have equal bytes."""
    return params.encoded or params_to_pb(params).SerializeToString(deterministic=True)


def decode_params(encoded: bytes) -> JobParams:
    """Return the parameters of stored bytes, which are canonical."""
    params = params_from_pb(pb.JobParams.FromString(encoded))
    params.encoded = encoded  # type: ignore[misc]  # nobody else has seen it yet
    return params


def encode_result(result: JobResult) -> bytes:
    """Return the bytes of a result."""
    return result_to_pb(result).SerializeToString()


def decode_result(encoded: bytes) -> JobResult:
    """Return the result of stored bytes."""
    return result_from_pb(pb.JobResult.FromString(encoded))


def params_to_pb(params: JobParams) -> pb.JobParams:
    """Return the message of parameters."""
    # Most are unset, and those that are cost nothing.
    given: dict[str, Any] = {name: value for name in _PLAIN_PARAMS if (value := getattr(params, name))}
    message = pb.JobParams(process_type=_process_type_to_pb(params.process_type), **given)
    # One by one, since a map that is given as a whole takes a way of its own, which is slow.
    for name, value in params.environment.items():
        message.environment[name] = value
    for name, value in params.metadata.items():
        message.metadata[name] = value
    return message


def params_from_pb(message: pb.JobParams, *, lenient: bool = False) -> JobParams:
    """Return the parameters of a message; `lenient` takes enum values that are unknown as unspecified."""
    # The hottest mapping of all, and most fields are unset: only those that are set are looked at.
    given: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    for name in given.keys() & _PARAM_KINDS.keys():
        given[name] = _PARAM_KINDS[name](given[name])
    if number := given.get("process_type"):
        known = enum_or(ProcessType, number, ProcessType.PIPE) if lenient else _process_type_from_pb(number)
        given["process_type"] = known
    return JobParams(**given)


def result_to_pb(result: JobResult, job_id: str = "") -> pb.JobResult:
    """Return the message of a result."""
    message = pb.JobResult(
        job_id=job_id,
        success=result.success,
        exit_code=result.exit_code,
        error_message=result.error_message,
        outcome=to_wire(result.outcome),
        output_json=result.output_json,
        final_sequence=result.final_sequence,
        output_sha256=result.output_sha256,
    )
    set_instant(message.started_at, result.started_at)
    set_instant(message.completed_at, result.completed_at)
    return message


def result_from_pb(message: pb.JobResult, *, lenient: bool = False) -> JobResult:
    """Return the result of a message; without an outcome, success tells it.

    `lenient` takes an outcome that is unknown as one that is missing.
    """
    success = message.success
    unspecified = Outcome.SUCCESS if success else Outcome.FAILURE
    number = message.outcome or unspecified
    outcome = _OUTCOMES.get(number) or (unspecified if lenient else enum_from_pb(Outcome, number, "outcome"))
    return JobResult(
        success=success,
        outcome=outcome,
        exit_code=message.exit_code,
        error_message=message.error_message,
        started_at=instant(message.started_at, "started_at"),
        completed_at=instant(message.completed_at, "completed_at"),
        output_json=message.output_json,
        final_sequence=message.final_sequence,
        output_sha256=message.output_sha256,
    )


def read_result(message: pb.JobResult) -> tuple[JobResult, bytes]:
    """Return the result of a message, if it is valid, and its stored form. The message is used up."""
    result = result_from_pb(message)
    result.validate()
    message.ClearField("job_id")
    message.DiscardUnknownFields()
    message.outcome = to_wire(result.outcome)
    return result, message.SerializeToString()


def job_to_pb(job: Job) -> pb.Job:
    """Return the message of a job."""
    message = pb.Job()
    JobWriter().write(message, job)
    return message


class JobWriter:
    """Writes the jobs of one answer. What jobs that were claimed together have in common is encoded once.

    Lives are told apart by identity, so the jobs must outlive the writer.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[object, ...], bytes] = {}

    def write(self, message: pb.Job, job: Job) -> None:
        """Fill the empty message of a job where it stands, since handing over a part costs its copy."""
        kind = (id(job.life), id(job.execution), job.created_at, job.queue)
        shared = self._shared.get(kind)
        if shared is None:
            shared = self._shared[kind] = _encode_shared(job)
        message.MergeFromString(shared)
        message.job_id, message.request_id = job.job_id, job.request_id
        message.job_params.MergeFromString(encode_params(job.params))
        if job.retried_from:
            message.retried_from = job.retried_from
        if job.life.result is not None:
            message.result.CopyFrom(result_to_pb(job.life.result, job.job_id))
        if job.params_url or job.result_url or job.abridged:
            message.job_params_url, message.result_url = job.params_url, job.result_url
            message.abridged = job.abridged


def job_from_pb(message: pb.Job) -> Job:
    """Return the job of a message, as far as the wire tells; for clients, which may not know all values."""
    state = enum_or(JobState, message.state, JobState.UNSPECIFIED)
    updated_at = instant(message.updated_at, "updated_at")
    return Job(
        job_id=message.job_id,
        queue=message.queue,
        params=params_from_pb(message.job_params, lenient=True),
        execution=_execution_of(message),
        created_at=instant(message.created_at, "created_at"),
        request_id=message.request_id,
        principal="",
        retried_from=message.retried_from,
        params_url=message.job_params_url,
        result_url=message.result_url,
        abridged=message.abridged,
        life=Lifecycle(
            max_attempts=message.max_attempts,
            due_at=instant(message.due_at, "due_at"),
            updated_at=updated_at,
            state=state,
            attempt=message.attempt,
            handed_back=message.handed_back,
            visible_until=instant(message.visible_until, "visible_until"),
            visibility_seconds=message.visibility_timeout_seconds,
            silent_attempts=message.silent_attempts,
            cancel_requested=message.cancel_requested,
            cancelled_by=message.cancelled_by,
            cancelled_at=instant(message.cancelled_at, "cancelled_at"),
            worker_id=message.worker_id,
            instance_id=message.instance_id,
            last_sequence=message.last_sequence,
            last_error=message.last_error,
            result=result_from_pb(message.result, lenient=True) if message.HasField("result") else None,
            finished_at=updated_at if state.terminal else 0,
        ),
    )


class JobReader:
    """Reads the jobs of one answer. What they have in common is read once, and is the same object in all."""

    def __init__(self) -> None:
        self._params: dict[bytes, JobParams] = {}
        self._known: dict[bytes, Job] = {}

    def read(self, message: pb.Job) -> Job:
        """Return the job of a message, which is used up."""
        job_id, request_id = message.job_id, message.request_id
        encoded_params = message.job_params.SerializeToString()
        params = self._params.get(encoded_params)
        if params is None:
            params = self._params[encoded_params] = params_from_pb(message.job_params, lenient=True)
        for field in ("job_id", "request_id", "job_params"):
            message.ClearField(field)
        rest = message.SerializeToString()
        shared = self._known.get(rest)
        if shared is None:
            shared = self._known[rest] = job_from_pb(message)
        return Job(
            job_id=job_id,
            queue=shared.queue,
            params=params,
            execution=shared.execution,
            created_at=shared.created_at,
            request_id=request_id,
            principal="",
            life=shared.life,
            retried_from=shared.retried_from,
            params_url=shared.params_url,
            result_url=shared.result_url,
            abridged=shared.abridged,
        )


def _encode_shared(job: Job) -> bytes:
    """Return the part of a job's message that others may share: its life, but not its result; its queue."""
    life = job.life
    message = pb.Job(
        queue=job.queue,
        execution_config=execution_to_pb(job.execution),
        state=to_wire(life.state),
        attempt=life.attempt,
        max_attempts=life.max_attempts,
        worker_id=life.worker_id,
        instance_id=life.instance_id,
        cancel_requested=life.cancel_requested,
        cancelled_by=life.cancelled_by,
        handed_back=life.handed_back,
        visibility_timeout_seconds=life.visibility_seconds,
        silent_attempts=life.silent_attempts,
        last_sequence=life.last_sequence,
        last_error=life.last_error,
    )
    set_instant(message.created_at, job.created_at)
    set_instant(message.updated_at, life.updated_at)
    set_instant(message.visible_until, life.visible_until)
    set_instant(message.due_at, life.due_at)
    set_instant(message.cancelled_at, life.cancelled_at)
    return message.SerializeToString()


def _execution_of(message: pb.Job) -> ExecutionConfig:
    if not message.HasField("execution_config"):
        return _ASSUMED_EXECUTION
    # Most jobs have the same: to look it up costs less than to build it.
    return decode_execution(message.execution_config.SerializeToString())


def _process_type_from_pb(value: int) -> ProcessType:
    return enum_from_pb(ProcessType, value, "process_type")


def _process_type_to_pb(process_type: ProcessType) -> Any:
    # The default stays unset, so that saying it and leaving it out are the same request.
    return pb.PROCESS_TYPE_UNSPECIFIED if process_type is ProcessType.PIPE else pb.PROCESS_TYPE_PTY


_ASSUMED_EXECUTION = ExecutionConfig(assumed=True)
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
# The parameters whose names are the same on both sides, and how those are converted that need it.
_PLAIN_PARAMS = tuple(
    field.name
    for field in fields(JobParams)
    if field.init and field.name not in {"process_type", "environment", "metadata"}
)
_PARAM_KINDS: dict[str, Callable[[Any], Any]] = {
    "environment": dict,
    "metadata": dict,
    "args": tuple,
    "secret_names": tuple,
}
