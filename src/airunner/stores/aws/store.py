"""The production store: SQS transports, DynamoDB is the truth, one row per job decides everything."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.aws.calls import ConditionFailed
from airunner.aws.parts import AwsParts
from airunner.aws.table_meta import TableOwnership
from airunner.aws.wellness import Wellness
from airunner.domain import lifecycle
from airunner.domain.abridging import abridged
from airunner.domain.answers import PayloadLinks
from airunner.domain.background import BackgroundTasks
from airunner.domain.clock import StepWatch, SystemClock
from airunner.domain.errors import AirunnerError, DeadlineExceeded, JobNotFound, error_text
from airunner.stores.aws.claim import SKEW_MS, Claimer
from airunner.stores.aws.dead_letters.queues import DeadLetterQueues
from airunner.stores.aws.dead_letters.upkeep import DeadLetterUpkeep
from airunner.stores.aws.enqueue import Enqueuer
from airunner.stores.aws.event_log import EventLog
from airunner.stores.aws.hold import Holding
from airunner.stores.aws.items import number, text, text_at, update_expression
from airunner.stores.aws.keys import Keys
from airunner.stores.aws.known_queues import KnownQueues, index_entry
from airunner.stores.aws.layout import owned_table, queue_key
from airunner.stores.aws.listing import Listing
from airunner.stores.aws.payloads import PayloadGone, Payloads
from airunner.stores.aws.polling.gate import QueueGate
from airunner.stores.aws.polling.receive import Receiver
from airunner.stores.aws.replicas.change_stream import EventStream
from airunner.stores.aws.replicas.shared_marks import SharedMarks
from airunner.stores.aws.rows import CHECK_AFTER_MS, Rows
from airunner.stores.aws.running import RunningWalk
from airunner.stores.aws.settings import SettingItems
from airunner.stores.aws.unreadable import NamesInLog, UnreadableRows
from airunner.stores.aws.upkeep.expiry import Expiry
from airunner.stores.aws.upkeep.open_jobs import OpenJobs
from airunner.stores.aws.upkeep.purge import Purge
from airunner.stores.aws.upkeep.recall import Recall
from airunner.stores.aws.upkeep.reconcile import Reconciler
from airunner.stores.aws.upkeep.resend import Resender
from airunner.stores.aws.wakeups import Messages
from airunner.stores.base import Capabilities
from airunner.stores.pages import READ_SECONDS
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.answers import Enqueued, JobPage, QueueStats
    from airunner.domain.clock import Clock
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.domain.requests import JobQuery
    from airunner.stores.abilities import PayloadLinking, SharedState
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.listing import ListingBounds
    from airunner.stores.records import (
        ApiKey,
        AttemptKey,
        Completion,
        Demand,
        EventPage,
        EventQuery,
        JobMark,
        NewJob,
        PurgedJobs,
        Release,
        Retention,
        RunningPage,
        Upkeep,
    )
    from airunner.stores.settings import StoredSetting

_log = get_logger("airunner.aws")

_JOBS_KEPT_MS = 7 * 24 * 3600 * 1000
_EVENTS_KEPT_MS = 30 * 24 * 3600 * 1000
_LONG_MS = 24 * 3600 * 1000


class AwsStore:
    """Implements JobStore on one set of queues and tables, beside any number of others that do the same.

    Opens the connection that it is given, and closes it. `address` is where others may ring for us; see
    `services.replicas.ringer`.
    """

    capabilities = Capabilities(
        strict_fifo=False,
        redelivery_slack_seconds=(CHECK_AFTER_MS + SKEW_MS) / 1000,
        durable=True,
        configured_queues=True,
    )

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        clock: Clock,
        *,
        jobs_kept_ms: int = _JOBS_KEPT_MS,
        events_kept_ms: int = _EVENTS_KEPT_MS,
        short_poll_seconds: int = 1,
        list_bounds: ListingBounds | None = None,
        drop_secrets: bool = False,
        watches_parts: bool = True,
        row_format: int = 1,
        real_clock: Clock | None = None,
        address: str = "",
    ) -> None:
        """Stand on tables and queues.

        `watches_parts` is false where a clock jumps, as in tests: then the table of the jobs is taken to
        answer all the time, and nobody is asked.
        """
        # Polls go by the real clock, whatever jobs go by.
        real_clock = real_clock or SystemClock()
        self._clock = clock
        self._steps = StepWatch(clock)
        self._layout = layout
        self._aws = aws
        self._ownership = TableOwnership(aws, owned_table(layout), layout.env)
        self._background_tasks = BackgroundTasks(_follow_up_failed)
        unreadable = UnreadableRows(clock)
        self._payloads = Payloads(aws, layout, unreadable, drop_secrets=drop_secrets, row_format=row_format)
        open_jobs = OpenJobs(aws, layout, clock, unreadable)
        expiry = Expiry(aws, layout, jobs_kept_ms=jobs_kept_ms, background_tasks=self._background_tasks)
        self._rows = rows = Rows(
            aws,
            layout,
            payloads=self._payloads,
            unreadable=unreadable,
            open_jobs=open_jobs,
            expiry=expiry,
            clock=clock,
        )
        self._log = EventLog(aws, layout, ttl_ms=events_kept_ms, unreadable=unreadable)
        self._messages = Messages(aws, layout, self._background_tasks, real_clock=real_clock)
        self._known_queues = KnownQueues(aws, layout, rows, clock)
        self._running = RunningWalk(
            aws, layout, rows=rows, known_queues=self._known_queues, unreadable=unreadable
        )
        self._listing = Listing(
            aws,
            layout,
            clock,
            rows=rows,
            payloads=self._payloads,
            known_queues=self._known_queues,
            open_jobs=open_jobs,
            bounds=list_bounds,
        )
        self.changes = EventStream(aws, layout, real_clock) if layout.streams else None
        self._keys = Keys(aws, layout, rows, unreadable)
        self._settings = SettingItems(aws, layout, rows)
        self._holding = Holding(rows=rows, log=self._log, messages=self._messages, address=address)
        self._marks = SharedMarks(aws, layout, rows=rows, unreadable=unreadable, address=address)
        self._enqueuer = Enqueuer(
            aws,
            layout,
            rows=rows,
            payloads=self._payloads,
            messages=self._messages,
            background_tasks=self._background_tasks,
            open_jobs=open_jobs,
        )
        wellness = Wellness(clock) if watches_parts else Wellness(clock, silence_ms=inf, well_ms=_LONG_MS)
        aws.listen(layout.jobs_table, wellness.answered)
        self._parts = self._find_parts(wellness)
        self.parts = self._parts if watches_parts else None
        claimer = Claimer(
            rows=rows, payloads=self._payloads, messages=self._messages, clock=clock, wellness=wellness
        )
        self._gate = QueueGate(rows, real_clock)
        self._receiver = Receiver(
            messages=self._messages,
            claimer=claimer,
            gate=self._gate,
            real_clock=real_clock,
            short_poll_seconds=short_poll_seconds,
        )
        self.dead_letters = DeadLetterQueues(
            aws,
            layout,
            rows=rows,
            messages=self._messages,
            real_clock=real_clock,
            short_poll_seconds=short_poll_seconds,
        )
        self._dead_letter_upkeep = DeadLetterUpkeep(self.dead_letters, layout.queues.keys(), real_clock)
        self._recall = Recall(aws, layout, rows=rows, known_queues=self._known_queues)
        reconciler = partial(
            Reconciler,
            aws,
            layout,
            rows=rows,
            resender=Resender(aws, rows=rows, messages=self._messages, open_jobs=open_jobs, clock=clock),
            purge=Purge(aws, layout, rows=rows, payloads=self._payloads, expiry=expiry),
            names=NamesInLog(clock),
            wellness=wellness,
            known_queues=self._known_queues,
            real_clock=real_clock,
        )
        self._reconciler = reconciler()
        # Its passes may run beside those of the other.
        self._purger = reconciler()

    @property
    def payload_links(self) -> PayloadLinking:
        """Addresses of what jobs have in S3."""
        return self

    @property
    def shared(self) -> SharedState:
        """What other replicas do."""
        return self

    async def open(self) -> None:
        """Connect. Rows stay as they are: other replicas may have been there for running jobs.

        FailedPrecondition where the jobs table belongs to another environment, or needs a newer version.
        """
        await self._aws.__aenter__()
        try:
            is_ours = await self._ownership.ensure_if_answered()
            await self._messages.open()
            if is_ours:
                await self._known_queues.look_if_due()
        except BaseException:
            await self._aws.__aexit__(None, None, None)
            raise
        if self.parts:
            self._background_tasks.begin("warn", self._dead_letter_upkeep.warn())

    async def close(self) -> None:
        """Let waiting dequeues go, finish what follows, and disconnect."""
        await self._receiver.close()
        await self._background_tasks.finish()
        await self._aws.__aexit__(None, None, None)

    async def check(self) -> None:
        """Raise, naming the table that does not answer. Asked often, the tables are not asked each time."""
        await self._parts.check_tables()
        await self._ownership.ensure()

    async def enqueue_jobs(
        self, jobs: Sequence[NewJob], *, max_queued: int = 0
    ) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs, each with its own outcome."""
        await self._ownership.ensure()
        return await self._enqueuer.enqueue(jobs, max_queued)

    async def dequeue_jobs(self, demand: Demand) -> Sequence[Job]:
        """Claim jobs, or wait for them. The order is that of SQS: about first in, first out."""
        await self._ownership.ensure()
        return await self._receiver.dequeue(demand)

    async def withdraw(self, demand: Demand) -> None:
        """Make a waiting dequeue answer with nothing, unless it was served already."""
        self._receiver.withdraw(demand)

    async def extend_job(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time."""
        return await self._holding.extend(key, visibility_seconds, now)

    async def append_events(self, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
        """Store the events that continue the attempt."""
        return await self._holding.append(key, events, now)

    async def complete_jobs(
        self, completions: Sequence[Completion], now: int
    ) -> Sequence[Lifecycle | AirunnerError]:
        """End jobs, each with its own outcome; of one job in the order given."""
        by_job: dict[str, list[int]] = {}
        for place, completion in enumerate(completions):
            by_job.setdefault(completion.key.job_id, []).append(place)
        outcomes: dict[int, Lifecycle | AirunnerError] = {}

        async def complete(places: list[int]) -> None:
            for place in places:
                try:
                    outcomes[place] = await self._holding.complete(completions[place], now)
                except AirunnerError as error:
                    outcomes[place] = error

        await asyncio.gather(*map(complete, by_job.values()))
        return [outcomes[place] for place in range(len(completions))]

    async def release_job(self, release: Release, now: int) -> Lifecycle:
        """Give a job back."""
        return await self._holding.release(release, now)

    async def cancel_job(self, job_id: str, now: int, *, by: str = "", queues: Collection[str] = ()) -> Job:
        """Cancel a job, whether or not its parameters can be read."""

        def cancelled(life: Lifecycle) -> Lifecycle:
            return lifecycle.cancel(life, now=now, by=by)

        if queues:
            await self._find(job_id, queues)
        return await self._payloads.readable_job_of(await self._rows.revise(job_id, cancelled))

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        """Return a job, or raise JobNotFound; unless it is to be abridged, PayloadGone or PayloadRefused."""
        async with _in_time():
            row = await self._find(job_id, queues)
            if abridge:
                return abridged(await self._payloads.readable_job_of(row))
            try:
                return await self._payloads.job_of(row)
            except PayloadGone:
                # A purge takes payloads first: then the row is gone as well by now.
                await self._rows.read_bare(job_id)
                raise

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        """Return the life of a job, without a result that is elsewhere."""
        async with _in_time():
            return (await self._find(job_id, queues)).life

    async def link_payloads(self, job_id: str, seconds: int) -> PayloadLinks:
        """Return the addresses of what a job has in S3."""
        async with _in_time():
            item = (await self._rows.read_seen([job_id])).get(job_id, {})
            return PayloadLinks(
                params_url=await self._payloads.link(text_at(item, "params_place"), seconds),
                result_url=await self._payloads.link(text_at(item, "result_place"), seconds),
            )

    async def list_jobs(self, query: JobQuery, *, queues: Collection[str] = ()) -> JobPage:
        """Return jobs, newest first."""
        async with _in_time():
            if query.queue:
                await self._known_queues.check(query.queue)
            return await self._listing.jobs(query, queues)

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        """Return a page of the jobs that run, of every queue that ever had jobs here."""
        async with _in_time():
            return await self._running.page(cursor)

    async def list_queues(self, *, after: str = "", limit: int) -> Sequence[QueueStats]:
        """Return queues that were used, by name."""
        async with _in_time():
            return await self._listing.queues(after, limit)

    async def queue_names(self) -> Collection[str]:
        """Return the names of the queues that are configured."""
        return self._layout.queues.keys()

    async def set_paused(self, queue: str, *, paused: bool, by: str = "", now: int = 0) -> None:
        """Stop or allow claims from a queue, on every replica."""
        self._messages.check_queue(queue)
        state: Item = {"paused": {"BOOL": paused}, **index_entry(queue)}
        names = {"paused_by": text(by), "paused_at": number(now)}
        # A condition that fails says that somebody paused it before.
        with suppress(ConditionFailed):
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(queue_key(queue))},
                **(
                    update_expression(state | names, conditions={"paused_by": None})
                    if paused
                    else update_expression(state, removed=names)
                ),
            )
        self._gate.note(queue, is_paused=paused)

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return stored events after a position; the row is read before them, and says which exist."""
        async with _in_time():
            return await self._log.read(await self._rows.read_bare(query.job_id), query, self._clock.now())

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        """Purge jobs that ended until an instant, or count them."""
        await self._ownership.ensure()
        return await self._purger.purge(before, self._clock.now(), limit=limit, dry_run=dry_run)

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        """Reconcile and purge, a bounded pass."""
        await self._ownership.ensure()
        await self._known_queues.look_if_due()
        if self._steps.look_due():
            await self._recall.run(now)
        upkeep = await self._reconciler.run(retention, now)
        await self._dead_letter_upkeep.run_if_due()
        return upkeep

    async def read_marks(self, job_ids: Sequence[str]) -> Mapping[str, JobMark]:
        """Return what changes with what holders and watchers see; a hundred jobs in a call."""
        async with _in_time():
            return await self._marks.marks(job_ids)

    async def note_watched(self, job_ids: Sequence[str], until: int) -> Mapping[str, Lifecycle]:
        """Let every replica know that somebody looks at these jobs, and where."""
        return await self._marks.note_watched(job_ids, until, self._clock.now())

    async def add_key(self, key: ApiKey) -> None:
        """Keep a new key."""
        await self._keys.add(key)

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""
        async with _in_time():
            await self._ownership.ensure()
            return await self._keys.find(key_id)

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""
        async with _in_time():
            return await self._keys.list()

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it exists."""
        return await self._keys.revoke(key_id, now)

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        """Return those of the settings that were ever set."""
        async with _in_time():
            return await self._settings.read(names)

    async def change_setting(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set or unset a setting."""
        await self._ownership.ensure()
        return await self._settings.change(name, value, by=by, now=now)

    async def _find(self, job_id: str, queues: Collection[str]) -> Row:
        """Return the row of a job, one of some queues where these are given, or raise JobNotFound."""
        row = await self._rows.read_bare(job_id)
        if queues and row.queue not in queues:
            raise JobNotFound
        return row

    def _find_parts(self, wellness: Wellness) -> AwsParts:
        nobody = {"job_id": text("check#")}
        tables = {
            self._layout.jobs_table: nobody,
            self._layout.events_table: {**nobody, "sequence": number(0)},
        }
        others = {f"queue {queue}": partial(self._ask_queue, queue) for queue in self._layout.queues}
        if self._layout.bucket:
            others["bucket"] = partial(self._aws.ask_bucket, "jobs/check")
        return AwsParts(self._aws, self._clock, wellness, tables=tables, others=others)

    async def _ask_queue(self, queue: str) -> str:
        return await self._aws.ask_queue(self._messages.url(queue))


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Give a read its time, whatever number of calls and tries it is made of."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            yield
    except TimeoutError:
        raise DeadlineExceeded(f"the store did not find the answer within {READ_SECONDS} s") from None


def _follow_up_failed(name: str, error: BaseException) -> None:
    """Count and log what follows an answer and failed; the reconciler makes it good."""
    telemetry.aws_follow_ups_failed.add(1)
    _log.warning("aws.follow_up_failed", follow_up=name, error=error_text(error))
