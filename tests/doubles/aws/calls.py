"""One call of an AWS operation, read from the request, and answers in the shape of each service."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from tests.doubles.aws.wire import AwsAnswer

if TYPE_CHECKING:
    from tests.doubles.aws.wire import AwsRequest

Service = Literal["dynamodb", "sqs", "s3"]

_SERVICES: Final[dict[str, Service]] = {
    "DynamoDB_20120810": "dynamodb",
    "DynamoDBStreams_20120810": "dynamodb",
    "AmazonSQS": "sqs",
}
_ERROR_SPACES: Final = {"dynamodb": "com.amazonaws.dynamodb.v20120810", "sqs": "com.amazonaws.sqs"}
_ERROR_TYPE: Final = {"content-type": "application/x-amz-json-1.0"}
# The names that the query protocol had for the errors of SQS; clients are told these.
_PREFIXED: Final = frozenset(
    {
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "MessageNotInflight",
        "NonExistentQueue",
        "QueueDeletedRecently",
        "TooManyEntriesInBatchRequest",
    }
)
_RENAMED: Final = {"QueueDoesNotExist": "NonExistentQueue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request whose operation is known; `body` is empty for S3."""

    service: Service
    operation: str
    body: dict[str, Any]
    request: AwsRequest

    def with_body(self, body: dict[str, Any]) -> Self:
        """Return the same call with other arguments."""
        return replace(self, body=body, request=self.request.with_json(body))

    def beside(self, operation: str, body: dict[str, Any]) -> Call:
        """Return a call of the proxy's own to the same service, signed like this one."""
        prefix = self.request.target.partition(".")[0]
        headers = self.request.headers | {"x-amz-target": f"{prefix}.{operation}"}
        request = replace(self.request, headers=headers).with_json(body)
        return Call(service=self.service, operation=operation, body=body, request=request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The error that AWS answers a call with in place of performing it."""

    code: str
    message: str
    status: int = 400


def read_call(request: AwsRequest) -> Call:
    """Tell which operation a request is."""
    prefix, _, operation = request.target.partition(".")
    if service := _SERVICES.get(prefix):
        return Call(
            service=service, operation=operation, body=json.loads(request.body or b"{}"), request=request
        )
    is_object = len(request.path.partition("?")[0].strip("/").split("/")) > 1
    name = f"{request.method.capitalize()}{'Object' if is_object else 'Bucket'}"
    return Call(service="s3", operation=name, body={}, request=request)


def answered(body: dict[str, Any]) -> AwsAnswer:
    """Return the answer of a call that succeeded."""
    return AwsAnswer(headers=dict(_ERROR_TYPE), body=json.dumps(body).encode())


def refused(call: Call, refusal: Refusal) -> AwsAnswer:
    """Return the answer of a call that was refused, in the form of its service."""
    if call.service == "s3":
        text = f"<Error><Code>{refusal.code}</Code><Message>{refusal.message}</Message></Error>"
        return AwsAnswer(
            status=refusal.status, headers={"content-type": "application/xml"}, body=text.encode()
        )
    headers = dict(_ERROR_TYPE)
    if call.service == "sqs":
        code = _RENAMED.get(refusal.code, refusal.code)
        prefix = "AWS.SimpleQueueService." if code in _PREFIXED else ""
        sender = "Sender" if refusal.status < 500 else "Receiver"
        headers["x-amzn-query-error"] = f"{prefix}{code};{sender}"
    body = {"__type": f"{_ERROR_SPACES[call.service]}#{refusal.code}", "message": refusal.message}
    return AwsAnswer(status=refusal.status, headers=headers, body=json.dumps(body).encode())
