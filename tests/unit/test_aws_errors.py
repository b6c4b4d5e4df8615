"""The one table of AWS errors: what each is counted as, whether it is tried again, what callers are told."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from airunner.aws.calls import AwsOptions
from airunner.aws.errors import (
    CancellationReason,
    ConditionFailed,
    ErrorKind,
    Failure,
    Refused,
    TransactionCancelled,
    may_have_happened,
    read_error,
)
from airunner.codec.errors import to_wire
from airunner.domain.errors import (
    AirunnerError,
    InternalError,
    ResourceExhausted,
    Unavailable,
    error_text,
)

HELD = {"job_id": {"S": "j1"}}


def client_error(code: str, status: int = 400, **more: Any) -> boto.ClientError:
    reply: Any = {
        "Error": {"Code": code, "Message": "quotes an item"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return boto.ClientError(reply, "UpdateItem")


def cancelled(*codes: str) -> boto.ClientError:
    reasons = [{"Code": code, **({"Item": HELD} if code != "None" else {})} for code in codes]
    return client_error("TransactionCanceledException", CancellationReasons=reasons)


def failure_of(error: Exception) -> Failure:
    found = read_error(error)
    assert isinstance(found, Failure)
    return found


@pytest.mark.parametrize(
    "error",
    [
        client_error("ProvisionedThroughputExceededException"),
        client_error("ThrottlingException"),
        client_error("RequestLimitExceeded"),
        client_error("TransactionInProgressException"),
        client_error("OverLimit", 403),
        client_error("AWS.SimpleQueueService.RequestThrottled", 403),
        client_error("com.amazonaws.sqs#RequestThrottled"),
        client_error("SlowDown", 503),
        client_error("NeverHeardOf", 429),
        cancelled("None", "ThrottlingError"),
        cancelled("TransactionConflict", "ProvisionedThroughputExceeded"),
    ],
    ids=repr,
)
def test_throttling_passes(error: Exception) -> None:
    assert_verdict(failure_of(error), ErrorKind.THROTTLED, ResourceExhausted, "throttled")


@pytest.mark.parametrize(
    "error",
    [
        client_error("InternalServerError", 500),
        client_error("NeverHeardOf", 502),
        client_error("", 503),
        client_error("RequestTimeout"),
        client_error("TransactionConflictException"),
        cancelled("None", "TransactionConflict"),
        boto.EndpointConnectionError(endpoint_url="http://x"),
        boto.ConnectionClosedError(endpoint_url="http://x"),
        boto.HTTPClientError(error=OSError()),
        boto.CredentialRetrievalError(provider="x", error_msg="x"),
        boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ResponseParserError("no JSON"),
        aiohttp.ClientPayloadError(),
        ConnectionResetError(),
    ],
    ids=repr,
)
def test_what_is_away_comes_back(error: Exception) -> None:
    assert_verdict(failure_of(error), ErrorKind.AWAY, Unavailable, "error")


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        boto.ReadTimeoutError(endpoint_url="http://x"),
        boto.ConnectTimeoutError(endpoint_url="http://x"),
        aiohttp.ServerTimeoutError(),
    ],
    ids=repr,
)
def test_time_runs_out(error: Exception) -> None:
    assert_verdict(failure_of(error), ErrorKind.TIMED_OUT, Unavailable, "timeout")


def test_it_is_known_what_cannot_have_happened() -> None:
    key = ConnectionKey("x", 80, False, True, None, None, None)
    refused = aiohttp.ClientConnectorError(key, ConnectionRefusedError())
    unreached = (
        boto.EndpointConnectionError(endpoint_url="http://x", error=refused),
        boto.ConnectTimeoutError(endpoint_url="http://x"),
        client_error("ServiceUnavailable", 503),
        client_error("Throttling"),
        client_error("AccessDenied", 403),
    )
    assert not any(may_have_happened(failure_of(error).verdict()) for error in unreached)
    doubtful = (
        boto.EndpointConnectionError(endpoint_url="http://x", error=aiohttp.ClientOSError()),
        boto.ConnectionClosedError(endpoint_url="http://x"),
        client_error("InternalFailure", 500),
        TimeoutError(),
    )
    assert all(may_have_happened(failure_of(error).verdict()) for error in doubtful)
    assert may_have_happened(asyncio.CancelledError())


def assert_verdict(failure: Failure, kind: ErrorKind, told: type[AirunnerError], outcome: str) -> None:
    assert failure.kind is kind
    assert failure.kind.may_pass
    assert isinstance(failure.verdict(), told)
    assert failure.kind.outcome == outcome


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (client_error("ValidationException"), "ValidationException"),
        (client_error("AccessDeniedException"), "AccessDeniedException"),
        (client_error("ResourceNotFoundException"), "ResourceNotFoundException"),
        (client_error("AWS.SimpleQueueService.NonExistentQueue"), "NonExistentQueue"),
        (client_error("NoSuchKey", 404), "NoSuchKey"),
        (client_error("NeverHeardOf"), "NeverHeardOf"),
        (boto.NoCredentialsError(), "NoCredentialsError"),
        (boto.ParamValidationError(report="quotes an item"), "ParamValidationError"),
        (KeyError("quotes an item"), "KeyError"),
    ],
    ids=repr,
)
def test_everything_else_is_our_fault_and_final(error: Exception, code: str) -> None:
    failure = failure_of(error)
    verdict = failure.verdict()
    assert failure == Failure(ErrorKind.FAULT, code)
    assert (failure.kind.may_pass, failure.kind.outcome) == (False, "error")
    assert isinstance(verdict, Refused)
    assert (verdict.code, verdict.text) == (code, InternalError().text)


def test_a_dead_letter_queue_that_is_not_known_yet_has_a_code_of_its_own() -> None:
    reason = "Value {...} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist."
    error = client_error("InvalidParameterValue", Error={"Code": "InvalidParameterValue", "Message": reason})
    assert failure_of(error).code == "DeadLetterTargetDoesNotExist"
    assert failure_of(client_error("InvalidParameterValue")).code == "InvalidParameterValue"


def test_a_failed_condition_carries_what_stood_there() -> None:
    found = read_error(client_error("ConditionalCheckFailedException", Item=HELD))
    assert isinstance(found, ConditionFailed)
    assert found.item == HELD


def test_a_failed_condition_on_nothing_carries_nothing() -> None:
    found = read_error(client_error("ConditionalCheckFailedException"))
    assert isinstance(found, ConditionFailed)
    assert found.item is None


@pytest.mark.parametrize(
    "codes",
    [
        ("None", "ConditionalCheckFailed"),
        ("ConditionalCheckFailed", "TransactionConflict"),
        ("ValidationError",),
    ],
)
def test_a_cancelled_transaction_has_a_reason_for_each_action(codes: tuple[str, ...]) -> None:
    found = read_error(cancelled(*codes))
    assert isinstance(found, TransactionCancelled)
    assert found.reasons == [CancellationReason(code, HELD if code != "None" else None) for code in codes]


def test_reasons_that_are_faults_never_pass() -> None:
    passing = ("None", "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError")
    assert not any(CancellationReason(code).is_fault for code in passing)
    faults = ("ValidationError", "AccessDenied", "ItemCollectionSizeLimitExceeded")
    assert all(CancellationReason(code).is_fault for code in faults)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(ErrorKind.THROTTLED, "ThrottlingException"), "is too busy"),
        (Failure(ErrorKind.AWAY, "EndpointConnectionError"), "does not answer"),
        (Failure(ErrorKind.TIMED_OUT, "TimeoutError"), "does not answer"),
        (Failure(ErrorKind.FAULT, "ResourceNotFoundException"), "does not exist"),
        (Failure(ErrorKind.FAULT, "QueueDoesNotExist"), "does not exist"),
        (Failure(ErrorKind.FAULT, "AccessDenied"), "may not be used by us"),
        (Failure(ErrorKind.FAULT, "NoCredentialsError"), "cannot be asked: there are no credentials"),
        (Failure(ErrorKind.FAULT, "NeverHeardOf"), "fails: NeverHeardOf"),
    ],
    ids=repr,
)
def test_failures_in_words(failure: Failure, text: str) -> None:
    assert failure.in_words == text


def test_options_do_not_show_the_secret() -> None:
    assert "sesame" not in repr(AwsOptions(region="eu-west-1", access_key="k", secret_key="sesame"))


def test_operators_are_told_what_was_refused_and_callers_are_not() -> None:
    refused = Failure(ErrorKind.FAULT, "UnauthorizedOperation").verdict("DescribeInstances")
    assert error_text(refused) == "AWS refused DescribeInstances: UnauthorizedOperation"
    assert error_text(Refused("AccessDenied")) == "AWS refused a call: AccessDenied"
    assert to_wire(refused) == to_wire(InternalError())
