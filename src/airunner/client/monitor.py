"""Watching a job over connections that come and go: nothing is lost, nothing is repeated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from airunner.client.connection import SILENCE_SECONDS
from airunner.client.http.base import ConnectionLost
from airunner.client.prefetch import PrefetchBounds, fetch_ahead
from airunner.client.silence import SilenceLimit
from airunner.client.stream_log import BatchLog, OutputLog, WatchedLog
from airunner.codec.streams import start_from_pb, stream_to_pb
from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    Overloaded,
    ResourceExhausted,
    Unavailable,
    retry_after_seconds,
)
from airunner.domain.event import (
    Event,
    Position,
    start_position,
)

if TYPE_CHECKING:
    from airunner.client.connection import ServiceConnection
    from airunner.client.stored_batch import StoredBatch
    from airunner.client.stream_log import Log
    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.codec.methods import Method
    from airunner.domain.job import Job
    from airunner.domain.requests import StreamRequest

    Messages = AsyncGenerator[list[pb.StreamJobEventBatchesResponse], None]

T = TypeVar("T")


class ConnectionState(StrEnum):
    """What a watcher may be told about its connection."""

    CONNECTED = "connected"
    RECONNECTING = "reconnecting"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """How to watch. `give_up_seconds` bounds the time without any server; None is for ever.

    `first_rounds` bounds how often all servers are tried until one first answers; 0 is for ever.
    """

    on_state: Callable[[ConnectionState, str], None] | None = None
    give_up_seconds: float | None = None
    silence_seconds: float = SILENCE_SECONDS
    first_rounds: int = 0
    ahead: PrefetchBounds = PrefetchBounds()


class Monitor:
    """One watcher of one job: it yields what the server's own stream of single events would, in lists."""

    def __init__(
        self,
        connection: ServiceConnection,
        method: Method[pb.StreamJobEventBatchesRequest, pb.StreamJobEventBatchesResponse],
        find_job: Callable[[str], Awaitable[Job]],
        request: StreamRequest,
        options: MonitorOptions,
    ) -> None:
        self._connection = connection
        self._method = method
        self._find_job = find_job
        self._request = request.validate()
        self._options = options
        self._state: ConnectionState | None = None
        # Whether the server may have begun a stream for us.
        self._begun = False
        self._heard_of = False
        self._failures = 0
        self._away_since = 0

    def batches(self) -> AsyncGenerator[list[Event], None]:
        """Yield the events of each stored batch, single and in order, until the server ends the stream.

        Batches are fetched and unpacked ahead of the caller, within bounds that count the bytes of the wire.
        A stream that breaks or falls
        silent is resumed after the last batch that came, here or at another address. What the server refuses
        is raised, after everything that came before.
        """
        return fetch_ahead(self._fetch(WatchedLog), self._options.ahead)

    def output(self) -> AsyncGenerator[bytes | list[Event], None]:
        """Yield the same, but the bytes alone of a batch that begins at a line and consists of whole ones."""
        return fetch_ahead(self._fetch(OutputLog), self._options.ahead)

    def stored(self) -> AsyncGenerator[StoredBatch, None]:
        """Yield each stored batch or single event of which any event is wanted, whole and still packed."""
        return fetch_ahead(self._fetch(BatchLog), self._options.ahead)

    async def _fetch(
        self, open_log: Callable[[StreamRequest, Position], Log[T]]
    ) -> AsyncGenerator[tuple[T, int], None]:
        request = self._request
        log = None if request.is_relative else open_log(request, start_position(request, 0))
        self._away_since = self._connection.clock.monotonic()
        while True:
            try:
                asked = log.resume() if log else stream_to_pb(request)
                async with self._connected(asked) as (messages, silence):
                    while True:
                        # Only the wait for the server is timed, never the caller who has to make room.
                        with silence:
                            together = await anext(messages, None)
                        if together is None:
                            return
                        if self._state is not ConnectionState.CONNECTED:
                            self._heard()
                        for message in together:
                            log = log or open_log(request, await self._start(message))
                            if taken := log.take(message):
                                yield taken, len(message.event)
            except (Unavailable, DeadlineExceeded, ResourceExhausted) as error:
                await self._wait(error)

    @asynccontextmanager
    async def _connected(
        self, request: pb.StreamJobEventBatchesRequest
    ) -> AsyncIterator[tuple[Messages, SilenceLimit]]:
        """Open a stream; give its messages, and what bounds the wait for each."""
        with closing(SilenceLimit(self._options.silence_seconds)) as silence:
            async with self._connection.stream(self._method, request) as messages:
                yield messages, silence

    async def _start(self, first: pb.StreamJobEventBatchesResponse) -> Position:
        """Settle once what "the current attempt" means, so that no reconnection changes it.

        The server tells with its first message. One that is older does not, and is asked for the job.
        """
        if told := start_from_pb(first):
            return told
        return start_position(self._request, (await self._find_job(self._request.job_id)).attempt)

    def _heard(self) -> None:
        self._failures, self._away_since, self._begun, self._heard_of = 0, 0, True, True
        self._tell(ConnectionState.CONNECTED, "")

    async def _wait(self, error: AirunnerError) -> None:
        """Pause before the next connection, or raise when there shall be none."""
        if isinstance(error, ResourceExhausted) and not isinstance(error, Overloaded) and not self._begun:
            # Later, it is our own broken stream that the server still counts.
            raise error
        self._begun = self._begun or isinstance(error, ConnectionLost)
        now = self._connection.clock.monotonic()
        self._failures += 1
        self._away_since = self._away_since or now
        pause = self._pause(retry_after_seconds(error))
        limit = self._options.give_up_seconds
        if pause is None or (limit is not None and now + pause * 1000 >= self._away_since + limit * 1000):
            raise error
        self._tell(ConnectionState.RECONNECTING, error.text)
        if pause:
            await self._connection.clock.sleep(pause)

    def _pause(self, at_least: float) -> float | None:
        """Return the seconds before the next connection, None to give up; all addresses come first."""
        rounds, tried = divmod(self._failures, self._connection.address_count)
        if tried:
            return 0.0
        if not self._heard_of and 0 < self._options.first_rounds <= rounds:
            return None
        policy = self._connection.policy
        return None if policy.exhausted(rounds) else policy.delay(rounds, at_least=at_least)

    def _tell(self, state: ConnectionState, reason: str) -> None:
        if state is not self._state and self._options.on_state:
            self._options.on_state(state, reason)
        self._state = state
