"""Letters of a fleet's queues, which anybody may have written: each can be shown, whatever it holds."""

from __future__ import annotations

import json

import pytest

from airunner.aws.sqs import SqsMessage
from airunner.codec.dead_letters import page_from_pb, page_to_pb
from airunner.domain.answers import DeadLetter, DeadLetterPage, DeadLetterReason
from airunner.fleet.dead_letters import judge_letter
from airunner.fleet.messages.housekeeping import parse_housekeeping
from airunner.fleet.messages.termination import parse_termination
from airunner.queues.message_rules import ABANDONED, REASON_ATTRIBUTE

REPORT = {
    "instance_id": "i-1",
    "job_id": "67890",
    "status": "success",
    "exit_code": 0,
    "duration_seconds": 1,
    "started_at": "2025-11-25T10:00:00Z",
    "completed_at": "2025-11-25T10:00:01Z",
}


def letter(body: str, **attributes: str) -> DeadLetter:
    message = SqsMessage(message_id="1", body=body, receipt="", attributes=attributes)
    judged = judge_letter(message, parse_termination)
    page = DeadLetterPage(letters=[judged], approximate_total=1)
    assert page_from_pb(page_to_pb(page)) == page
    return judged


def test_a_letter_says_what_it_is_about_and_why_it_is_there() -> None:
    known = letter(json.dumps(REPORT), **{REASON_ATTRIBUTE: "unknown_job"})
    assert (known.job_id, known.code, known.reason) == ("67890", "unknown_job", DeadLetterReason.MESSAGE)
    # SQS put it aside by itself.
    assert letter(json.dumps(REPORT)).code == ABANDONED
    unreadable = letter("{")
    assert (unreadable.code, unreadable.reason) == ("not_json", DeadLetterReason.UNREADABLE)


@pytest.mark.parametrize(
    ("job_id", "shown"), [("\ud800", "?"), ("a\udfffb\x00", "a?b\x00"), ("é\u2028", "é\u2028")]
)
def test_one_whose_job_is_no_text_can_be_shown(job_id: str, shown: str) -> None:
    assert letter(json.dumps({**REPORT, "job_id": job_id})).job_id == shown


def test_a_code_is_made_of_few_characters() -> None:
    assert letter("{}", **{REASON_ATTRIBUTE: "odd\n code"}).code == "odd__code"


def test_a_letter_of_housekeeping_is_about_no_job() -> None:
    body = json.dumps({"task_type": "old_jobs", "timestamp": "2025-11-25T10:00:00Z"})
    judged = judge_letter(SqsMessage(message_id="1", body=body, receipt=""), parse_housekeeping)
    assert (judged.job_id, judged.code) == ("", ABANDONED)
