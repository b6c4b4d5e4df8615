"""What an operation of the AWS store costs us beside the bare SDK calls that it needs.

CPU time, since the network is the same for both. The calls of an operation are recorded once, and then made
with the bare SDK in the same order; both sides talk to a server that has its answers ready.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiobotocore.session import get_session
from botocore import xform_name

from airunner.aws.calls import Aws, AwsOptions
from airunner.codec.events import encode_event
from airunner.codec.jobs import encode_params
from airunner.domain.clock import SystemClock
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobParams, JobResult, Outcome, mint_uuid
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import AttemptKey, Completion, NewJob
from airunner.testing.factories import make_batch, make_end
from benchmarks.canned_aws import JOB_ID, LAST_SEQUENCE, QUEUE_URL
from benchmarks.harness import Row, free_port, median, rate, running, until_listening

_ROUNDS = 7
_TIMES = 150
_AT_ONCE = 16
_GOAL = 1.5
_NAME = "bench"
_KEY = AttemptKey(JOB_ID, 1, "receipt")
_NEXT = encode_event(make_batch(LAST_SEQUENCE + 1, LAST_SEQUENCE + 50))
_END = encode_event(make_end(LAST_SEQUENCE + 1))
_SUCCESS = JobResult(success=True, outcome=Outcome.SUCCESS, final_sequence=LAST_SEQUENCE + 1)

Operation = Callable[[AwsStore, int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call that an operation made."""

    service: str
    operation: str
    arguments: dict[str, Any]


class RecordingAws(Aws):
    """Remembers what it is asked."""

    calls: list[Recorded]

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call DynamoDB."""
        self.calls.append(Recorded("dynamodb", operation, arguments))
        return await super().dynamodb(operation, **arguments)

    async def sqs(self, operation: str, *, wait_seconds: float = 0, **arguments: Any) -> dict[str, Any]:
        """Call SQS."""
        self.calls.append(Recorded("sqs", operation, arguments))
        return await super().sqs(operation, wait_seconds=wait_seconds, **arguments)


async def run() -> list[Row]:
    """One row for each operation that jobs are made of."""
    port = free_port()
    with running(sys.executable, "-m", "benchmarks.canned_aws", str(port)):
        await until_listening(port)
        url = f"http://127.0.0.1:{port}"
        return [await _compare(name, operation, url) for name, operation in _OPERATIONS.items()]


async def _compare(name: str, operation: Operation, url: str) -> Row:
    """Take turns, so that whatever else the machine does disturbs both alike."""
    async with _opened(url, Aws) as store, _clients(url) as clients:
        calls = await _record(operation, url)

        async def ours(_: int) -> None:
            await operation(store, SystemClock().now())

        async def bare(_: int) -> None:
            for call in calls:
                await getattr(clients[call.service], xform_name(call.operation))(**call.arguments)

        pairs = []
        for turn in range(_ROUNDS + 1):
            pair = await _cpu_micros(ours, store), await _cpu_micros(bare, store)
            pairs += [pair] if turn else []  # the first opens the connections
    ratio = median([here / there for here, there in pairs])
    return Row(
        name=f"AWS: {name} ({len(calls)} calls)",
        measured=f"{median([here for here, _ in pairs]):,.0f} us of CPU",
        limit=f"{median([there for _, there in pairs]):,.0f} us, bare aiobotocore",
        ratio=ratio,
        goal=f"<= {_GOAL}",
        met=ratio <= _GOAL,
    )


async def _record(operation: Operation, url: str) -> list[Recorded]:
    """Return the calls of an operation whose replica is warm: it knows the queue and remembers the row."""
    async with _opened(url, RecordingAws) as store:
        aws = store._aws  # noqa: SLF001  what it calls is what is measured
        assert isinstance(aws, RecordingAws)
        for _ in range(2):
            aws.calls = []
            await operation(store, SystemClock().now())
            await store._background_tasks.finish()  # noqa: SLF001  they are calls too
        return aws.calls


@asynccontextmanager
async def _opened(url: str, kind: type[Aws]) -> AsyncIterator[AwsStore]:
    aws = kind(AwsOptions(region="eu-west-1", endpoint_url=url, access_key=_NAME, secret_key=_NAME))
    if isinstance(aws, RecordingAws):
        aws.calls = []
    store = AwsStore(aws, Layout(queues={"default": QUEUE_URL}), SystemClock())
    await store.open()
    try:
        # So that the row is remembered, as that of a held job is.
        await store.extend_job(_KEY, 300, SystemClock().now())
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _clients(url: str) -> AsyncIterator[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        session = get_session()
        yield {
            service: await stack.enter_async_context(
                session.create_client(
                    service,
                    region_name="eu-west-1",
                    endpoint_url=url,
                    aws_access_key_id=_NAME,
                    aws_secret_access_key=_NAME,
                )
            )
            for service in ("dynamodb", "sqs")
        }


async def _cpu_micros(call: Callable[[int], Awaitable[None]], store: AwsStore) -> float:
    began = time.process_time()
    await rate(list(range(_TIMES)), _AT_ONCE, call)
    await store._background_tasks.finish()  # noqa: SLF001  what follows an answer belongs to it
    return (time.process_time() - began) / _TIMES * 1_000_000


async def _enqueue(store: AwsStore, now: int) -> None:
    params = JobParams(command="make", args=("test",))
    new = NewJob(
        job_id=mint_uuid(now),
        queue="default",
        principal=_NAME,
        request_id=str(uuid.uuid4()),
        fingerprint=bytes(32),
        params=params,
        params_bytes=encode_params(params),
        execution=ExecutionConfig(),
        max_attempts=3,
        created_at=now,
        due_at=now,
    )
    await store.enqueue_jobs([new])


async def _publish(store: AwsStore, now: int) -> None:
    await store.append_events(_KEY, [_NEXT], now)


async def _extend(store: AwsStore, now: int) -> None:
    await store.extend_job(_KEY, 300, now)


async def _complete(store: AwsStore, now: int) -> None:
    await store.complete_jobs([Completion(_KEY, _SUCCESS, (_END,))], now)


_OPERATIONS: dict[str, Operation] = {
    "enqueue": _enqueue,
    "publish a batch": _publish,
    "heartbeat": _extend,
    "complete": _complete,
}
