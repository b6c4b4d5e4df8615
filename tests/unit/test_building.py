"""Messages that are put together from bytes are those that protobuf would write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.codec.building import EncodedMessage, before, repeated
from airunner.codec.completions import CompletionWriter
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Event, Progress
from airunner.domain.job import JobResult, Outcome
from airunner.domain.requests import CompleteRequest
from airunner.testing.factories import make_success

# Where the length takes one more byte, and before it.
SIZES = (1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152)


@pytest.mark.parametrize("size", SIZES)
def test_values_of_any_size_are_framed_as_protobuf_frames_them(size: int) -> None:
    value = b"x" * size
    assert before(10, size) + value == pb.JobResult(output_sha256=value).SerializeToString()
    assert before(8, size) + value == pb.JobResult(output_json=value.decode()).SerializeToString()


def test_a_number_of_two_bytes_is_written_as_protobuf_writes_it() -> None:
    number = pb.Job.LAST_ERROR_FIELD_NUMBER
    assert number >= 16
    assert before(number, 3) + b"why" == pb.Job(last_error="why").SerializeToString()


@given(st.lists(st.text()))
def test_entries_follow_each_other(names: list[str]) -> None:
    encoded = repeated(pb.Abilities.HANDLERS_FIELD_NUMBER, [name.encode() for name in names])
    assert encoded == pb.Abilities(handlers=names).SerializeToString()


def test_nobody_can_tell_an_empty_value_from_none() -> None:
    encoded = before(pb.JobResult.JOB_ID_FIELD_NUMBER, 0) + before(pb.JobResult.OUTPUT_SHA256_FIELD_NUMBER, 0)
    assert pb.JobResult.FromString(encoded) == pb.JobResult()


def test_an_encoded_message_is_sent_like_any_other() -> None:
    message = pb.GetJobRequest(job_id="job")
    encoded = EncodedMessage(message.SerializeToString())
    assert encoded.SerializeToString() == message.SerializeToString()
    assert encoded.ByteSize() == message.ByteSize()


@pytest.mark.parametrize("texts", [("\ud800", "job"), ("token", "\ud800")])
def test_a_text_that_cannot_be_encoded_is_refused(texts: tuple[str, str]) -> None:
    task_token, job_id = texts
    result = JobResult(success=True, outcome=Outcome.SUCCESS)
    with pytest.raises(InvalidArgument):
        CompletionWriter().write(CompleteRequest(task_token=task_token, result=result, job_id=job_id))


def test_what_no_message_can_hold_is_refused_as_the_server_would() -> None:
    wrong: Any = 0.5
    event = Event(sequence=1, timestamp=1, data=Progress(done=wrong, total=1))
    request = CompleteRequest(task_token="t", job_id="j", result=make_success(), events=[event])
    with pytest.raises(InvalidArgument, match="float"):
        CompletionWriter().write(request)
