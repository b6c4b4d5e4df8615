"""The one way to call AWS: with a deadline, a bounded number of tries, and everything counted.

The SDK's own retries are off; these here are the only ones. A call is repeated when its reply is lost, so it
may have happened before: whoever makes a conditional write must be able to know its own item again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from botocore import xform_name

from airunner.aws import metrics
from airunner.aws.clients import SERVICES, AwsOptions, open_clients
from airunner.aws.errors import (
    CancellationReason,
    ConditionFailed,
    ErrorKind,
    Failure,
    Refused,
    TransactionCancelled,
    read_error,
)
from airunner.aws.retry_budget import Repetitions, RetryBudget
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.domain.retry import RetryPolicy, retry
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from types import TracebackType

    from airunner.domain.clock import Clock

__all__ = ["Aws", "AwsOptions", "CancellationReason", "ConditionFailed", "Refused", "TransactionCancelled"]

_log = get_logger("airunner.aws")

T = TypeVar("T")
_Method = Callable[..., Awaitable[dict[str, Any]]]

# Pauses that grow up to 5 s, so that throttles of a few seconds pass.
_POLICY: Final = RetryPolicy(first_seconds=0.05, max_seconds=5.0, jitter=1.0)
_METERED: Final = frozenset({
    "BatchGetItem",
    "BatchWriteItem",
    "DeleteItem",
    "GetItem",
    "PutItem",
    "Query",
    "Scan",
    "TransactGetItems",
    "TransactWriteItems",
    "UpdateItem",
})  # fmt: skip


class Aws:
    """Calls services of AWS by the names of their operations; open from `async with` to its end.

    Raises ConditionFailed and TransactionCancelled for an answer that says no, ResourceExhausted when AWS
    throttles us to the last try, Unavailable when it does not answer, else Refused, an InternalError.
    Safe to share between tasks. Cancelling a call ends it at once; it may have happened nevertheless.
    """

    def __init__(
        self, options: AwsOptions, *, clock: Clock | None = None, policy: RetryPolicy | None = None
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._policy = policy or replace(_POLICY, attempts=options.attempts)
        self._throttled_policy = policy or replace(_POLICY, attempts=options.throttled_attempts)
        self._endless_policy = replace(self._policy, attempts=None)
        self._budgets = {service: RetryBudget() for service in SERVICES.values()}
        self._stack = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        self._methods: dict[tuple[str, str], _Method] = {}
        self._listeners: dict[str, Callable[[], None]] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._clients = await open_clients(stack, self._options)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._methods.clear()
        self._clients.clear()
        await self._stack.aclose()

    @property
    def region(self) -> str:
        """The region whose services are called."""
        return self._options.region

    async def dynamodb(
        self, operation: str, *, expected: Collection[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Call DynamoDB, "UpdateItem" for one; items are low-level attribute values.

        Here as below, refusals with an `expected` code are raised like others, but not logged as faults.
        """
        if operation in _METERED:
            arguments.setdefault("ReturnConsumedCapacity", "TOTAL")
        if operation == "TransactWriteItems":
            # One token for all tries, or a lost reply would make the second fail on what the first wrote.
            arguments.setdefault("ClientRequestToken", str(uuid.uuid4()))
        reply = await self._call("dynamodb", operation, arguments, expected=expected)
        if consumed := reply.get("ConsumedCapacity"):
            metrics.count_capacity(operation, consumed)
        return reply

    async def batch_get(
        self, table: str, keys: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[dict[str, Any]]:
        """Return the items of at most 100 keys, those that exist; see `batch_write`."""
        return await self._in_parts("BatchGetItem", "UnprocessedKeys", table, {"Keys": keys, **options})

    async def batch_write(self, table: str, requests: Sequence[Mapping[str, Any]]) -> None:
        """Put or delete at most 25 items.

        What an answer leaves undone is asked for again after a growing pause, as long as each few tries get
        something done; then the table throttles us.
        """
        await self._in_parts("BatchWriteItem", "UnprocessedItems", table, requests)

    async def sqs(
        self, operation: str, *, wait_seconds: float = 0, expected: Collection[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Call SQS. `wait_seconds` is how long a long poll may wait, and prolongs the deadline by as much."""
        client = "polls" if wait_seconds else "sqs"
        return await self._call(client, operation, arguments, wait_seconds, expected)

    async def s3(self, operation: str, *, expected: Collection[str] = (), **arguments: Any) -> dict[str, Any]:
        """Call S3. A `Body` in the reply is read to its end: bytes, not a stream."""
        return await self._call("s3", operation, arguments, expected=expected)

    async def streams(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call DynamoDB Streams, where the options name this client."""
        return await self._call("streams", operation, arguments)

    async def sts(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call the service that knows who we are, where the options name this client."""
        return await self._call("sts", operation, arguments)

    async def cloudwatch(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call CloudWatch, where the options name this client."""
        return await self._call("cloudwatch", operation, arguments)

    async def ec2(
        self, operation: str, *, expected: Collection[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Call EC2, where the options name this client."""
        return await self._call("ec2", operation, arguments, expected=expected)

    async def ssm(
        self, operation: str, *, expected: Collection[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Call the parameter store of Systems Manager, where the options name this client."""
        return await self._call("ssm", operation, arguments, expected=expected)

    async def presign(self, key: str, seconds: int) -> str:
        """Return an address that anybody can read the bucket's object at, for so long."""
        arguments = {"Bucket": self._options.bucket, "Key": key}
        url: str = await self._clients["s3"].generate_presigned_url(
            "get_object", Params=arguments, ExpiresIn=seconds
        )
        return url

    def listen(self, table: str, heard: Callable[[], None]) -> None:
        """Have `heard` called with every answer about a table, one that says no included."""
        self._listeners[table] = heard

    async def ask_table(self, table: str, key: Mapping[str, Any]) -> str:
        """Ask a table for the item of a key; return what is wrong with it, empty if nothing is.

        One try, here and below: whoever wants to know will ask again.
        """
        return await self._ask("dynamodb", "GetItem", {"TableName": table, "Key": key})

    async def ask_queue(self, url: str) -> str:
        """Ask a queue for nothing; return what is wrong with it, empty if nothing is."""
        return await self._ask("sqs", "GetQueueAttributes", {"QueueUrl": url})

    async def ask_bucket(self, key: str) -> str:
        """Ask the bucket for an object that is not there; return what is wrong with it, empty if nothing is.

        That takes the right to list the bucket: without it, AWS does not say that an object is missing.
        """
        arguments = {"Bucket": self._options.bucket, "Key": key}
        return await self._ask("s3", "GetObject", arguments, expected="NoSuchKey")

    async def _ask(
        self, client: str, operation: str, arguments: Mapping[str, Any], *, expected: str = ""
    ) -> str:
        answer = await self._try(client, operation, arguments)
        if not isinstance(answer, Failure) or answer.code == expected:
            return ""
        return answer.in_words

    async def _in_parts(
        self, operation: str, unprocessed: str, table: str, request: Any
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        left, fruitless = request, 0

        async def next_part() -> None:
            nonlocal left, fruitless
            answer = await self.dynamodb(operation, RequestItems={table: left})
            found.extend(answer.get("Responses", {}).get(table, []))
            before, left = left, answer.get(unprocessed, {}).get(table)
            if left:
                fruitless = fruitless + 1 if _entries(left) == _entries(before) else 0
                raise _TryFailed(Failure(ErrorKind.THROTTLED, unprocessed))

        def may_go_on(error: Exception) -> bool:
            return isinstance(error, _TryFailed) and not self._policy.exhausted(fruitless)

        await self._repeat("dynamodb", operation, next_part, self._endless_policy, may_go_on)
        return found

    async def _call(
        self,
        client: str,
        operation: str,
        arguments: Mapping[str, Any],
        wait_seconds: float = 0,
        expected: Collection[str] = (),
    ) -> dict[str, Any]:
        service = SERVICES[client]
        tries = Repetitions(self._budgets[service], self._policy, self._throttled_policy)

        async def one_try() -> dict[str, Any]:
            try:
                answer = await self._try(client, operation, arguments, wait_seconds)
            except (ConditionFailed, TransactionCancelled):
                tries.answered()
                raise
            if isinstance(answer, Failure):
                raise _TryFailed(answer)
            tries.answered()
            return answer

        def may_go_on(error: Exception) -> bool:
            may_follow = isinstance(error, _TryFailed) and tries.may_follow(error.failure.kind)
            if tries.is_refused:
                metrics.count_refused_retry(service)
            return may_follow

        return await self._repeat(service, operation, one_try, self._endless_policy, may_go_on, expected)

    async def _repeat(
        self,
        service: str,
        operation: str,
        call: Callable[[], Awaitable[T]],
        policy: RetryPolicy,
        retry_if: Callable[[Exception], bool],
        expected: Collection[str] = (),
    ) -> T:
        repeated = 0

        def count(_: Exception, failures: int) -> None:
            nonlocal repeated
            repeated = failures
            metrics.count_retry(service)

        try:
            return await retry(policy, self._clock, call, retry_if=retry_if, on_failure=count)
        except _TryFailed as error:
            failure = error.failure
        # Raised out here, so that no error of the SDK hangs on to what our callers are told.
        if failure.code not in expected:
            _log_end(service, operation, failure, repeated + 1)
        raise failure.verdict(operation)

    async def _try(
        self, client: str, operation: str, arguments: Mapping[str, Any], wait_seconds: float = 0
    ) -> dict[str, Any] | Failure:
        method = self._methods.get((client, operation)) or self._look_up(client, operation)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._options.seconds_of(client) + wait_seconds):
                reply = await method(**arguments)
                if client == "s3" and "Body" in reply:
                    reply["Body"] = await reply["Body"].read()
        except Exception as error:  # noqa: BLE001  the table knows them all, and calls the rest our fault
            said = read_error(error)
        else:
            metrics.count_call(SERVICES[client], operation, "ok", time.perf_counter() - began)
            self._note_answer(arguments)
            return reply
        outcome = said.kind.outcome if isinstance(said, Failure) else "ok"
        metrics.count_call(SERVICES[client], operation, outcome, time.perf_counter() - began)
        if isinstance(said, Failure):
            return said
        self._note_answer(arguments)
        raise said

    def _note_answer(self, arguments: Mapping[str, Any]) -> None:
        for table in _tables_of(arguments) if self._listeners else ():
            if heard := self._listeners.get(table):
                heard()

    def _look_up(self, client: str, operation: str) -> _Method:
        if not self._clients:
            raise Unavailable("The store is closed.")
        method: _Method = getattr(self._clients[client], xform_name(operation))
        self._methods[client, operation] = method
        return method


class _TryFailed(Exception):
    """A try got no answer, or a batch was done in part."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code)
        self.failure = failure


def _tables_of(arguments: Mapping[str, Any]) -> Iterable[str]:
    """Return the tables that a call is about: none, if it is not one of DynamoDB on items."""
    if "TableName" in arguments:
        return (arguments["TableName"],)
    actions = (action for entry in arguments.get("TransactItems", ()) for action in entry.values())
    return {*arguments.get("RequestItems", ()), *(action["TableName"] for action in actions)}


def _entries(request: Any) -> int:
    """Return how many keys or writes a batch has."""
    return len(request["Keys"] if isinstance(request, dict) else request)


def _log_end(service: str, operation: str, failure: Failure, tries: int) -> None:
    level = _log.warning if failure.kind.may_pass else _log.error
    level("aws.call_failed", service=service, operation=operation, code=failure.code, tries=tries)
