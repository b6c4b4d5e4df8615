"""Calls of SQS: how many entries and bytes go into one, and what becomes of each entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airunner.aws import sqs
from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.errors import Refused
from airunner.aws.sqs import RedrivePolicy, SqsEntry
from airunner.domain.errors import AirunnerError, InvalidArgument, ResourceExhausted, Unavailable

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/builds"

Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


class ScriptedSqs(Aws):
    """Notes the calls, and answers them as the test says."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(AwsOptions(region="eu-west-1"))
        self._answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def sqs(self, operation: str, *, wait_seconds: float = 0, **arguments: Any) -> dict[str, Any]:
        self.calls.append((operation, arguments))
        return self._answer(operation, arguments)

    @property
    def sizes(self) -> list[int]:
        return [len(arguments.get("Entries", [0])) for _, arguments in self.calls]


def all_done(_: str, arguments: dict[str, Any]) -> dict[str, Any]:
    entries = arguments.get("Entries", [])
    return {"MessageId": "one", "Successful": [{"Id": entry["Id"], "MessageId": "m"} for entry in entries]}


def failing(code: str, *, sender: bool) -> Answer:
    """Answer that the second entry failed."""

    def answer(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        done = all_done(operation, arguments)["Successful"]
        failed = {"Id": done.pop(1)["Id"], "Code": code, "SenderFault": sender, "Message": "quotes a body"}
        return {"Successful": done, "Failed": [failed]}

    return answer


def raising(error: AirunnerError) -> Answer:
    def answer(_: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise error

    return answer


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([], []),
        ([1] * 25, [10, 10, 5]),
        ([100 * 1024] * 5, [2, 2, 1]),
        ([600 * 1024, 1, 1], [1, 2]),
        ([1, 256 * 1024 - 1, 1], [2, 1]),
    ],
)
async def test_a_call_has_ten_entries_and_256_kib_at_most(lengths: list[int], sizes: list[int]) -> None:
    aws = ScriptedSqs(all_done)
    outcomes = await sqs.send(aws, URL, [SqsEntry(body="x" * length) for length in lengths])
    assert aws.sizes == sizes
    assert len(outcomes) == len(lengths)
    assert all(isinstance(outcome, str) for outcome in outcomes)


async def test_bytes_are_counted_with_attributes_and_not_characters() -> None:
    aws = ScriptedSqs(all_done)
    entries = [SqsEntry(body="é" * 60_000, attributes={"note": "x" * 20_000, "n": 1})] * 2
    assert entries[0].size == 120_000 + 4 + 20_000 + 6 + 1 + 1 + 6
    await sqs.send(aws, URL, entries)
    assert aws.sizes == [1, 1]
    assert aws.calls[0][1]["MessageAttributes"] == {
        "note": {"DataType": "String", "StringValue": "x" * 20_000},
        "n": {"DataType": "Number", "StringValue": "1"},
    }


@pytest.mark.parametrize(
    ("code", "sender", "error"),
    [
        ("InternalError", False, Unavailable),
        ("RequestThrottled", False, ResourceExhausted),
        ("AWS.SimpleQueueService.InvalidMessageContents", True, InvalidArgument),
        ("AccessDenied", True, Refused),
    ],
)
async def test_an_entry_that_fails_has_its_error_in_its_place(
    code: str, sender: bool, error: type[AirunnerError]
) -> None:
    aws = ScriptedSqs(failing(code, sender=sender))
    first, second, third = await sqs.send(aws, URL, [SqsEntry(body="x")] * 3)
    assert (first, third) == ("m", "m")
    assert type(second) is error
    assert "quotes a body" not in str(second)


async def test_a_call_that_fails_is_the_outcome_of_its_entries_only() -> None:
    def answer(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if len(arguments["Entries"]) == 10:
            raise Unavailable("away")
        return all_done(operation, arguments)

    aws = ScriptedSqs(answer)
    outcomes = await sqs.delete(aws, URL, [str(number) for number in range(12)])
    assert [outcome.text if outcome else "" for outcome in outcomes] == ["away"] * 10 + [""] * 2


async def test_an_entry_that_is_not_mentioned_is_not_done() -> None:
    aws = ScriptedSqs(lambda *_: {"Successful": [{"Id": "0"}]})
    first, second = await sqs.change_visibility(aws, URL, ["r1", "r2"], 30)
    assert first is None
    assert isinstance(second, Unavailable)


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (Refused("MessageNotInflight"), True),
        (Refused("ReceiptHandleIsInvalid"), True),
        (Refused("InvalidParameterValue"), True),
        (Refused("AccessDenied"), False),
        (Unavailable(), False),
    ],
    ids=repr,
)
def test_a_receipt_that_holds_nothing_is_told_from_other_refusals(
    error: AirunnerError, is_gone: bool
) -> None:
    assert sqs.is_gone(error) is is_gone


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (
            '{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:123456789012:buried", "maxReceiveCount": "5"}',
            RedrivePolicy(
                dead_letter_url="https://sqs.eu-west-1.amazonaws.com/123456789012/buried", max_receive_count=5
            ),
        ),
        ("", None),
    ],
)
async def test_the_redrive_policy_names_the_dead_letter_queue(
    text: str, policy: RedrivePolicy | None
) -> None:
    aws = ScriptedSqs(lambda *_: {"Attributes": {"RedrivePolicy": text}} if text else {})
    assert await sqs.read_redrive_policy(aws, URL) == policy


async def test_a_queue_that_does_not_exist_has_no_address() -> None:
    assert await sqs.find_queue(ScriptedSqs(raising(Refused("QueueDoesNotExist"))), "nowhere") == ""
    with pytest.raises(Refused):
        await sqs.find_queue(ScriptedSqs(raising(Refused("AccessDenied"))), "builds")
