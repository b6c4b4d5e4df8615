"""One call of an AWS operation, read from the request, and answers in the shape of each service."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

from tests.doubles.aws.wire import AwsAnswer

if TYPE_CHECKING:
    from tests.doubles.aws.wire import AwsRequest

Service = Literal["dynamodb", "sqs", "s3", "ec2", "ssm", "cloudwatch", "query"]
"""`query` stands for services of the query form that have no rules here, STS for one."""

_SERVICES: Final[dict[str, Service]] = {
    "DynamoDB_20120810": "dynamodb",
    "DynamoDBStreams_20120810": "dynamodb",
    "AmazonSQS": "sqs",
    "AmazonSSM": "ssm",
    "GraniteServiceVersion20100801": "cloudwatch",
}
_ERROR_SPACES: Final = {
    "dynamodb": "com.amazonaws.dynamodb.v20120810",
    "sqs": "com.amazonaws.sqs",
    "cloudwatch": "com.amazonaws.cloudwatch.v2010_08_01",
}
_XML_ERRORS: Final = {
    "s3": "<Error><Code>{code}</Code><Message>{message}</Message></Error>",
    "ec2": "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    "<RequestID>none</RequestID></Response>",
    "query": "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>",
}
_FORM: Final = "application/x-www-form-urlencoded"
_SIGNED_FOR_EC2: Final = re.compile(r"Credential=[^,\s]*/ec2/aws4_request")
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
    """A request whose operation is known; `body` is empty for S3, and flat where it was a form."""

    service: Service
    operation: str
    body: dict[str, Any]
    request: AwsRequest

    def with_body(self, body: dict[str, Any]) -> Self:
        """Return the same call with other arguments."""
        return replace(self, body=body, request=self.request.with_json(body))

    def with_form(self, form: dict[str, str]) -> Self:
        """Return the same call, or one beside it, with the arguments of a form."""
        return replace(self, body=form, request=replace(self.request, body=urlencode(form).encode()))

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
        return Call(service=service, operation=operation, body=_json_of(request), request=request)
    if request.headers.get("content-type", "").startswith(_FORM):
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        is_ec2 = _SIGNED_FOR_EC2.search(request.headers.get("authorization", ""))
        return Call(
            service="ec2" if is_ec2 else "query", operation=form["Action"], body=form, request=request
        )
    assert "smithy-protocol" not in request.headers, "the SDK speaks a protocol that has no rules here"
    is_object = len(request.path.partition("?")[0].strip("/").split("/")) > 1
    name = f"{request.method.capitalize()}{'Object' if is_object else 'Bucket'}"
    return Call(service="s3", operation=name, body={}, request=request)


def answered(body: dict[str, Any]) -> AwsAnswer:
    """Return the answer of a call that succeeded."""
    return AwsAnswer(headers=dict(_ERROR_TYPE), body=json.dumps(body).encode())


def refused(call: Call, refusal: Refusal) -> AwsAnswer:
    """Return the answer of a call that was refused, in the form of its service."""
    if form := _XML_ERRORS.get(call.service):
        text = form.format(code=refusal.code, message=escape(refusal.message))
        return AwsAnswer(
            status=refusal.status, headers={"content-type": "application/xml"}, body=text.encode()
        )
    headers = dict(_ERROR_TYPE)
    if call.service in {"sqs", "cloudwatch"}:
        code = _RENAMED.get(refusal.code, refusal.code)
        prefix = "AWS.SimpleQueueService." if code in _PREFIXED else ""
        sender = "Sender" if refusal.status < 500 else "Receiver"
        headers["x-amzn-query-error"] = f"{prefix}{code};{sender}"
    space = _ERROR_SPACES.get(call.service, "")
    body = {"__type": f"{space}#{refusal.code}".lstrip("#"), "message": refusal.message}
    return AwsAnswer(status=refusal.status, headers=headers, body=json.dumps(body).encode())


def _json_of(request: AwsRequest) -> dict[str, Any]:
    """Return the arguments of a request; the SDK compresses those of CloudWatch that are large."""
    is_packed = request.headers.get("content-encoding") == "gzip"
    text = gzip.decompress(request.body) if is_packed else request.body
    arguments: dict[str, Any] = json.loads(text or b"{}")
    return arguments
