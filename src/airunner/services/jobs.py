"""JobService: the rules of the queue, on any store."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from airunner import telemetry
from airunner.codec.events import encode_events
from airunner.domain import limits
from airunner.domain.answers import DequeuedJob, HeldJob, QueuePage, WorkerPage
from airunner.domain.errors import (
    AirunnerError,
    AttemptSuperseded,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
)
from airunner.domain.job import JobState
from airunner.domain.lifecycle import held
from airunner.domain.listing import abridged
from airunner.domain.outcomes import prepare_entries, send_entries, single
from airunner.domain.token import TaskToken
from airunner.services import metrics
from airunner.services.api import all_queues, all_workers
from airunner.services.call_log import log_cancelled, log_enqueued, log_paused, log_retried
from airunner.services.caller import current_caller
from airunner.services.job_requests import JobRequests, check_release, retried_job
from airunner.services.notifier import BellKind, end_bell, holder_bell
from airunner.stores.records import AttemptKey, Completion, NewJob, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.answers import Enqueued, QueueStats, WorkerSeen
    from airunner.domain.clock import Clock
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job, JobResult
    from airunner.domain.lifecycle import Lifecycle
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.domain.requests import (
        CompleteRequest,
        DequeueRequest,
        EnqueueRequest,
        OverviewQuery,
        ReleaseRequest,
        UpdateRequest,
    )
    from airunner.domain.token import TokenSigner
    from airunner.services.admission import Admission
    from airunner.services.dispatcher import Dispatcher
    from airunner.services.job_requests import JobRules
    from airunner.services.notifier import Notifier
    from airunner.services.queue_names import QueueNames
    from airunner.services.settings.execution import LiveExecution
    from airunner.services.watchers import Watchers
    from airunner.services.worker_registry import WorkerRegistry
    from airunner.stores.base import JobStore


class InstanceGate(Protocol):
    """Knows which instances get no more work."""

    async def check(self, instance_id: str) -> None:
        """Raise FailedPrecondition if an instance gets none. Asked before each dequeue that names one."""


class JobService:
    """Implements JobsApi."""

    def __init__(
        self,
        *,
        store: JobStore,
        clock: Clock,
        signer: TokenSigner,
        notifier: Notifier,
        watchers: Watchers,
        dispatcher: Dispatcher,
        workers: WorkerRegistry,
        admission: Admission,
        queue_names: QueueNames,
        execution: LiveExecution,
        rules: JobRules,
        instance_gate: InstanceGate | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._signer = signer
        self._terminations = signer.terminations()
        self._notifier = notifier
        self._watchers = watchers
        self._dispatcher = dispatcher
        self._workers = workers
        self._admission = admission
        self._queue_names = queue_names
        self._requests = JobRequests(rules, execution, queue_names)
        self._max_queued = rules.max_queued
        self._instance_gate = instance_gate
        self._stopping = False

    def stop(self) -> None:
        """Let every waiting call answer."""
        self._stopping = True

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs, each with its own outcome."""
        limits.check_range(len(requests), "jobs", 1, limits.MAX_BATCH_ENTRIES)
        now, caller = self._clock.now(), current_caller.get()
        if self._queue_names.full:
            await self._queue_names.make_room([request.queue for request in requests])
        prepared = prepare_entries(requests, lambda request: self._requests.new_job(request, caller, now))
        return await send_entries(prepared, lambda jobs: self._store_new(jobs, log_enqueued))

    async def enqueue_job(self, request: EnqueueRequest) -> Enqueued:
        """Add one job, or raise why not."""
        if self._queue_names.full:
            await self._queue_names.make_room([request.queue])
        job = self._requests.new_job(request, current_caller.get(), self._clock.now())
        return single(await self._store_new([job], log_enqueued))

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs; wait for the first ones if there are none."""
        demand, wait_seconds = self._requests.demand(request, current_caller.get())
        if self._instance_gate and demand.instance_id:
            await self._instance_gate.check(demand.instance_id)
        self._workers.requested(demand, request.abilities, self._clock.now())
        with self._admission.wait() if demand.waits else nullcontext():
            jobs = await self._dispatcher.dequeue(demand, wait_seconds)
        if jobs and demand.waits:
            await self._check_receiver(jobs)
        lost = self._workers.took(demand.worker_id, jobs)
        if jobs:
            metrics.dequeued(jobs, lost)
        return [
            DequeuedJob(job, self._token(job), self._termination_token(job) if job.life.instance_id else "")
            for job in jobs
        ]

    def hand_back(self, jobs: Sequence[DequeuedJob]) -> None:
        """Give back claimed jobs that reached nobody."""
        for dequeued in jobs:
            self._workers.left(dequeued.job.job_id)
        self._dispatcher.hand_back([dequeued.job for dequeued in jobs])

    async def update_job(self, request: UpdateRequest) -> HeldJob:
        """Extend the visibility of a held job; then wait while nothing differs from what the holder knows.

        With too many calls that wait already it answers at once: what extends is never refused.
        """
        seconds = request.visibility_timeout_seconds
        limits.check_range(seconds, "visibility_timeout_seconds", 0, limits.MAX_VISIBILITY_SECONDS)
        limits.check_range(request.wait_seconds, "wait_seconds", 0, limits.MAX_UPDATE_WAIT_SECONDS)
        token = self._held_token(request.task_token, request.queue)
        with (
            self._notifier.listen(holder_bell(token.job_id)) as bell,
            self._admission.wait_if_possible() as may_wait,
        ):
            noted = bell.rings
            now = self._clock.now()
            life = await self._store.extend_job(_key(token), seconds, now)
            self._workers.beat(token.job_id, now, life.visible_until)
            self._notifier.saw(token.job_id, life, {BellKind.HOLDER})
            until = min(now + request.wait_seconds * 1000, life.visible_until) if may_wait else now
            while True:
                watched = self._watchers.watched(token.job_id) or life.watched_until > self._clock.now()
                news = life.cancel_requested or watched != request.watched
                if news or self._clock.now() >= until:
                    return HeldJob(
                        cancel_requested=life.cancel_requested,
                        watched=watched,
                        visible_until=life.visible_until,
                    )
                self._refuse_when_stopping()  # who comes after the last ring would wait in vain
                await bell.wait(noted, until)
                self._refuse_when_stopping()
                await current_caller.get().check_again()
                noted = bell.rings
                life = held(await self._store.get_life(token.job_id), token.attempt)

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        """End held jobs, each with its own outcome."""

        def prepare(request: CompleteRequest) -> Completion:
            request.result.validate()
            return self.prepare_completion(request, encode_events(request.events))

        return await self.complete_prepared(prepare_entries(requests, prepare))

    def prepare_completion(self, request: CompleteRequest, events: Sequence[EncodedEvent]) -> Completion:
        """Check whose end it is. The result was validated, and the events are encoded already."""
        token = self._held_token(request.task_token)
        named = request.job_id or token.job_id
        if named != token.job_id and limits.check_uuid(named, "job_result.job_id") != token.job_id:
            raise InvalidArgument("job_result.job_id is not the job of the task token")
        return Completion(_key(token), request.result, events, request.result_bytes)

    async def complete_prepared(
        self, prepared: Sequence[Completion | AirunnerError]
    ) -> Sequence[JobState | AirunnerError]:
        """End held jobs whose completions were checked; one that was refused keeps its error."""
        limits.check_range(len(prepared), "completions", 1, limits.MAX_BATCH_ENTRIES)
        return await send_entries(prepared, self._store_ends)

    async def release_job(self, request: ReleaseRequest) -> JobState:
        """Give a held job back."""
        return await self.release_encoded(request, encode_events(request.events))

    async def release_encoded(self, request: ReleaseRequest, events: Sequence[EncodedEvent]) -> JobState:
        """Give a held job back, with events that are encoded already."""
        check_release(request, events)
        token = self._held_token(request.task_token)
        release = Release(
            key=_key(token),
            delay_seconds=request.delay_seconds,
            unstarted=request.unstarted,
            error=request.error,
            events=events,
        )
        now = self._clock.now()
        life = await self._store.release_job(release, now)
        metrics.released(life, events, now)
        self._over(token.job_id, life)
        return life.state

    async def end_attempt(
        self, job_id: str, attempt: int, instance_id: str, result: JobResult, *, give_back: bool = False
    ) -> bool:
        """End an attempt for its holder, who is gone, or give it back; return whether that was done here.

        It is if the job runs under this attempt, on this instance; 0 is whichever attempt runs there. May be
        repeated: any other leaves the job as it is. JobNotFound if there is none.
        """
        result.validate()
        job_id = limits.check_uuid(job_id, "job_id")
        life = await self._store.get_life(job_id)
        if life.state is not JobState.RUNNING or life.instance_id != instance_id:
            return False
        # Each attempt is of one instance for ever, so that the attempt in the write is the fence of both.
        key, now = AttemptKey(job_id, attempt or life.attempt), self._clock.now()
        try:
            if give_back:
                life = await self._store.release_job(Release(key=key), now)
                metrics.released(life, (), now)
                self._over(job_id, life)
            else:
                single(await self._store_ends([Completion(key, result)]))
        except (AttemptSuperseded, FailedPrecondition):
            return False
        return True

    async def get_job(
        self, job_id: str, *, wait_seconds: int = 0, want_payload_urls: bool = False, abridge: bool = False
    ) -> Job:
        """Return a job; with wait_seconds, at its end or as it is by then."""
        job_id = limits.check_uuid(job_id, "job_id")
        limits.check_range(wait_seconds, "wait_seconds", 0, limits.MAX_GET_WAIT_SECONDS)
        until = self._clock.now() + wait_seconds * 1000
        waiting = self._admission.wait() if wait_seconds else nullcontext()
        with waiting, self._notifier.listen(end_bell(job_id)) as bell:
            noted = bell.rings
            job = await self._find(job_id, abridge=abridge)
            while not job.state.terminal and self._clock.now() < until:
                self._refuse_when_stopping()
                await bell.wait(noted, until)
                self._refuse_when_stopping()
                await current_caller.get().check_again()
                noted = bell.rings
                # Another server may ring for less than the end: all of it is read when there is an answer.
                ended = (await self._store.get_life(job_id)).state.terminal
                if ended or self._clock.now() >= until:
                    job = await self._find(job_id, abridge=abridge)
        return (await self._linked(job) if want_payload_urls else job).masked()

    async def list_jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first, without their large parts; without a queue, those the caller may see."""
        caller = current_caller.get()
        if query.queue:
            caller.check_queue(limits.check_queue(query.queue))
        limits.check_range(query.page, "page", 1, limits.MAX_PAGE)
        limits.check_range(query.page_size, "page_size", 1, limits.MAX_PAGE_SIZE)
        page = await self._store.list_jobs(query, queues=caller.queues)
        return type(page)(
            jobs=[abridged(job).masked() for job in page.jobs],
            last_page=page.last_page,
            next_cursor=page.next_cursor,
        )

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job; a terminal one is returned unchanged."""
        job_id = limits.check_uuid(job_id, "job_id")
        now, caller = self._clock.now(), current_caller.get()
        job = await self._store.cancel_job(job_id, now, by=caller.principal, queues=caller.queues)
        if metrics.ended(job.life, now) or not job.state.terminal:
            log_cancelled(job)
        self._notifier.changed(job_id, job.life)
        return job.masked()

    async def retry_job(self, job_id: str, request_id: str) -> Job:
        """Enqueue a copy of a terminal job."""
        job_id = limits.check_uuid(job_id, "job_id")
        request_id = limits.check_uuid(request_id, "request_id")
        job = await self._find(job_id)
        copy = retried_job(job, request_id, current_caller.get(), self._clock.now())
        enqueued = single(await self._store_new([copy], log_retried))
        return (await self._store.get_job(enqueued.job_id)).masked()

    async def page_queues(self, query: OverviewQuery) -> QueuePage:
        """Return a page of the queues that were used and that the caller may see, by name."""
        size = query.validate()
        queues = await self._visible_queues(query.cursor, size + 1)
        next_cursor = queues[size - 1].name if len(queues) > size else ""
        return QueuePage(queues=queues[:size], next_cursor=next_cursor)

    async def list_queues(self) -> Sequence[QueueStats]:
        """Return all queues that were used and that the caller may see, by name."""
        return await all_queues(self)

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or allow claims from a queue."""
        caller = current_caller.get()
        caller.check_queue(limits.check_queue(queue))
        if paused and self._queue_names.full:
            await self._queue_names.make_room([queue])
        if paused:
            self._queue_names.check(queue)
        await self._store.set_paused(queue, paused=paused, by=caller.principal, now=self._clock.now())
        log_paused(queue, paused=paused)

    async def page_workers(self, query: OverviewQuery) -> WorkerPage:
        """Return a page of the workers that called lately, or hold jobs; see `list_workers`."""
        size = query.validate()
        queues = current_caller.get().queues
        workers = self._workers.list(self._clock.now(), queues, after=query.cursor, limit=size + 1)
        next_cursor = workers[size - 1].worker_id if len(workers) > size else ""
        return WorkerPage(workers=workers[:size], next_cursor=next_cursor)

    async def list_workers(self) -> Sequence[WorkerSeen]:
        """Return all workers that called lately, or hold jobs, as far as the caller may see their queues."""
        return await all_workers(self)

    async def _visible_queues(self, after: str, limit: int) -> list[QueueStats]:
        visible: list[QueueStats] = []
        while True:
            page = await self._store.list_queues(after=after, limit=limit)
            visible += [stats for stats in page if current_caller.get().may_use(stats.name)]
            if len(page) < limit or len(visible) >= limit:
                return visible[:limit]
            after = page[-1].name

    async def _find(self, job_id: str, *, abridge: bool = False) -> Job:
        """Return a job that the caller may see; any other is not found."""
        return await self._store.get_job(job_id, queues=current_caller.get().queues, abridge=abridge)

    async def _store_new(
        self, jobs: Sequence[NewJob], log: Callable[[Sequence[NewJob]], None]
    ) -> Sequence[Enqueued | AirunnerError]:
        outcomes = await self._store.enqueue_jobs(jobs, max_queued=self._max_queued)
        added = [job for job, outcome in zip(jobs, outcomes, strict=True) if _is_new(job, outcome)]
        telemetry.jobs_enqueued.add(len(added))
        log(added)
        return outcomes

    async def _store_ends(self, completions: Sequence[Completion]) -> list[JobState | AirunnerError]:
        now = self._clock.now()
        outcomes = await self._store.complete_jobs(completions, now)
        metrics.completed(
            [
                metrics.Completed(outcome, entry.events, self._over(entry.key.job_id, outcome))
                for entry, outcome in zip(completions, outcomes, strict=True)
                if not isinstance(outcome, AirunnerError)
            ],
            now,
        )
        return [life if isinstance(life, AirunnerError) else life.state for life in outcomes]

    async def _linked(self, job: Job) -> Job:
        """Return a job with the addresses of its payloads; nothing masks what is read there."""
        linking = self._store.payload_links
        if not linking:
            return job
        links = await linking.link_payloads(job.job_id, limits.PAYLOAD_URL_SECONDS)
        params_url = "" if job.params.may_hold_secrets else links.params_url
        return replace(job, params_url=params_url, result_url=links.result_url)

    def _token(self, job: Job) -> str:
        return self._signer.encode(TaskToken(job.job_id, job.queue, job.life.attempt, job.receipt))

    def _termination_token(self, job: Job) -> str:
        life = job.life
        return self._terminations.encode(job.job_id, life.attempt, life.instance_id)

    def _held_token(self, text: str, queue: str = "") -> TaskToken:
        token = self._signer.decode(text)
        if queue and token.queue != limits.check_queue(queue):
            raise InvalidArgument(f"the task token belongs to queue {token.queue}, not {queue}")
        current_caller.get().check_queue(token.queue)
        return token

    def _over(self, job_id: str, life: Lifecycle) -> int:
        """Forget who holds a job and wake who waits for it; return when it was claimed, 0 if unknown."""
        self._notifier.changed(job_id, life)
        return self._workers.left(job_id)

    async def _check_receiver(self, jobs: Sequence[Job]) -> None:
        """Refuse jobs to a caller whose key was revoked while it waited; others get them."""
        try:
            await current_caller.get().check_again()
        except BaseException:
            self._dispatcher.hand_back(jobs)
            raise

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the server is shutting down")


def _is_new(new_job: NewJob, outcome: Enqueued | AirunnerError) -> bool:
    return not isinstance(outcome, AirunnerError) and outcome.job_id == new_job.job_id


def _key(token: TaskToken) -> AttemptKey:
    return AttemptKey(token.job_id, token.attempt, token.receipt)
