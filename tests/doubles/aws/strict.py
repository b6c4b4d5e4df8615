"""The proxy between a client and the emulator: it counts, refuses what AWS refuses, and breaks things."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from tests.doubles.aws.calls import Refusal, read_call, refused
from tests.doubles.aws.cloudwatch import cloudwatch_refusal
from tests.doubles.aws.conditions import Conditions
from tests.doubles.aws.counts import Counts
from tests.doubles.aws.dynamodb import StrictDynamoDb
from tests.doubles.aws.ec2 import StrictEc2
from tests.doubles.aws.faults import FaultKind, Faults
from tests.doubles.aws.sqs import StrictSqs
from tests.doubles.aws.ssm import perform_ssm
from tests.doubles.aws.wire import HEAD_LIMIT, AwsAnswer, read_answer, read_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from tests.doubles.aws.calls import Call, Service
    from tests.doubles.aws.faults import Fault

_REFUSALS: Final[dict[FaultKind, dict[Service, Refusal]]] = {
    FaultKind.THROTTLE: {
        "dynamodb": Refusal(
            code="ThrottlingException", message="Rate of requests exceeds the allowed throughput."
        ),
        "sqs": Refusal(code="RequestThrottled", message="The request was denied due to request throttling."),
        "s3": Refusal(code="SlowDown", message="Please reduce your request rate.", status=503),
        "ec2": Refusal(code="RequestLimitExceeded", message="Request limit exceeded.", status=503),
        "ssm": Refusal(code="ThrottlingException", message="Rate exceeded"),
        "cloudwatch": Refusal(code="Throttling", message="Rate exceeded"),
        "query": Refusal(code="Throttling", message="Rate exceeded"),
    },
    FaultKind.SERVER_ERROR: {
        "dynamodb": Refusal(code="InternalServerError", message="Internal server error", status=500),
        "sqs": Refusal(code="InternalFailure", message="Internal server error", status=500),
        "s3": Refusal(code="InternalError", message="We encountered an internal error.", status=500),
        "ec2": Refusal(code="InternalError", message="An internal error has occurred", status=500),
        "ssm": Refusal(code="InternalServerError", message="An internal error occurred.", status=500),
        "cloudwatch": Refusal(code="InternalServiceFault", message="Internal service fault", status=500),
        "query": Refusal(code="InternalFailure", message="Internal failure", status=500),
    },
}
_NOT_ALLOWED: Final = Refusal(code="AccessDenied", message="Access Denied", status=403)
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class StrictAws:
    """What AWS knows beyond the emulator: shared by all proxies before it, as replicas share one AWS.

    `now` is the clock of the emulator's SQS, in seconds from anywhere.
    """

    def __init__(self, emulator_url: str, now: Callable[[], float] = time.monotonic) -> None:
        self.emulator_url = emulator_url
        self.conditions = Conditions()
        self.dynamodb = StrictDynamoDb(now, self.conditions)
        self.sqs = StrictSqs(now, self.conditions)
        self.ec2 = StrictEc2()

    def catch_up(self) -> None:
        """Let every reader know of every write so far."""
        self.dynamodb.images.catch_up()
        self.ec2.catch_up()

    def proxy(self, seed: int = 0) -> StrictProxy:
        """Return an endpoint with faults and counts of its own."""
        return StrictProxy(self, seed)


class StrictProxy:
    """An endpoint like the emulator's: every call is counted, may go wrong, and is judged as AWS would.

    Connections are kept alive on both sides, with one upstream for each of a client. Calls of the proxy's own
    (the schema of a table, an old image) are neither counted nor befallen by faults.
    """

    def __init__(self, aws: StrictAws, seed: int = 0) -> None:
        parts = urlsplit(aws.emulator_url)
        self._address = (parts.hostname, parts.port)
        self._aws = aws
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.counts = Counts()
        self.conditions = aws.conditions
        self.faults = Faults(seed, on_release=aws.catch_up)
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_LIMIT)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream = Upstream(self._address)
        try:
            with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                while await self._serve_one(reader, writer, upstream):
                    await writer.drain()
        finally:
            self._connections.discard(task)
            upstream.close()
            writer.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Upstream
    ) -> bool:
        """Answer the next call; False if the connection was broken in place of an answer."""
        call = read_call(await read_request(reader, writer))
        self.counts.arrived(call)
        befalling = self.faults.draw(call.operation)
        if FaultKind.RESET in befalling:
            reset(writer)
            return False
        if delay := befalling.get(FaultKind.DELAY):
            await self._wait(self.faults.released.wait(), delay.seconds or None)
        answer = await self._answer(call, upstream, befalling)
        if FaultKind.EXECUTE_THEN_HOLD in befalling:
            await self._hold(reader)
        if FaultKind.EXECUTE_THEN_DROP in befalling:
            reset(writer)
            return False
        writer.write(answer.encoded())
        return True

    async def _answer(self, call: Call, upstream: Upstream, befalling: dict[FaultKind, Fault]) -> AwsAnswer:
        for kind, refusals in _REFUSALS.items():
            if kind in befalling:
                return refused(call, refusals[call.service])
        match call.service:
            case "sqs":
                return await self._aws.sqs.perform(call, upstream.send, self.faults, befalling)
            case "ec2":
                return await self._aws.ec2.perform(call, upstream.send, self.faults, befalling)
            case "ssm":
                return await perform_ssm(call, upstream.send, befalling)
            case "cloudwatch":
                refusal = cloudwatch_refusal(call)
                return refused(call, refusal) if refusal else await upstream.send(call)
            case "s3" | "query":
                return self._seen_by_caller(call, await upstream.send(call))
        answer = await self._aws.dynamodb.perform(call, upstream.send, self.faults, befalling)
        if answer.status == 200:
            self.counts.answered(call, json.loads(answer.body))
        return answer

    def _seen_by_caller(self, call: Call, answer: AwsAnswer) -> AwsAnswer:
        """Return an answer of S3: it tells who may list that an object is missing, and others nothing."""
        if self._aws.conditions.may_list_objects or answer.status != 404:
            return answer
        if call.operation == "HeadObject":
            return AwsAnswer(status=403)
        return refused(call, _NOT_ALLOWED) if b"NoSuchKey" in answer.body else answer

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        """Say nothing until the client has left or the faults are released."""
        leaving = asyncio.ensure_future(reader.read(1))
        release = asyncio.ensure_future(self.faults.released.wait())
        try:
            await asyncio.wait({leaving, release}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            release.cancel()
            await asyncio.gather(leaving, release, return_exceptions=True)

    async def _wait(self, release: Coroutine[Any, Any, Any], seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(release, seconds)


class Upstream:
    """The connection to the emulator that belongs to one of a client; opened with the first call."""

    def __init__(self, address: tuple[str | None, int | None]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, call: Call) -> AwsAnswer:
        """Have the emulator perform a call."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=HEAD_LIMIT)
        reader, writer = self._streams
        writer.write(call.request.encoded())
        answer = await read_answer(reader, to_head=call.request.method == "HEAD")
        if answer.is_last:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection, so that the other side sees a reset and no end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
