"""The production store: SQS transports, DynamoDB is the truth, one row per job decides everything."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Unpack

from airunner.aws.calls import ConditionFailed
from airunner.domain import lifecycle
from airunner.domain.answers import PayloadLinks
from airunner.domain.clock import StepWatch
from airunner.domain.errors import AirunnerError, DeadlineExceeded, JobNotFound
from airunner.domain.listing import abridged
from airunner.stores.aws.assembly import Assembly
from airunner.stores.aws.claim import SKEW_MS
from airunner.stores.aws.items import number, text, text_at, update_expression
from airunner.stores.aws.known_queues import index_entry
from airunner.stores.aws.layout import queue_key
from airunner.stores.aws.payloads import PayloadGone
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.base import Capabilities
from airunner.stores.pages import READ_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.answers import Enqueued, QueueStats
    from airunner.domain.clock import Clock
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.stores.abilities import PayloadLinking, SharedState
    from airunner.stores.aws.assembly import AwsStoreOptions
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout
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


class AwsStore:
    """Implements JobStore on one set of queues and tables, beside any number of others that do the same.

    Opens the connection that it is given, and closes it.
    """

    capabilities = Capabilities(
        strict_fifo=False,
        redelivery_slack_seconds=(CHECK_AFTER_MS + SKEW_MS) / 1000,
        durable=True,
        configured_queues=True,
    )

    def __init__(self, aws: Aws, layout: Layout, clock: Clock, **options: Unpack[AwsStoreOptions]) -> None:
        """Stand on tables and queues."""
        self._aws = aws
        self._layout = layout
        self._clock = clock
        self._steps = StepWatch(clock)
        made = Assembly(aws, layout, clock, options)
        self._background_tasks = made.background_tasks
        self._ownership = made.ownership
        self._payloads = made.payloads
        self._rows = made.rows
        self._log = made.log
        self._messages = made.messages
        self._known_queues = made.known_queues
        self._running = made.running
        self._listing = made.listing
        self._keys = made.keys
        self._settings = made.settings
        self._holding = made.holding
        self._marks = made.marks
        self._enqueuer = made.enqueuer
        self._gate = made.gate
        self._receiver = made.receiver
        self._recall = made.recall
        self._reconciler = made.make_reconciler()
        # Its passes may run beside those of the other.
        self._purger = made.make_reconciler()
        self._dead_letter_upkeep = made.dead_letter_upkeep
        self._parts = made.parts
        self.dead_letters = made.dead_letters
        self.changes = made.changes
        self.parts = made.parts if made.watches_parts else None

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


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Give a read its time, whatever number of calls and tries it is made of."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            yield
    except TimeoutError:
        raise DeadlineExceeded(f"the store did not answer within {READ_SECONDS} s") from None
