"""JobService: the rules of the queue, on any store."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from airunner import telemetry
from airunner.codec.events import encode_events
from airunner.codec.execution import encode_execution, merge_execution
from airunner.codec.jobs import encode_params
from airunner.domain import limits
from airunner.domain.answers import DequeuedJob, HeldJob, QueuePage, WorkerPage
from airunner.domain.errors import (
    AirunnerError,
    AttemptSuperseded,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
)
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobState, mint_uuid
from airunner.domain.lifecycle import held
from airunner.domain.listing import abridged
from airunner.domain.outcomes import prepare_entries, send_entries, single
from airunner.domain.token import TaskToken
from airunner.services import metrics
from airunner.services.api import all_queues, all_workers
from airunner.services.call_log import log_cancelled, log_enqueued, log_paused, log_retried
from airunner.services.caller import current_caller
from airunner.services.notifier import BellKind, end_bell, holder_bell
from airunner.stores.records import AttemptKey, Completion, Demand, NewJob, Release

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
    from airunner.services.caller import Caller
    from airunner.services.dispatcher import Dispatcher
    from airunner.services.notifier import Notifier
    from airunner.services.queue_names import QueueNames
    from airunner.services.settings.execution import LiveExecution
    from airunner.services.watchers import Watchers
    from airunner.services.worker_registry import WorkerRegistry
    from airunner.stores.base import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """What the operator decides about jobs."""

    execution: ExecutionConfig = ExecutionConfig()
    visibility_timeout_seconds: int = limits.DEFAULT_VISIBILITY_SECONDS
    max_attempts: int = limits.DEFAULT_MAX_ATTEMPTS
    max_queued: int = 0


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
        self._execution = execution
        self._rules = rules
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
        prepared = prepare_entries(requests, lambda request: self._prepare(request, caller, now))
        return await send_entries(prepared, lambda jobs: self._store_new(jobs, log_enqueued))

    async def enqueue_job(self, request: EnqueueRequest) -> Enqueued:
        """Add one job, or raise why not."""
        if self._queue_names.full:
            await self._queue_names.make_room([request.queue])
        job = self._prepare(request, current_caller.get(), self._clock.now())
        return single(await self._store_new([job], log_enqueued))

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs; wait for the first ones if there are none."""
        demand, wait_seconds = self._demand(request)
        if self._instance_gate and demand.instance_id:
            await self._instance_gate.check(demand.instance_id)
        self._workers.requested(demand, request.abilities, self._clock.now())
        with self._admission.wait() if demand.waits else nullcontext():
            jobs = await self._dispatcher.dequeue(demand, wait_seconds)
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
        limits.check_range(request.delay_seconds, "delay_seconds", 0, limits.MAX_DELAY_SECONDS)
        limits.check_size(request.error, "error_message", limits.MAX_ERROR_TEXT_BYTES)
        if request.unstarted and (events or request.error):
            raise InvalidArgument("an unstarted attempt has neither events nor an error")
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
        if not job.state.terminal:
            raise FailedPrecondition("only a job that has ended can be retried")
        if job.abridged:
            raise FailedPrecondition("the parameters of this job cannot be read")
        if missing := job.params.missing_secrets:
            raise FailedPrecondition(
                f"secrets were dropped when the job ended: {', '.join(missing)}; enqueue it anew with them"
            )
        now = self._clock.now()
        copy = NewJob(
            job_id=mint_uuid(now),
            queue=job.queue,
            principal=current_caller.get().principal,
            request_id=request_id,
            fingerprint=hashlib.sha256(f"retry {job_id}".encode()).digest(),
            params=job.params,
            params_bytes=encode_params(job.params),
            execution=job.execution,
            max_attempts=job.life.max_attempts,
            created_at=now,
            due_at=now,
            retried_from=job_id,
        )
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

    def _prepare(self, request: EnqueueRequest, caller: Caller, now: int) -> NewJob:
        caller.check_queue(limits.check_queue(request.queue))
        request.params.validate()
        delay = limits.check_range(request.delay_seconds, "delay_seconds", 0, limits.MAX_DELAY_SECONDS)
        max_attempts = limits.in_range_or_default(
            request.max_attempts, "max_attempts", self._rules.max_attempts, 1, limits.MAX_ATTEMPTS
        )
        params_bytes = request.params_bytes or encode_params(request.params)
        limits.check_size(params_bytes, "job_params", limits.MAX_PARAMS_BYTES)
        override = request.execution_bytes or (
            encode_execution(request.execution) if request.execution else b""
        )
        execution = self._execution.current
        return NewJob(
            job_id=mint_uuid(now),
            # Last of all: a request that is refused for something else makes no queue.
            queue=self._queue_names.check(request.queue),
            principal=caller.principal,
            request_id=limits.check_uuid(request.request_id, "request_id"),
            fingerprint=_fingerprint(request.queue, delay, request.max_attempts, params_bytes, override),
            params=request.params,
            params_bytes=params_bytes,
            execution=merge_execution(override, execution) if override else execution,
            max_attempts=max_attempts,
            created_at=now,
            due_at=now + delay * 1000,
        )

    async def _store_new(
        self, jobs: Sequence[NewJob], log: Callable[[Sequence[NewJob]], None]
    ) -> Sequence[Enqueued | AirunnerError]:
        outcomes = await self._store.enqueue_jobs(jobs, max_queued=self._rules.max_queued)
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

    def _demand(self, request: DequeueRequest) -> tuple[Demand, int]:
        limits.check_range(len(request.more_queues), "more_queues", 0, limits.MAX_MORE_QUEUES)
        caller = current_caller.get()
        queues = tuple(dict.fromkeys((request.queue, *request.more_queues)))
        for queue in queues:
            caller.check_queue(limits.check_queue(queue))
        for field in ("worker_id", "instance_id"):
            limits.check_size(getattr(request, field), field, limits.MAX_NAME_BYTES)
        wait_seconds = request.wait_seconds
        if wait_seconds is None:
            wait_seconds = limits.DEFAULT_DEQUEUE_WAIT_SECONDS
        limits.check_range(wait_seconds, "wait_seconds", 0, limits.MAX_DEQUEUE_WAIT_SECONDS)
        lease_seconds = request.first_lease_seconds
        demand = Demand(
            queues=queues,
            first_lease_seconds=limits.check_range(
                lease_seconds, "first_lease_seconds", 0, limits.MAX_VISIBILITY_SECONDS
            ),
            max_jobs=limits.in_range_or_default(request.max_jobs, "max_jobs", 1, 1, limits.MAX_DEQUEUE_JOBS),
            visibility_seconds=limits.in_range_or_default(
                request.visibility_timeout_seconds,
                "visibility_timeout_seconds",
                self._rules.visibility_timeout_seconds,
                1,
                limits.MAX_VISIBILITY_SECONDS,
            ),
            worker_id=request.worker_id,
            instance_id=request.instance_id,
            waits=wait_seconds > 0,
            abilities=_ability_keys(request),
        )
        return demand, wait_seconds

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
            raise InvalidArgument(f"the task token is of queue {token.queue}, not {queue}")
        current_caller.get().check_queue(token.queue)
        return token

    def _over(self, job_id: str, life: Lifecycle) -> int:
        """Forget who holds a job and wake who waits for it; return when it was claimed, 0 if unknown."""
        self._notifier.changed(job_id, life)
        return self._workers.left(job_id)

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the server is shutting down")


def _is_new(new_job: NewJob, outcome: Enqueued | AirunnerError) -> bool:
    return not isinstance(outcome, AirunnerError) and outcome.job_id == new_job.job_id


def _ability_keys(request: DequeueRequest) -> frozenset[str] | None:
    if request.abilities is None:
        return None
    request.abilities.validate()
    return request.abilities.keys


def _key(token: TaskToken) -> AttemptKey:
    return AttemptKey(token.job_id, token.attempt, token.receipt)


def _fingerprint(queue: str, delay: int, max_attempts: int, params: bytes, override: bytes) -> bytes:
    """Return a hash of all that a request says, before defaults: two with the same id can differ in it."""
    head = f"{queue} {delay} {max_attempts} {len(params)} ".encode()
    return hashlib.sha256(head + params + override).digest()
