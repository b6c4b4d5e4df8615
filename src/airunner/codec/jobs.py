"""Jobs to and from protobuf: messages for the wire, bytes for the stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from airunner.codec.building import before
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
    message = pb.JobParams()
    write_params(message, params)
    return message


def write_params(message: pb.JobParams, params: JobParams) -> None:
    """Fill the empty message of parameters where it stands, since handing over a part costs its copy."""
    # Most are unset, and those that are cost nothing.
    for name in _SINGLE_PARAMS:
        if value := getattr(params, name):
            setattr(message, name, value)
    if params.process_type is not ProcessType.PIPE:
        # The default stays unset, so that saying it and leaving it out are the same request.
        message.process_type = pb.PROCESS_TYPE_PTY
    if params.args:
        message.args.extend(params.args)
    if params.secret_names:
        message.secret_names.extend(params.secret_names)
    # One by one, since a map that is given as a whole takes a way of its own, which is slow.
    for name, value in params.environment.items():
        message.environment[name] = value
    for name, value in params.metadata.items():
        message.metadata[name] = value


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
    return pb.Job.FromString(JobWriter().write(job))


class JobWriter:
    """Encodes the jobs of one answer. What jobs that were claimed together have in common is encoded once.

    Lives are told apart by identity, so the jobs must outlive the writer.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[object, ...], bytes] = {}

    def write(self, job: Job) -> bytes:
        """Return the message of a job, encoded."""
        kind = (id(job.life), id(job.execution), job.created_at, job.queue)
        shared = self._shared.get(kind)
        if shared is None:
            shared = self._shared[kind] = _encode_shared(job)
        job_id, request_id = job.job_id.encode(), job.request_id.encode()
        params = encode_params(job.params)
        return b"".join(
            (
                *(before(_JOB_ID, len(job_id)), job_id),
                *(before(_REQUEST_ID, len(request_id)), request_id),
                *(before(_JOB_PARAMS, len(params)), params),
                shared,
                _encode_unusual(job) if _is_unusual(job) else b"",
            )
        )


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


def _is_unusual(job: Job) -> bool:
    return bool(job.retried_from or job.life.result or job.params_url or job.result_url or job.abridged)


def _encode_unusual(job: Job) -> bytes:
    """Return the part of a job's message that most jobs without an end do not have."""
    result = job.life.result
    return pb.Job(
        retried_from=job.retried_from,
        result=result_to_pb(result, job.job_id) if result else None,
        job_params_url=job.params_url,
        result_url=job.result_url,
        abridged=job.abridged,
    ).SerializeToString()


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


def _dict_of(entries: Mapping[str, str]) -> dict[str, str]:
    # A map of a message is asked for its keys by `dict`, which costs three calls.
    return {name: entries[name] for name in entries}


def _process_type_from_pb(value: int) -> ProcessType:
    return enum_from_pb(ProcessType, value, "process_type")


_ASSUMED_EXECUTION = ExecutionConfig(assumed=True)
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
_PARAM_KINDS: dict[str, Callable[[Any], Any]] = {
    "environment": _dict_of,
    "metadata": _dict_of,
    "args": tuple,
    "secret_names": tuple,
}
# The parameters that are the same on both sides.
_SINGLE_PARAMS = tuple(
    field.name
    for field in fields(JobParams)
    if field.init and field.name not in {"process_type", *_PARAM_KINDS}
)
_JOB_ID = pb.Job.JOB_ID_FIELD_NUMBER
_REQUEST_ID = pb.Job.REQUEST_ID_FIELD_NUMBER
_JOB_PARAMS = pb.Job.JOB_PARAMS_FIELD_NUMBER
