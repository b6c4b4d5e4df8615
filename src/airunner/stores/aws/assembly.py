"""What an AwsStore is made of, and what each part of it stands on."""

from __future__ import annotations

from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, TypedDict

from airunner import telemetry
from airunner.aws.parts import AwsParts
from airunner.aws.table_meta import TableOwnership
from airunner.aws.wellness import Wellness
from airunner.domain.background import BackgroundTasks
from airunner.domain.clock import SystemClock
from airunner.domain.errors import error_text
from airunner.stores.aws.claim import Claimer
from airunner.stores.aws.dead_letters.queues import DeadLetterQueues
from airunner.stores.aws.dead_letters.upkeep import DeadLetterUpkeep
from airunner.stores.aws.enqueue import Enqueuer
from airunner.stores.aws.event_log import EventLog
from airunner.stores.aws.hold import Holding
from airunner.stores.aws.items import number, text
from airunner.stores.aws.keys import Keys
from airunner.stores.aws.known_queues import KnownQueues
from airunner.stores.aws.layout import owned_table
from airunner.stores.aws.listing import Listing
from airunner.stores.aws.payloads import Payloads
from airunner.stores.aws.polling.gate import QueueGate
from airunner.stores.aws.polling.receive import Receiver
from airunner.stores.aws.replicas.change_stream import EventStream
from airunner.stores.aws.replicas.shared_marks import SharedMarks
from airunner.stores.aws.rows import Rows
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
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.listing import ListingBounds

_log = get_logger("airunner.aws")

_JOBS_KEPT_MS = 7 * 24 * 3600 * 1000
_EVENTS_KEPT_MS = 30 * 24 * 3600 * 1000
_LONG_MS = 24 * 3600 * 1000


class AwsStoreOptions(TypedDict, total=False):
    """How a store behaves, where not as usual."""

    jobs_kept_ms: int
    events_kept_ms: int
    list_bounds: ListingBounds | None
    drop_secrets: bool
    row_format: int
    short_poll_seconds: int
    real_clock: Clock | None
    """What polls go by, whatever jobs go by."""
    watches_parts: bool
    """False where a clock jumps, as in tests: then the table of the jobs is taken to answer all the time, and
    nobody is asked."""
    address: str
    """Where others may ring for us; see `services.replicas.ringer`."""


class Assembly:
    """Makes each part of one store once, when it is first asked for, out of the parts that it stands on."""

    def __init__(self, aws: Aws, layout: Layout, clock: Clock, options: AwsStoreOptions) -> None:
        self._aws = aws
        self._layout = layout
        self._clock = clock
        self._options = options
        self._real_clock = options.get("real_clock") or SystemClock()
        self._short_poll_seconds = options.get("short_poll_seconds", 1)
        self._address = options.get("address", "")
        self.watches_parts = options.get("watches_parts", True)
        self._unreadable = UnreadableRows(clock)
        self.background_tasks = BackgroundTasks(_follow_up_failed)

    @cached_property
    def ownership(self) -> TableOwnership:
        return TableOwnership(self._aws, owned_table(self._layout), self._layout.env)

    @cached_property
    def payloads(self) -> Payloads:
        return Payloads(
            self._aws,
            self._layout,
            self._unreadable,
            drop_secrets=self._options.get("drop_secrets", False),
            row_format=self._options.get("row_format", 1),
        )

    @cached_property
    def rows(self) -> Rows:
        return Rows(
            self._aws,
            self._layout,
            payloads=self.payloads,
            unreadable=self._unreadable,
            open_jobs=self._open_jobs,
            expiry=self._expiry,
            clock=self._clock,
        )

    @cached_property
    def log(self) -> EventLog:
        kept_ms = self._options.get("events_kept_ms", _EVENTS_KEPT_MS)
        return EventLog(self._aws, self._layout, ttl_ms=kept_ms, unreadable=self._unreadable)

    @cached_property
    def messages(self) -> Messages:
        return Messages(self._aws, self._layout, self.background_tasks, real_clock=self._real_clock)

    @cached_property
    def known_queues(self) -> KnownQueues:
        return KnownQueues(self._aws, self._layout, self.rows, self._clock)

    @cached_property
    def running(self) -> RunningWalk:
        return RunningWalk(
            self._aws,
            self._layout,
            rows=self.rows,
            known_queues=self.known_queues,
            unreadable=self._unreadable,
        )

    @cached_property
    def listing(self) -> Listing:
        return Listing(
            self._aws,
            self._layout,
            self._clock,
            rows=self.rows,
            payloads=self.payloads,
            known_queues=self.known_queues,
            open_jobs=self._open_jobs,
            bounds=self._options.get("list_bounds"),
        )

    @cached_property
    def changes(self) -> EventStream | None:
        return EventStream(self._aws, self._layout, self._real_clock) if self._layout.streams else None

    @cached_property
    def keys(self) -> Keys:
        return Keys(self._aws, self._layout, self.rows, self._unreadable)

    @cached_property
    def settings(self) -> SettingItems:
        return SettingItems(self._aws, self._layout, self.rows)

    @cached_property
    def holding(self) -> Holding:
        return Holding(rows=self.rows, log=self.log, messages=self.messages, address=self._address)

    @cached_property
    def marks(self) -> SharedMarks:
        return SharedMarks(
            self._aws,
            self._layout,
            rows=self.rows,
            unreadable=self._unreadable,
            address=self._address,
        )

    @cached_property
    def enqueuer(self) -> Enqueuer:
        return Enqueuer(
            self._aws,
            self._layout,
            rows=self.rows,
            payloads=self.payloads,
            messages=self.messages,
            background_tasks=self.background_tasks,
            open_jobs=self._open_jobs,
        )

    @cached_property
    def gate(self) -> QueueGate:
        return QueueGate(self.rows, self._real_clock)

    @cached_property
    def receiver(self) -> Receiver:
        claimer = Claimer(
            rows=self.rows,
            payloads=self.payloads,
            messages=self.messages,
            clock=self._clock,
            wellness=self._wellness,
        )
        return Receiver(
            messages=self.messages,
            claimer=claimer,
            gate=self.gate,
            real_clock=self._real_clock,
            short_poll_seconds=self._short_poll_seconds,
        )

    @cached_property
    def dead_letters(self) -> DeadLetterQueues:
        return DeadLetterQueues(
            self._aws,
            self._layout,
            rows=self.rows,
            messages=self.messages,
            real_clock=self._real_clock,
            short_poll_seconds=self._short_poll_seconds,
        )

    @cached_property
    def dead_letter_upkeep(self) -> DeadLetterUpkeep:
        return DeadLetterUpkeep(self.dead_letters, self._layout.queues.keys(), self._real_clock)

    @cached_property
    def recall(self) -> Recall:
        return Recall(self._aws, self._layout, rows=self.rows, known_queues=self.known_queues)

    @cached_property
    def parts(self) -> AwsParts:
        """The tables, which decide whether the store answers, and the queues and the bucket beside them."""
        nobody = {"job_id": text("check#")}
        tables = {
            self._layout.jobs_table: nobody,
            self._layout.events_table: {**nobody, "sequence": number(0)},
        }
        others = {f"queue {queue}": partial(self._ask_queue, queue) for queue in self._layout.queues}
        if self._layout.bucket:
            others["bucket"] = partial(self._aws.ask_bucket, "jobs/check")
        return AwsParts(self._aws, self._clock, self._wellness, tables=tables, others=others)

    def make_reconciler(self) -> Reconciler:
        """Return one more: passes of several may run beside each other, those of one may not."""
        return Reconciler(
            self._aws,
            self._layout,
            rows=self.rows,
            resender=self._resender,
            purge=self._purge,
            names=self._names,
            wellness=self._wellness,
            known_queues=self.known_queues,
            real_clock=self._real_clock,
        )

    @cached_property
    def _open_jobs(self) -> OpenJobs:
        return OpenJobs(self._aws, self._layout, self._clock, self._unreadable)

    @cached_property
    def _expiry(self) -> Expiry:
        kept_ms = self._options.get("jobs_kept_ms", _JOBS_KEPT_MS)
        return Expiry(self._aws, self._layout, jobs_kept_ms=kept_ms, background_tasks=self.background_tasks)

    @cached_property
    def _wellness(self) -> Wellness:
        wellness = (
            Wellness(self._clock)
            if self.watches_parts
            else Wellness(self._clock, silence_ms=inf, well_ms=_LONG_MS)
        )
        self._aws.listen(self._layout.jobs_table, wellness.answered)
        return wellness

    @cached_property
    def _resender(self) -> Resender:
        return Resender(
            self._aws,
            rows=self.rows,
            messages=self.messages,
            open_jobs=self._open_jobs,
            clock=self._clock,
        )

    @cached_property
    def _purge(self) -> Purge:
        return Purge(self._aws, self._layout, rows=self.rows, payloads=self.payloads, expiry=self._expiry)

    @cached_property
    def _names(self) -> NamesInLog:
        return NamesInLog(self._clock)

    async def _ask_queue(self, queue: str) -> str:
        return await self._aws.ask_queue(self.messages.url(queue))


def _follow_up_failed(name: str, error: BaseException) -> None:
    """Count and log what follows an answer and failed; the reconciler makes it good."""
    telemetry.aws_follow_ups_failed.add(1)
    _log.warning("aws.follow_up_failed", follow_up=name, error=error_text(error))
