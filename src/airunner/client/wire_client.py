"""WireClient: the two protocols of the services, answered over the wire."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from airunner import codec
from airunner.client.batch_calls import send_batch
from airunner.client.connection import CallRules, connect, parse_servers
from airunner.client.shared_calls import SharedCalls
from airunner.client.transport import Transports
from airunner.codec import lookups, methods
from airunner.domain import limits
from airunner.domain.clock import SystemClock
from airunner.domain.errors import AirunnerError
from airunner.domain.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from airunner.client.http.base import HttpTransport
    from airunner.client.monitor import Monitor, MonitorOptions
    from airunner.codec.building import EncodedMessage
    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.answers import (
        DeadLetter,
        DeadLetterPage,
        DequeuedJob,
        Enqueued,
        HeldJob,
        Published,
        QueuePage,
        QueueStats,
        Redriven,
        Setting,
        WorkerPage,
        WorkerSeen,
    )
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.domain.fleet import HousekeepingRun, PoolReport, TaskType
    from airunner.domain.job import Job, JobState
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.domain.requests import (
        CompleteRequest,
        DequeueRequest,
        EnqueueRequest,
        OverviewQuery,
        Redrive,
        ReleaseRequest,
        StreamRequest,
        UpdateRequest,
    )

DEFAULT_SERVER = "http://127.0.0.1:8080"
_HAND_BACK_SECONDS = 2


class WireClient:
    """Implements JobsApi and EventsApi: domain values in and out, errors of `airunner.domain.errors`.

    With several servers (a list, or a text with commas) a call goes to the next one when one cannot
    answer. Every call may be repeated, and is, until its time-out; only a dequeue is not once it may have
    claimed. Use as an async context, or call `aclose`.
    """

    def __init__(
        self,
        servers: Sequence[str] | str = DEFAULT_SERVER,
        *,
        events_servers: Sequence[str] | str | None = None,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = 30,
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
        transport: HttpTransport | None = None,
    ) -> None:
        rules = CallRules(
            clock=clock or SystemClock(),
            api_key=api_key or "",
            timeout_seconds=timeout_seconds,
            retry=retry or RetryPolicy(),
        )
        addresses = parse_servers(servers)
        self._clock = rules.clock
        # A transport that was given belongs to its giver.
        self._transports = Transports(ca_file, transport)
        self._jobs = connect(addresses, self._transports, rules)
        self._admin = connect(addresses, self._transports, rules)
        events_addresses = parse_servers(events_servers) if events_servers else addresses
        self._events = connect(events_addresses, self._transports, rules)
        self._enqueues = SharedCalls(
            self._enqueue_one, self._enqueue_many, self._enqueue_again, self._jobs.clock
        )

    async def __aenter__(self) -> Self:
        """Return the client itself; it connects when it is first used."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of all connections; the client cannot be used afterwards."""
        await self._transports.aclose()

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs, each with its own outcome. Idempotent on (principal, request_id)."""
        return await send_batch(requests, codec.requests.enqueue_to_pb, self._enqueue_one, self._enqueue_many)

    async def enqueue_job(self, request: EnqueueRequest) -> Enqueued:
        """Add one job, or raise why not. Jobs that are added at the same time share a call."""
        return await self._enqueues.send(codec.requests.enqueue_to_pb(request))

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs; wait for the first ones if there are none. Cancelling the call hands back its jobs.

        When the connection breaks while the server may have claimed, Unavailable is raised rather than
        asking again: jobs whose answer is lost come back when their visibility lapses.
        """
        wait_seconds = request.wait_seconds
        if wait_seconds is None:
            wait_seconds = limits.DEFAULT_DEQUEUE_WAIT_SECONDS
        reply = await self._jobs.call(
            methods.DEQUEUE_JOBS,
            codec.requests.dequeue_to_pb(request),
            wait_seconds=wait_seconds,
            undo=self._hand_back,
        )
        return codec.answers.dequeued_from_pb(reply)

    async def update_job(self, request: UpdateRequest) -> HeldJob:
        """Extend the visibility of a held job; with `wait_seconds`, also wait for news."""
        reply = await self._jobs.call(
            methods.UPDATE_JOB, codec.requests.update_to_pb(request), wait_seconds=request.wait_seconds
        )
        return codec.answers.held_from_pb(reply)

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        """End held jobs, each with its own outcome."""
        from airunner.codec.completions import CompletionWriter

        write = CompletionWriter().write
        return await send_batch(requests, write, self._complete_one, self._complete_many)

    async def release_job(self, request: ReleaseRequest) -> JobState:
        """Give a held job back."""
        from airunner.codec.publishing import release_to_pb  # late: only who holds jobs has events

        reply = await self._jobs.call(methods.RELEASE_JOB, release_to_pb(request))
        return codec.answers.state_from_pb(reply)

    async def get_job(
        self, job_id: str, *, wait_seconds: int = 0, want_payload_urls: bool = False, abridge: bool = False
    ) -> Job:
        """Return a job; with wait_seconds, at its end or as it is by then.

        With `want_payload_urls` and where the server keeps its payloads apart, also where these can be read.
        With `abridge` as a list shows it: without what is large of it, and without what cannot be read.
        """
        request = lookups.get_to_pb(
            job_id=job_id, wait_seconds=wait_seconds, want_payload_urls=want_payload_urls, abridge=abridge
        )
        reply = await self._jobs.call(methods.GET_JOB, request, wait_seconds=wait_seconds)
        return lookups.one_job_from_pb(reply)

    async def list_jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""
        reply = await self._jobs.call(methods.LIST_JOBS, lookups.query_to_pb(query))
        return lookups.page_from_pb(reply)

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job; a terminal one is returned unchanged."""
        reply = await self._jobs.call(methods.CANCEL_JOB, lookups.cancel_to_pb(job_id))
        return lookups.one_job_from_pb(reply)

    async def retry_job(self, job_id: str, request_id: str = "") -> Job:
        """Enqueue a copy of a terminal job. Idempotent on request_id; without one, one is minted."""
        import uuid  # late: most callers enqueue, or only look

        request = lookups.retry_to_pb(job_id=job_id, request_id=request_id or str(uuid.uuid4()))
        return lookups.one_job_from_pb(await self._jobs.call(methods.RETRY_JOB, request))

    async def page_queues(self, query: OverviewQuery) -> QueuePage:
        """Return a page of the queues that were used, by name."""
        reply = await self._jobs.call(methods.LIST_QUEUES, codec.requests.queues_query_to_pb(query))
        return codec.answers.queues_from_pb(reply)

    async def list_queues(self) -> Sequence[QueueStats]:
        """Return all queues that were used, by name: page after page."""
        from airunner.services.api import all_queues

        return await all_queues(self)

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or allow claims from a queue."""
        if paused:
            await self._jobs.call(methods.PAUSE_QUEUE, codec.requests.pause_to_pb(queue))
        else:
            await self._jobs.call(methods.RESUME_QUEUE, codec.requests.resume_to_pb(queue))

    async def page_workers(self, query: OverviewQuery) -> WorkerPage:
        """Return a page of the workers that called the server lately, by name."""
        reply = await self._jobs.call(methods.LIST_WORKERS, codec.requests.workers_query_to_pb(query))
        return codec.answers.workers_from_pb(reply)

    async def list_workers(self) -> Sequence[WorkerSeen]:
        """Return all workers that called the server lately: page after page."""
        from airunner.services.api import all_workers

        return await all_workers(self)

    async def list_dead_letters(self, queue: str, *, max_messages: int = 0, code: str = "") -> DeadLetterPage:
        """Look at dead letters, of a code if one is given; FailedPrecondition where there are none."""
        request = codec.dead_letters.list_to_pb(queue=queue, max_messages=max_messages, code=code)
        reply = await self._admin.call(methods.LIST_DEAD_LETTERS, request)
        return codec.dead_letters.page_from_pb(reply)

    async def redrive_dead_letters(self, redrive: Redrive) -> Redriven:
        """Send dead letters back to their queue."""
        request = codec.dead_letters.redrive_to_pb(redrive)
        reply = await self._admin.call(methods.REDRIVE_DEAD_LETTERS, request)
        return codec.dead_letters.redriven_from_pb(reply)

    async def purge_dead_letters(
        self, queue: str, *, max_messages: int = 0, dry_run: bool = False, code: str = ""
    ) -> Sequence[DeadLetter]:
        """Delete dead letters, of a code if one is given."""
        request = codec.dead_letters.purge_to_pb(
            queue=queue, max_messages=max_messages, dry_run=dry_run, code=code
        )
        reply = await self._admin.call(methods.PURGE_DEAD_LETTERS, request)
        return codec.dead_letters.purged_from_pb(reply)

    async def list_settings(self) -> Sequence[Setting]:
        """Return the settings that can be changed while servers run, by name."""
        reply = await self._admin.call(methods.LIST_SETTINGS, codec.settings.list_to_pb())
        return codec.settings.settings_from_pb(reply)

    async def set_setting(self, name: str, value: str) -> Setting:
        """Set a setting; InvalidArgument if there is none of that name, or the value is not allowed."""
        request = codec.settings.set_to_pb(name=name, value=value)
        return codec.settings.changed_from_pb(await self._admin.call(methods.SET_SETTING, request))

    async def unset_setting(self, name: str) -> Setting:
        """Let the configured value of a setting hold again."""
        request = codec.settings.unset_to_pb(name)
        return codec.settings.changed_from_pb(await self._admin.call(methods.UNSET_SETTING, request))

    async def list_housekeeping_runs(self, *, max_runs: int = 0) -> Sequence[HousekeepingRun]:
        """Return the last runs of a fleet's housekeeping, newest first."""
        request = codec.fleet.list_to_pb(max_runs)
        return codec.fleet.runs_from_pb(await self._admin.call(methods.LIST_HOUSEKEEPING_RUNS, request))

    async def get_pool_report(self, *, max_audits: int = 0) -> PoolReport:
        """Return what the pools of a fleet have and cost, by its last audits."""
        request = codec.fleet.report_request_to_pb(max_audits)
        return codec.fleet.report_from_pb(await self._admin.call(methods.GET_POOL_REPORT, request))

    async def run_housekeeping(self, task: TaskType, *, dry_run: bool = False, limit: int = 0) -> str:
        """Ask for a run of a task of housekeeping; return its slot, which names it in the list of runs.

        Its message is sent; a call that is repeated asks again.
        """
        request = codec.fleet.run_to_pb(task=task, dry_run=dry_run, limit=limit)
        return codec.fleet.run_answer_from_pb(await self._admin.call(methods.RUN_HOUSEKEEPING, request))

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        """Append events of the attempt that the token holds. May be repeated."""
        from airunner.codec.publishing import publish_to_pb

        request = publish_to_pb(task_token, events)
        reply = await self._events.call(methods.PUBLISH_JOB_EVENT_BATCH, request)
        return codec.answers.published_from_pb(reply)

    async def stream_events(
        self, request: StreamRequest, *, first_rounds: int = 0
    ) -> AsyncGenerator[Event, None]:
        """Yield single events: what is stored, then what comes, until the job ends.

        Connections that break are made anew, and nothing is lost or repeated.
        `first_rounds` bounds how often all servers are tried until one is heard for the first time.
        """
        from airunner.client.monitor import MonitorOptions

        async with aclosing(self._watch(request, MonitorOptions(first_rounds=first_rounds))) as batches:
            async for events in batches:
                for event in events:
                    yield event

    def stream_output(
        self, request: StreamRequest, *, first_rounds: int = 0
    ) -> AsyncGenerator[bytes | list[Event], None]:
        """Yield the output of a job: bytes of whole lines, and single events where lines are in pieces.

        Bytes come only where no line is unended, so that they can be written as they are. Events that are no
        output come as events. Connections that break are made anew, and nothing is lost or repeated.
        `first_rounds` bounds how often all servers are tried until one is heard for the first time.
        """
        from airunner.client.monitor import MonitorOptions

        return self._monitor(request, MonitorOptions(first_rounds=first_rounds)).output()

    def _watch(
        self, request: StreamRequest, options: MonitorOptions | None = None
    ) -> AsyncGenerator[list[Event], None]:
        return self._monitor(request, options).batches()

    def _monitor(self, request: StreamRequest, options: MonitorOptions | None) -> Monitor:
        from airunner.client.monitor import Monitor, MonitorOptions  # late: most clients watch nothing

        find_job = partial(self.get_job, abridge=True)
        return Monitor(
            self._events, methods.STREAM_JOB_EVENT_BATCHES, find_job, request, options or MonitorOptions()
        )

    async def _enqueue_one(self, message: EncodedMessage) -> Enqueued:
        return codec.answers.enqueued_from_pb(await self._jobs.call(methods.ENQUEUE_JOB, message))

    async def _enqueue_again(self, message: EncodedMessage, error: Exception, began: int) -> Enqueued:
        answer = await self._jobs.call_again(methods.ENQUEUE_JOB, message, error, began)
        return codec.answers.enqueued_from_pb(answer)

    async def _enqueue_many(self, entries: Sequence[EncodedMessage]) -> Sequence[Enqueued | AirunnerError]:
        request = codec.requests.enqueue_batch_to_pb(entries)
        return codec.answers.enqueue_outcomes_from_pb(await self._jobs.call(methods.ENQUEUE_JOBS, request))

    async def _complete_one(self, message: EncodedMessage) -> JobState:
        return codec.answers.state_from_pb(await self._jobs.call(methods.COMPLETE_JOB, message))

    async def _complete_many(self, entries: Sequence[EncodedMessage]) -> Sequence[JobState | AirunnerError]:
        from airunner.codec.completions import complete_batch_to_pb

        request = complete_batch_to_pb(entries)
        reply = await self._jobs.call(methods.COMPLETE_JOBS, request)
        return codec.answers.complete_outcomes_from_pb(reply)

    async def _hand_back(self, reply: pb.DequeueJobsResponse) -> None:
        """Give back jobs that came too late; what cannot be given back lapses."""
        from airunner.domain.requests import ReleaseRequest

        with suppress(TimeoutError, AirunnerError):
            async with asyncio.timeout(_HAND_BACK_SECONDS):
                for job in reply.jobs:
                    await self.release_job(ReleaseRequest(task_token=job.task_token, unstarted=True))
