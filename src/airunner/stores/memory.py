"""The memory store: the readable reference of what every store does. Nothing survives the process."""

from __future__ import annotations

import asyncio
import bisect
import heapq
import itertools
import sys
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from airunner.domain import lifecycle
from airunner.domain.answers import Enqueued, QueueStats
from airunner.domain.errors import AirunnerError, AlreadyExists, JobNotFound, ResourceExhausted
from airunner.domain.job import Job, JobState
from airunner.domain.listing import JobPage, JobQuery, abridged
from airunner.domain.splitting import take_by_size
from airunner.stores.base import Capabilities
from airunner.stores.pages import (
    RUNNING_AT_ONCE,
    PageBounds,
    cut_page,
    keys_wanted,
    make_cursor,
    parse_cursor,
)
from airunner.stores.records import (
    ApiKey,
    AttemptKey,
    Completion,
    Demand,
    EventPage,
    EventQuery,
    NewJob,
    PurgedJobs,
    Release,
    Retention,
    RunningJob,
    RunningPage,
    Upkeep,
    claim_size,
    fill_page,
)
from airunner.stores.settings import StoredSetting, changed
from airunner.stores.waiting import WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from airunner.domain.clock import Clock, Timer
    from airunner.domain.event import EncodedEvent
    from airunner.domain.lifecycle import Lifecycle


class MemoryStore:
    """Implements JobStore with dictionaries; every method is one step of the event loop."""

    capabilities = Capabilities(strict_fifo=True, redelivery_slack_seconds=0, durable=False)
    payload_links = None
    dead_letters = None
    shared = None
    changes = None
    parts = None

    def __init__(
        self, clock: Clock, *, list_bounds: PageBounds | None = None, drop_secrets: bool = False
    ) -> None:
        self._clock = clock
        self._list_bounds = list_bounds or PageBounds()
        # Whether a job that ends loses the secret values of its parameters.
        self._drop_secrets = drop_secrets
        # In the order of their enqueueing, which is also that of their delivery.
        self._jobs: dict[str, Job] = {}
        # The number of each, which rises with every enqueue and is never used again.
        self._numbers: dict[str, int] = {}
        # Those that ended, in that order. A plain dictionary is slow to walk once its first entries are gone.
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._params_bytes: dict[str, int] = {}
        self._next_number = itertools.count(1)
        self._fingerprints: dict[tuple[str, str], tuple[bytes, str]] = {}
        # Of each queue, the jobs that are not at their end, by the key of their handler.
        self._open: dict[str, dict[str, dict[str, None]]] = {}
        # Of each queue, how many of these are scheduled.
        self._scheduled: Counter[str] = Counter()
        # Of each queue that was ever paused, by whom it is now and since when.
        self._paused: dict[str, tuple[str, int] | None] = {}
        # Of each job, its events by (attempt, first sequence), and when each was stored.
        self._events: dict[str, list[tuple[int, EncodedEvent]]] = {}
        self._room: WaitingRoom[asyncio.Future[Sequence[Job]]] = WaitingRoom()
        self._wake: Timer | None = None
        self._keys: dict[str, ApiKey] = {}
        self._settings: dict[str, StoredSetting] = {}

    async def open(self) -> None:
        """Nothing outlives the process, so there is nothing to make ready."""

    async def close(self) -> None:
        """Let waiting dequeues go."""
        if self._wake:
            self._wake.cancel()
        for answer in self._room.empty_out():
            answer.set_result(())

    async def check(self) -> None:
        """Memory always answers."""

    async def enqueue_jobs(
        self, jobs: Sequence[NewJob], *, max_queued: int = 0
    ) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome."""
        outcomes = [self._enqueue(job, max_queued) for job in jobs]
        self._serve({job.queue for job in jobs})
        return outcomes

    async def dequeue_jobs(self, demand: Demand) -> Sequence[Job]:
        """Claim jobs, or wait for them."""
        claimed = self._claim(demand)
        if claimed or not demand.waits:
            return claimed
        answer: asyncio.Future[Sequence[Job]] = asyncio.get_running_loop().create_future()
        self._room.park(demand, answer)
        self._arm()
        return await answer

    async def withdraw(self, demand: Demand) -> None:
        """Make a waiting dequeue answer with nothing."""
        answer = self._room.leave(demand)
        if answer:
            answer.set_result(())

    async def extend_job(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time."""
        job = self._job(key.job_id)
        life = lifecycle.extend(job.life, key.attempt, now=now, visibility_seconds=visibility_seconds)
        return self._save(job, life).life

    async def append_events(self, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
        """Store the events that continue the attempt."""
        job = self._job(key.job_id)
        life, fresh = lifecycle.append(job.life, key.attempt, events, now=now)
        self._keep_events(key.job_id, fresh, now)
        return self._save(job, life).life

    async def complete_jobs(
        self, completions: Sequence[Completion], now: int
    ) -> Sequence[Lifecycle | AirunnerError]:
        """End jobs, each with its own outcome."""
        return [self._complete(completion, now) for completion in completions]

    async def release_job(self, release: Release, now: int) -> Lifecycle:
        """Give a job back."""
        job = self._job(release.key.job_id)
        appended, fresh = lifecycle.append(job.life, release.key.attempt, release.events, now=now)
        life = lifecycle.release(
            appended,
            release.key.attempt,
            now=now,
            delay_seconds=release.delay_seconds,
            unstarted=release.unstarted,
            error=release.error,
        )
        self._keep_events(job.job_id, fresh, now)
        self._save(job, life)
        self._serve({job.queue})
        return life

    async def cancel_job(self, job_id: str, now: int, *, by: str = "", queues: Collection[str] = ()) -> Job:
        """Cancel a job."""
        job = self._job(job_id, queues)
        return self._save(job, lifecycle.cancel(job.life, now=now, by=by))

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        """Return a job."""
        job = self._job(job_id, queues)
        return abridged(job) if abridge else job

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        """Return the life of a job."""
        return self._job(job_id, queues).life

    async def list_jobs(self, query: JobQuery, *, queues: Collection[str] = ()) -> JobPage:
        """Return jobs, newest first."""
        before = parse_cursor(query.cursor) if query.cursor else sys.maxsize
        matching = (
            job_id
            for job_id, job in reversed(self._jobs.items())
            if query.queue in ("", job.queue)
            and query.state in (None, job.state)
            and (not queues or job.queue in queues)
            and self._numbers[job_id] < before
        )
        found = list(itertools.islice(matching, keys_wanted(query, self._list_bounds)))
        page = cut_page(found, query, self._list_bounds)
        return JobPage(
            jobs=[self._jobs[job_id] for job_id in page.keys],
            last_page=page.last_page,
            next_cursor=make_cursor(self._numbers[page.keys[-1]]) if page.is_followed else "",
        )

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        """Return a page of the jobs that run, oldest first."""
        after = parse_cursor(cursor) if cursor else 0
        running = (
            job
            for job_id, job in self._jobs.items()
            if job.state is JobState.RUNNING and self._numbers[job_id] > after
        )
        found = list(itertools.islice(running, RUNNING_AT_ONCE + 1))
        jobs = found[:RUNNING_AT_ONCE]
        return RunningPage(
            jobs=[RunningJob(job.job_id, job.attempt, job.life.instance_id) for job in jobs],
            next_cursor=make_cursor(self._numbers[jobs[-1].job_id]) if len(found) > len(jobs) else "",
        )

    async def list_queues(self, *, after: str = "", limit: int) -> Sequence[QueueStats]:
        """Return queues that were used, by name."""
        later = sorted(queue for queue in await self.queue_names() if queue > after)
        return [self._stats(queue) for queue in later[:limit]]

    async def queue_names(self) -> Collection[str]:
        """Return the names of the queues that were used."""
        return {job.queue for job in self._jobs.values()} | self._paused.keys()

    async def set_paused(self, queue: str, *, paused: bool, by: str = "", now: int = 0) -> None:
        """Stop or allow claims from a queue."""
        if paused:
            self._paused[queue] = self._paused.get(queue) or (by, now)
        elif queue in self._paused:
            self._paused[queue] = None
        self._serve({queue})

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return stored events after a position."""
        stored = self._events.get(query.job_id, [])
        job = self._job(query.job_id)
        after = (query.after.attempt, query.after.sequence)
        # Events are in order of (attempt, last sequence), so the first one past the position contains it.
        first = bisect.bisect_right(stored, after, key=lambda kept: (kept[1].attempt, kept[1].last_sequence))
        wanted = (
            event
            for _, event in stored[first:]
            if event.last_timestamp >= query.from_timestamp and query.only_attempt in (0, event.attempt)
        )
        return fill_page(wanted, query, state=job.state, attempt=job.attempt)

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        """Purge jobs that ended until an instant, or count them."""
        found = list(itertools.islice(self._old_jobs(before), limit + 1))
        for job in () if dry_run else found[:limit]:
            self._purge(job)
        return PurgedJobs(jobs=min(len(found), limit), has_more=len(found) > limit)

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        """End what nobody may claim any more, and purge what is too old."""
        ended = []
        for job in list(self._jobs.values()):
            life = lifecycle.expire(lifecycle.recall(job.life, now=now), now=now)
            if life is not job.life:
                self._save(job, life)
            if life.state is not job.state:
                ended.append(job.job_id)
        return Upkeep(
            ended_jobs=ended,
            purged_jobs=0 if retention.jobs_ms is None else self._purge_jobs(now - retention.jobs_ms),
            purged_events=self._purge_events(now - retention.events_ms),
        )

    async def add_key(self, key: ApiKey) -> None:
        """Keep a new key."""
        self._keys[key.key_id] = key

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""
        return self._keys.get(key_id)

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""
        return list(self._keys.values())

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it exists."""
        key = self._keys.get(key_id)
        if key and not key.revoked_at:
            self._keys[key_id] = replace(key, revoked_at=now)
        return key is not None

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        """Return those of the settings that were ever set."""
        return {name: self._settings[name] for name in names if name in self._settings}

    async def change_setting(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set or unset a setting."""
        stored = changed(self._settings.get(name, StoredSetting()), value, by=by, now=now)
        self._settings[name] = stored
        return stored

    def _job(self, job_id: str, queues: Collection[str] = ()) -> Job:
        job = self._jobs.get(job_id)
        if job is None or (queues and job.queue not in queues):
            raise JobNotFound
        return job

    def _save(self, job: Job, life: Lifecycle) -> Job:
        if life.state.terminal and self._drop_secrets:
            job = replace(job, params=job.params.without_secrets())
        self._jobs[job.job_id] = changed = replace(job, life=life)
        self._scheduled[job.queue] += _is_scheduled(life) - _is_scheduled(job.life)
        if life.state.terminal:
            self._close(job)
        self._arm()
        return changed

    def _close(self, job: Job) -> None:
        by_handler, handler_key = self._open[job.queue], job.params.handler_key
        opened = by_handler.get(handler_key, {})
        opened.pop(job.job_id, None)
        if not opened:
            by_handler.pop(handler_key, None)
        self._ended[job.job_id] = None

    def _open_jobs(self, queue: str, abilities: frozenset[str] | None = None) -> Iterator[Job]:
        """Yield the open jobs that these abilities suffice for, in the order of their enqueueing."""
        by_handler = self._open.get(queue, {})
        handler_keys = by_handler.keys() if abilities is None else by_handler.keys() & abilities
        opened = (by_handler[handler_key] for handler_key in handler_keys)
        for job_id in heapq.merge(*opened, key=self._numbers.__getitem__):
            yield self._jobs[job_id]

    def _enqueue(self, new: NewJob, max_queued: int) -> Enqueued | AirunnerError:
        known = self._fingerprints.get((new.principal, new.request_id))
        if known:
            job = self._jobs[known[1]]
            if known[0] != new.fingerprint:
                return AlreadyExists()
            return Enqueued(job_id=job.job_id, created_at=job.created_at, state=job.state)
        if max_queued and self._scheduled[new.queue] >= max_queued:
            return ResourceExhausted(f"queue {new.queue} holds its limit of {max_queued} scheduled jobs")
        self._fingerprints[new.principal, new.request_id] = (new.fingerprint, new.job_id)
        by_handler = self._open.setdefault(new.queue, {})
        by_handler.setdefault(new.params.handler_key, {})[new.job_id] = None
        self._jobs[new.job_id] = Job(
            job_id=new.job_id,
            queue=new.queue,
            params=new.params,
            execution=new.execution,
            created_at=new.created_at,
            request_id=new.request_id,
            principal=new.principal,
            life=new.first_life(),
            retried_from=new.retried_from,
        )
        self._numbers[new.job_id] = next(self._next_number)
        self._scheduled[new.queue] += 1
        self._params_bytes[new.job_id] = len(new.params_bytes)
        return Enqueued(job_id=new.job_id, created_at=new.created_at, state=JobState.SCHEDULED)

    def _complete(self, completion: Completion, now: int) -> Lifecycle | AirunnerError:
        try:
            job = self._job(completion.key.job_id)
            life, fresh = lifecycle.finish(
                job.life, completion.key.attempt, completion.result, completion.events, now=now
            )
        except AirunnerError as error:
            return error
        self._keep_events(job.job_id, fresh, now)
        return self._save(job, life).life

    def _claim(self, demand: Demand) -> list[Job]:
        now = self._clock.now()
        for queue in demand.queues:
            found = self._claimable(queue, demand.max_jobs, now, demand.abilities)
            if found:
                fitting = take_by_size(found, self._claim_size, demand.max_bytes)
                return [self._begin(job, demand, now) for job in fitting]
        return []

    def _claimable(
        self, queue: str, max_jobs: int, now: int, abilities: frozenset[str] | None = None
    ) -> list[Job]:
        if self._paused.get(queue):
            return []
        claimable = (
            job
            for job in self._open_jobs(queue, abilities)
            if (since := job.life.claimable_from) is not None and since <= now
        )
        return list(itertools.islice(claimable, max_jobs))

    def _claim_size(self, job: Job) -> int:
        return claim_size(self._params_bytes[job.job_id], job.life.last_error)

    def _begin(self, job: Job, demand: Demand, now: int) -> Job:
        life = lifecycle.claim(
            job.life,
            now=now,
            visibility_seconds=demand.visibility_seconds,
            first_lease_seconds=demand.first_lease_seconds,
            worker_id=demand.worker_id,
            instance_id=demand.instance_id,
        )
        return self._save(job, life)

    def _serve(self, queues: Iterable[str]) -> None:
        """Give waiting dequeues what has become claimable."""
        for demand in list(self._room.waiting_for(list(queues))):
            claimed = self._claim(demand)
            answer = self._room.leave(demand) if claimed else None
            if answer:
                answer.set_result(claimed)
        self._arm()

    def _arm(self) -> None:
        """Wake up when the next job falls due or lapses that somebody waits for."""
        if self._wake:
            self._wake.cancel()
        times = [
            since
            for queue in self._room.queues
            if not self._paused.get(queue)
            for handler_key, opened in self._open.get(queue, {}).items()
            if self._room.wants(queue, handler_key)
            for job_id in opened
            if (since := self._jobs[job_id].life.claimable_from) is not None
        ]
        self._wake = (
            self._clock.call_at(min(times), lambda: self._serve(list(self._room.queues))) if times else None
        )

    def _stats(self, queue: str) -> QueueStats:
        jobs = list(self._open_jobs(queue))
        scheduled = [job for job in jobs if job.state is JobState.SCHEDULED]
        paused = self._paused.get(queue)
        paused_by, paused_at = paused or ("", 0)
        return QueueStats(
            name=queue,
            paused=paused is not None,
            paused_by=paused_by,
            paused_at=paused_at,
            scheduled=len(scheduled),
            running=len(jobs) - len(scheduled),
            oldest_scheduled_at=scheduled[0].created_at if scheduled else 0,
        )

    def _keep_events(self, job_id: str, events: Sequence[EncodedEvent], now: int) -> None:
        if events:
            self._events.setdefault(job_id, []).extend((now, event) for event in events)

    def _purge_jobs(self, before: int) -> int:
        old = list(self._old_jobs(before))
        for job in old:
            self._purge(job)
        return len(old)

    def _old_jobs(self, before: int) -> Iterator[Job]:
        ended = map(self._jobs.__getitem__, self._ended)
        return (job for job in ended if job.life.finished_at <= before)

    def _purge(self, job: Job) -> None:
        del self._jobs[job.job_id], self._numbers[job.job_id], self._params_bytes[job.job_id]
        del self._ended[job.job_id]
        del self._fingerprints[job.principal, job.request_id]
        self._events.pop(job.job_id, None)

    def _purge_events(self, before: int) -> int:
        purged = 0
        for job_id, kept in self._events.items():
            fresh = [entry for entry in kept if entry[0] > before]
            purged += len(kept) - len(fresh)
            self._events[job_id] = fresh
        return purged


def _is_scheduled(life: Lifecycle) -> bool:
    return life.state is JobState.SCHEDULED
