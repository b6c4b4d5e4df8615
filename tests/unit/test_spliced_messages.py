"""What passes through the server in its stored form is the same as if it had been read and written again."""

from __future__ import annotations

from dataclasses import fields, replace

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import (
    JobWriter,
    decode_params,
    decode_result,
    encode_params,
    encode_result,
    job_from_pb,
    params_from_pb,
    params_to_pb,
    read_result,
    result_to_pb,
)
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import (
    SECRET_MASK,
    Job,
    JobParams,
    JobResult,
    Outcome,
    ProcessType,
)
from airunner.domain.lifecycle import Lifecycle
from airunner.testing.factories import NOON

FULL = JobParams(
    repository_url="https://example.com/project.git",
    commit="0123456789abcdef0123456789abcdef01234567",
    branch="main",
    command="make",
    args=("-j", "2"),
    environment={"TOKEN": "a secret text", "MODE": "fast"},
    secret_names=("TOKEN",),
    metadata={"team": "tools"},
    owner="somebody",
    working_directory="src",
    timeout_seconds=60,
    process_type=ProcessType.PTY,
    handler="handler",
    payload_json="{}",
)
RESULT = JobResult(
    success=False,
    outcome=Outcome.TIMEOUT,
    exit_code=3,
    error_message="too slow",
    started_at=NOON,
    completed_at=NOON + 1,
    output_json="null",
    final_sequence=7,
    output_sha256=b"x" * 32,
)
EXECUTION = ExecutionConfig()
LIFE = Lifecycle(max_attempts=3, due_at=NOON, updated_at=NOON, attempt=1, visible_until=NOON + 1)


def make_job(number: int, **changes: object) -> Job:
    job = Job(
        job_id=f"job-{number}",
        queue="builds",
        params=JobParams(handler="noop"),
        execution=EXECUTION,
        created_at=NOON,
        request_id=f"request-{number}",
        principal="",
        life=LIFE,
    )
    return replace(job, **changes)  # type: ignore[arg-type]  # each of its own type


def test_every_parameter_goes_to_the_wire_and_back() -> None:
    untouched = [
        field.name
        for field in fields(JobParams)
        if field.init and getattr(FULL, field.name) == getattr(JobParams(), field.name)
    ]
    assert not untouched
    assert params_from_pb(params_to_pb(FULL)) == FULL
    assert params_from_pb(params_to_pb(JobParams())) == JobParams()


def test_stored_parameters_are_spliced_as_they_are() -> None:
    stored = encode_params(FULL)
    decoded = decode_params(stored)
    assert decoded == FULL
    assert encode_params(decoded) is stored
    assert params_to_pb(decoded).SerializeToString(deterministic=True) == stored


def test_masked_parameters_do_not_keep_what_they_were_decoded_from() -> None:
    masked = decode_params(encode_params(FULL)).masked()
    assert b"a secret text" not in encode_params(masked)
    assert decode_params(encode_params(masked)).environment["TOKEN"] == SECRET_MASK


def test_jobs_of_one_answer_share_only_what_is_theirs_in_common() -> None:
    jobs = [
        make_job(1),
        make_job(2),
        make_job(3, queue="deploys"),
        make_job(4, created_at=NOON + 1),
        make_job(5, execution=ExecutionConfig(heartbeat_interval_seconds=7)),
        make_job(6, life=replace(LIFE, attempt=2, last_error="once more", cancel_requested=True)),
        make_job(7, params=FULL, retried_from="job-1"),
        make_job(8, life=replace(LIFE, result=RESULT)),
    ]
    writer = JobWriter()
    assert [job_from_pb(pb.Job.FromString(writer.write(job))) for job in jobs] == jobs


def test_a_result_is_stored_as_it_came_but_for_whose_it_is() -> None:
    message = result_to_pb(RESULT, "job-1")
    message.MergeFromString(b"\xfa\x3e\x07unknown")
    result, stored = read_result(message)
    assert result == RESULT
    assert stored == encode_result(RESULT)


def test_a_result_without_an_outcome_is_stored_with_the_one_it_means() -> None:
    result, stored = read_result(pb.JobResult(job_id="job-1", success=True))
    assert result.outcome is Outcome.SUCCESS
    assert decode_result(stored) == result
    assert pb.JobResult.FromString(stored).outcome == pb.OUTCOME_SUCCESS
