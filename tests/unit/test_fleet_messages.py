"""What travels in the queues of the fleet: read back as it was written, and refused with the right code."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunner.domain.errors import PermanentFailure
from airunner.domain.limits import MAX_INSTANT
from airunner.fleet.messages.housekeeping import (
    HousekeepingMessage,
    TaskType,
    format_housekeeping,
    parse_housekeeping,
)
from airunner.fleet.messages.termination import (
    EndStatus,
    TerminationMessage,
    format_termination,
    parse_termination,
)

END: dict[str, Any] = {
    "instance_id": "i-0123456789abcdef0",
    "job_id": "67890",
    "status": "success",
    "exit_code": 0,
    "duration_seconds": 123,
    "started_at": "2025-11-25T10:00:00Z",
    "completed_at": "2025-11-25T10:02:03Z",
}
WISH: dict[str, Any] = {"task_type": "pool_audit", "timestamp": "2025-11-25T10:00:00Z", "params": {}}

instants = st.integers(1, MAX_INSTANT)
anything = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)
letters = st.characters(exclude_categories=["Cs"])


@st.composite
def terminations(draw: st.DrawFn) -> TerminationMessage:
    status = draw(st.sampled_from(EndStatus))
    started_at, completed_at = sorted((draw(instants), draw(instants)))
    return TerminationMessage(
        instance_id=draw(st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True)),
        job_id=draw(st.text(letters, min_size=1, max_size=64)),
        status=status,
        exit_code=0 if status is EndStatus.SUCCESS else draw(st.integers(-255, 255)),
        duration_seconds=draw(st.floats(0, 1e9)),
        started_at=started_at,
        completed_at=completed_at,
        error=draw(st.text(letters, max_size=50)),
        attempt=draw(st.integers(0, 2**31 - 1)),
        termination_token=draw(st.text(letters, max_size=100)),
    )


@settings(max_examples=50)
@given(message=terminations())
def test_a_termination_message_comes_back_as_it_was_sent(message: TerminationMessage) -> None:
    assert parse_termination(format_termination(message)) == message


@given(
    message=st.builds(
        HousekeepingMessage,
        task_type=st.sampled_from(TaskType),
        timestamp=instants,
        dry_run=st.booleans(),
        limit=st.integers(0, 1_000_000),
    )
)
def test_a_housekeeping_message_comes_back_as_it_was_sent(message: HousekeepingMessage) -> None:
    assert parse_housekeeping(format_housekeeping(message)) == message


def test_the_message_of_a_foreign_agent_is_read() -> None:
    message = parse_termination(json.dumps(END))
    assert (message.job_id, message.attempt, message.termination_token) == ("67890", 0, "")
    assert message.completed_at - message.started_at == 123_000


def test_unknown_fields_are_ignored_and_told() -> None:
    message = parse_termination(json.dumps({**END, "zone": "b", "architecture": "arm64"}))
    assert message.unknown_fields == ("architecture", "zone")
    wish = parse_housekeeping(json.dumps({**WISH, "id": "1"}))
    assert wish.unknown_fields == ("id",)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"status": "gone"}, "unknown_status"),
        ({"status": None}, "missing_field"),
        ({"job_id": ""}, "missing_field"),
        ({"job_id": 67890}, "bad_field"),
        ({"instance_id": "i-1/../i-2"}, "bad_field"),
        ({"instance_id": "i-1\n"}, "bad_field"),
        ({"exit_code": 1}, "exit_code"),
        ({"exit_code": True}, "bad_field"),
        ({"exit_code": 10**30}, "bad_field"),
        ({"duration_seconds": -1}, "duration"),
        ({"duration_seconds": "1"}, "bad_field"),
        ({"duration_seconds": 10**400}, "bad_field"),
        ({"completed_at": "2025-11-25T09:59:59Z"}, "times"),
        ({"completed_at": "2025-11-25T10:02:03"}, "bad_field"),
        ({"completed_at": "yesterday"}, "bad_field"),
        ({"attempt": -1}, "bad_field"),
        ({"termination_token": ["t"]}, "bad_field"),
    ],
)
def test_a_termination_message_that_cannot_be_right_is_refused(changes: dict[str, Any], code: str) -> None:
    assert refusal_of_end(json.dumps({**END, **changes})) == code


@pytest.mark.parametrize("name", END)
def test_a_termination_message_without_a_field_is_refused(name: str) -> None:
    assert refusal_of_end(json.dumps({key: END[key] for key in END if key != name})) == "missing_field"


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"exit_code": NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_refused(body: str) -> None:
    assert refusal_of_end(body) == "not_json"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"task_type": "everything"}, "unknown_task"),
        ({"task_type": None}, "missing_field"),
        ({"timestamp": None}, "missing_field"),
        ({"timestamp": "10:00"}, "bad_field"),
        ({"params": {"force": True}}, "unknown_params"),
        ({"params": {"dry_run": "yes"}}, "bad_field"),
        ({"params": {"limit": -1}}, "bad_field"),
        ({"params": []}, "bad_field"),
    ],
)
def test_a_housekeeping_message_that_cannot_be_right_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(PermanentFailure) as refused:
        parse_housekeeping(json.dumps({**WISH, **changes}))
    assert refused.value.code == code


@settings(max_examples=25)
@given(body=anything.map(json.dumps))
def test_whatever_else_comes_is_refused_and_nothing_worse(body: str) -> None:
    assert refusal_of_end(body)


@settings(max_examples=50)
@given(name=st.sampled_from(sorted(END)), value=anything)
def test_no_value_of_a_field_does_anything_worse(name: str, value: object) -> None:
    with suppress(PermanentFailure):
        parse_termination(json.dumps({**END, name: value}))


def test_a_message_is_logged_without_its_token() -> None:
    message = parse_termination(json.dumps({**END, "termination_token": "secret"}))
    assert "secret" not in repr(message)
    assert "secret" not in format_termination(message, with_token=False)


def refusal_of_end(body: str) -> str:
    with pytest.raises(PermanentFailure) as refused:
        parse_termination(body)
    return refused.value.code
