"""AsyncClient: everything that can be asked of airunner, and what makes it handy."""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from airunner.client.connection import SILENCE_SECONDS
from airunner.client.wire_client import WireClient
from airunner.domain import limits
from airunner.domain.errors import DeadlineExceeded
from airunner.domain.job import JobParams, mint_uuid
from airunner.domain.outcomes import single

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from airunner.client.monitor import ConnectionState
    from airunner.client.stored_batch import StoredBatch
    from airunner.domain.answers import DequeuedJob, Enqueued
    from airunner.domain.event import Event, EventType
    from airunner.domain.execution import ExecutionConfig
    from airunner.domain.job import Job, JobState
    from airunner.domain.requests import Abilities, CompleteRequest, ExecutionOverride, StreamRequest

DEFAULT_QUEUE = "default"


class StreamOptions(TypedDict, total=False):
    """Which events to watch; see StreamRequest."""

    from_sequence: int
    from_timestamp: int
    event_filter: frozenset[EventType]
    attempt: int
    cursor: str
    follow: bool


class AsyncClient(WireClient):
    """The client for people: WireClient, with defaults, single calls and ways to wait."""

    async def enqueue(
        self,
        params: JobParams,
        *,
        queue: str = DEFAULT_QUEUE,
        request_id: str = "",
        delay_seconds: int = 0,
        max_attempts: int = 0,
        execution: ExecutionConfig | ExecutionOverride | None = None,
    ) -> Enqueued:
        """Add one job. The same `request_id` always gives the same job; without one, one is minted."""
        from airunner.domain.requests import EnqueueRequest

        request = EnqueueRequest(
            request_id=request_id or mint_uuid(self._clock.now()),
            queue=queue,
            params=params,
            delay_seconds=delay_seconds,
            max_attempts=max_attempts,
            execution=execution,
        )
        return await self.enqueue_job(request)

    async def dequeue(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        more_queues: Sequence[str] = (),
        max_jobs: int = 1,
        visibility_timeout_seconds: int = 0,
        wait_seconds: int | None = None,
        worker_id: str = "",
        instance_id: str = "",
        abilities: Abilities | None = None,
    ) -> Sequence[DequeuedJob]:
        """Claim jobs; see `dequeue_jobs`."""
        from airunner.domain.requests import DequeueRequest

        request = DequeueRequest(
            queue=queue,
            more_queues=more_queues,
            max_jobs=max_jobs,
            visibility_timeout_seconds=visibility_timeout_seconds,
            wait_seconds=wait_seconds,
            worker_id=worker_id,
            instance_id=instance_id,
            abilities=abilities,
        )
        return await self.dequeue_jobs(request)

    async def complete(self, request: CompleteRequest) -> JobState:
        """End a held job. Repeating the same completion is harmless."""
        return single(await self.complete_jobs([request]))

    async def wait_for_end(self, job_id: str, *, timeout_seconds: float | None = None) -> Job:
        """Return a job once it has ended; DeadlineExceeded when that takes longer than the time-out."""
        until = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds * 1000
        wait = limits.MAX_GET_WAIT_SECONDS
        while True:
            left = math.inf if until is None else max(0, until - self._clock.monotonic()) / 1000
            job = await self.get_job(job_id, wait_seconds=wait if left > wait else math.ceil(left))
            if job.state.terminal:
                return job
            if until is not None and self._clock.monotonic() >= until:
                raise DeadlineExceeded(f"job {job_id} has not ended within {timeout_seconds} s")

    async def run(
        self,
        command: str,
        *args: str,
        queue: str = DEFAULT_QUEUE,
        environment: Mapping[str, str] | None = None,
        working_directory: str = "",
        timeout_seconds: int = 0,
    ) -> Job:
        """Run a command as a job and return it at its end."""
        params = JobParams(
            command=command,
            args=args,
            environment=environment or {},
            working_directory=working_directory,
            timeout_seconds=timeout_seconds,
        )
        return await self.wait_for_end((await self.enqueue(params, queue=queue)).job_id)

    async def monitor(
        self,
        job: StreamRequest | str,
        *,
        on_state: Callable[[ConnectionState, str], None] | None = None,
        give_up_seconds: float | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        **options: Unpack[StreamOptions],
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a job, by its id or by a whole request, until it ends.

        Connections that break are made anew, at another server if there is one, and nothing is lost or
        repeated; `on_state` hears of it, and `give_up_seconds` bounds the time without a server.
        """
        batches = self.monitor_batches(
            job,
            on_state=on_state,
            give_up_seconds=give_up_seconds,
            silence_seconds=silence_seconds,
            **options,
        )
        async with aclosing(batches):
            async for events in batches:
                for event in events:
                    yield event

    def monitor_batches(
        self,
        job: StreamRequest | str,
        *,
        on_state: Callable[[ConnectionState, str], None] | None = None,
        give_up_seconds: float | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        **options: Unpack[StreamOptions],
    ) -> AsyncGenerator[list[Event], None]:
        """Yield the same single events as `monitor`, those of one stored batch at a time."""
        from airunner.client.monitor import MonitorOptions  # late: most clients watch nothing

        how = MonitorOptions(
            on_state=on_state, give_up_seconds=give_up_seconds, silence_seconds=silence_seconds
        )
        return self._watch(_stream_request(job, options), how)

    def stream_batches(
        self,
        job: StreamRequest | str,
        *,
        on_state: Callable[[ConnectionState, str], None] | None = None,
        give_up_seconds: float | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        **options: Unpack[StreamOptions],
    ) -> AsyncGenerator[StoredBatch, None]:
        """Yield what `monitor` reads as it is stored: each batch or single event whole, and still packed.

        The batch in which a stream begins may have events before the position that is asked for. Connections
        are made anew as with `monitor`: no batch is lost or repeated.
        """
        from airunner.client.monitor import MonitorOptions  # late: most clients watch nothing

        how = MonitorOptions(
            on_state=on_state, give_up_seconds=give_up_seconds, silence_seconds=silence_seconds
        )
        return self._monitor(_stream_request(job, options), how).stored()


def _stream_request(job: StreamRequest | str, options: StreamOptions) -> StreamRequest:
    from airunner.domain.requests import StreamRequest

    request = StreamRequest(job_id=job) if isinstance(job, str) else job
    return replace(request, **options)
