"""An enum value that is unknown here: a client takes it as unspecified, a server refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from airunner.codec import answers, dead_letters, lookups, requests
from airunner.codec.events import admit_event, event_from_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import JobReader, decode_params, decode_result, job_from_pb, read_result
from airunner.domain.answers import DeadLetterReason
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Output, OutputBatch, StreamType
from airunner.domain.job import JOB_STATES, JobState, Outcome, ProcessType, stored_state

UNKNOWN: Any = 99


def newer_job(*, success: bool = False) -> pb.Job:
    params = pb.JobParams(command="echo", process_type=UNKNOWN)
    return pb.Job(
        job_id="j", state=UNKNOWN, job_params=params, result=pb.JobResult(success=success, outcome=UNKNOWN)
    )


@pytest.mark.parametrize(("success", "outcome"), [(True, Outcome.SUCCESS), (False, Outcome.FAILURE)])
def test_a_client_reads_a_job_of_a_newer_server(success: bool, outcome: Outcome) -> None:
    for job in (job_from_pb(newer_job(success=success)), JobReader().read(newer_job(success=success))):
        assert job.state is JobState.UNSPECIFIED
        assert not job.state.terminal
        assert job.params.process_type is ProcessType.PIPE
        assert job.life.result
        assert job.life.result.outcome is outcome


def test_a_client_reads_answers_of_a_newer_server() -> None:
    enqueued = answers.enqueued_from_pb(pb.EnqueueJobResponse(job_id="j", state=UNKNOWN))
    assert enqueued.state is JobState.UNSPECIFIED
    purged = pb.PurgeDeadLettersResponse(purged=[pb.DeadLetter(message_id="m", reason=UNKNOWN)])
    (letter,) = dead_letters.purged_from_pb(purged)
    assert letter.reason is DeadLetterReason.UNSPECIFIED


def test_a_client_reads_events_of_a_newer_server() -> None:
    one = pb.JobEvent(sequence=1, output_data=pb.OutputEvent(output=b"a", stream=UNKNOWN))
    assert event_from_pb(one).data == Output(b"a", StreamType.STDOUT)
    items = [pb.OutputItem(output=b"a", stream=UNKNOWN)]
    batch = pb.OutputBatchEvent(start_sequence=1, end_sequence=1, outputs=items)
    data = event_from_pb(pb.JobEvent(sequence=1, output_batch=batch)).data
    assert isinstance(data, OutputBatch)
    assert data.outputs == (Output(b"a", StreamType.STDOUT),)


def test_a_server_refuses_them() -> None:
    request = pb.EnqueueJobRequest(
        request_id="r", queue="q", job_params=pb.JobParams(command="echo", process_type=UNKNOWN)
    )
    for refused in (
        lambda: requests.enqueue_from_pb(request),
        lambda: lookups.query_from_pb(pb.ListJobsRequest(queue="q", state=UNKNOWN)),
        lambda: read_result(pb.JobResult(outcome=UNKNOWN)),
        lambda: admit_event(
            pb.JobEvent(sequence=1, output_data=pb.OutputEvent(output=b"a", stream=UNKNOWN)), 1
        ),
    ):
        with pytest.raises(InvalidArgument, match="99 is not a known value"):
            refused()


def test_what_a_store_keeps_is_read_strictly() -> None:
    with pytest.raises(InvalidArgument):
        decode_params(pb.JobParams(command="echo", process_type=UNKNOWN).SerializeToString())
    with pytest.raises(InvalidArgument):
        decode_result(pb.JobResult(outcome=UNKNOWN).SerializeToString())
    assert [stored_state(int(state)) for state in JOB_STATES] == list(JOB_STATES)
    assert JobState.UNSPECIFIED not in JOB_STATES
    for number in (0, 99):
        with pytest.raises(ValueError, match="not in tuple"):
            stored_state(number)
