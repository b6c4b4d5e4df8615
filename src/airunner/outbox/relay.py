"""The relay: claims rows that are due, sends them, writes down what became of each.

Every step is a short transaction of its own, and none is open while something is sent. A relay that dies
leaves claims, which expire: their rows are sent again, so that each is sent at least once. Rows of a queue
that fails wait for that queue alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.background import BackgroundTasks
from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, StoppableRetry, retry
from airunner.outbox.judging import Rests, marks_of
from airunner.outbox.rows import UNKNOWN_QUEUE, NotTried, Rejected, Sent
from airunner.outbox.table import CLAIM_SECONDS, WAITING_SECONDS
from airunner.services.notifier import Bell
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.clock import Clock
    from airunner.outbox.rows import ClaimedRow, SendOutcome, Sink
    from airunner.outbox.table import OutboxTable

_log = get_logger("airunner.outbox")

BATCH_ROWS: Final = 100
POLL_SECONDS: Final = 1.0
# No call begins so late that the claim may be over before it is.
_SEND_SECONDS: Final = CLAIM_SECONDS / 2
_RELEASE_SECONDS: Final = 2.0
# Rows that one call fails with, and with it the next: the others need not try.
_MAX_FAILED_CALLS: Final = 2
_DATABASE_AWAY: Final = RetryPolicy(first_seconds=0.2, max_seconds=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay works."""

    relay_id: str
    grace_seconds: float = 10.0
    """How long `drain` waits for what is being sent."""
    database_policy: RetryPolicy = _DATABASE_AWAY


class Relay:
    """Sends rows from `run` to `drain`. Any number of them may work on one outbox.

    `can_hear` says whether `wake` will be called when a row is enqueued: only then enqueues are asked to
    notify. Without that, and for whatever is missed, it looks every second.
    """

    def __init__(
        self,
        table: OutboxTable,
        sink: Sink,
        clock: Clock,
        options: RelayOptions,
        *,
        can_hear: Callable[[], bool] = lambda: False,
    ) -> None:
        self._table = table
        self._sink = sink
        self._clock = clock
        self._options = options
        self._can_hear = can_hear
        self._bell = Bell(clock)
        self._rests = Rests(clock)
        self._busy: set[str] = set()
        self._sending = BackgroundTasks(self._log_surprise)
        self._claiming = StoppableRetry()
        self._is_away = False
        self._stopping = False
        self._waiting_until = 0
        self._ended: asyncio.Future[None] | None = None
        self.last_answer_at = clock.monotonic()
        """When the database last answered a claim, by the monotonic clock."""

    def wake(self) -> None:
        """Look at once whether there is anything to send."""
        self._bell.ring()

    async def run(self) -> None:
        """Send until `drain` is called. While the database does not answer nothing is claimed."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            while not self._stopping:
                noted = self._bell.rings
                self._begin(await self._claim())
                if self._is_away:
                    continue  # Only a stop ends a claim without an answer.
                if self._busy:
                    await self._stop_waiting()
                elif await self._say_waiting():
                    continue
                await self._bell.wait(noted, self._clock.now() + int(POLL_SECONDS * 1000))
        finally:
            self._ended.set_result(None)

    async def drain(self) -> None:
        """Claim nothing more, finish what is being sent, and give the rest back. Harmless when repeated.

        A claim that is under way is finished, unless the database did not answer the one before.
        """
        self._stopping = True
        if self._is_away:
            self._claiming.stop()
        self.wake()
        if self._ended:
            await asyncio.wait({self._ended})
        finishing = asyncio.ensure_future(self._sending.finish())
        await asyncio.wait({finishing}, timeout=self._options.grace_seconds)
        self._sending.cancel()
        await finishing
        if not self._is_away:
            await self._stop_waiting()

    async def _claim(self) -> Sequence[ClaimedRow]:
        async def claim() -> Sequence[ClaimedRow]:
            rows = await self._table.claim(
                BATCH_ROWS, without_queues=sorted(self._busy | self._rests.queues())
            )
            self.last_answer_at = self._clock.monotonic()
            self._is_away = False
            return rows

        policy = self._options.database_policy
        rows = await self._claiming.run(
            policy, self._clock, claim, retry_if=_is_ours, on_failure=self._note_away
        )
        return rows or ()

    def _begin(self, rows: Sequence[ClaimedRow]) -> None:
        by_queue: dict[str, list[ClaimedRow]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        for queue, together in by_queue.items():
            self._busy.add(queue)
            self._sending.begin(queue, self._dispatch(queue, together))

    async def _dispatch(self, queue: str, rows: Sequence[ClaimedRow]) -> None:
        """Send rows of one queue and write down what became of them."""
        outcomes: list[SendOutcome] = []
        try:
            await self._send(queue, rows, outcomes)
            await self._mark(queue, rows, outcomes)
        except asyncio.CancelledError:
            # What is known of them is written down all the same; the others are free for the next relay.
            with suppress(AirunnerError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._table.mark(marks_of(rows, _filled(outcomes, rows), by_itself=True))
            raise
        finally:
            self._busy.discard(queue)
            self._bell.ring()

    async def _send(self, queue: str, rows: Sequence[ClaimedRow], outcomes: list[SendOutcome]) -> None:
        """Send rows, a call at a time; `outcomes` grows with each."""
        give_up_at = self._clock.monotonic() + int(_SEND_SECONDS * 1000)
        failed_calls = 0
        for start in range(0, len(rows), self._sink.max_rows):
            if self._clock.monotonic() >= give_up_at or failed_calls == _MAX_FAILED_CALLS:
                return
            told = await self._call(queue, rows[start : start + self._sink.max_rows])
            failed_calls = failed_calls + 1 if all(isinstance(entry, NotTried) for entry in told) else 0
            outcomes += told

    async def _call(self, queue: str, rows: Sequence[ClaimedRow]) -> Sequence[SendOutcome]:
        if not self._sink.knows(queue):
            return [Rejected(UNKNOWN_QUEUE, for_good=True)] * len(rows)
        try:
            return await self._sink.send(queue, rows)
        except Exception as error:  # noqa: BLE001  whatever it is, it says nothing about a row
            self._log_surprise(queue, error)
            return [NotTried(error_text(error))] * len(rows)

    async def _mark(self, queue: str, rows: Sequence[ClaimedRow], outcomes: Sequence[SendOutcome]) -> None:
        told = _filled(outcomes, rows)
        is_queue_well = any(not isinstance(outcome, NotTried) for outcome in told)
        marks = marks_of(rows, told, by_itself=not is_queue_well)
        await retry(
            self._options.database_policy,
            self._clock,
            lambda: self._table.mark(marks),
            retry_if=_is_ours,
            on_failure=_log_away,
        )
        sent = sum(isinstance(outcome, Sent) for outcome in told)
        telemetry.outbox_sent.add(sent)
        if is_queue_well:
            self._rests.is_well(queue)
        else:
            self._rest(queue, told[0])
        for mark in marks:
            if mark.state == "parked":
                _log.error("outbox.parked", queue=queue, id=mark.row_id, reason=mark.reason)

    def _rest(self, queue: str, outcome: SendOutcome) -> None:
        seconds = self._rests.rest(queue)
        is_missing = isinstance(outcome, NotTried) and outcome.queue_missing
        _log.warning(
            "outbox.queue_missing" if is_missing else "outbox.send_failed",
            queue=queue,
            seconds=round(seconds, 1),
            error=outcome.reason if isinstance(outcome, NotTried) else "",
        )

    async def _say_waiting(self) -> bool:
        """Ask for notifications; return whether that was news, and what came before it must be looked for."""
        if not self._can_hear() or self._clock.monotonic() < self._waiting_until - WAITING_SECONDS * 500:
            return False
        was_known = self._clock.monotonic() < self._waiting_until
        try:
            await self._table.set_waiting(self._options.relay_id)
        except AirunnerError as error:
            _log_away(error, 1)
            return False
        self._waiting_until = self._clock.monotonic() + WAITING_SECONDS * 1000
        return not was_known

    async def _stop_waiting(self) -> None:
        if self._waiting_until:
            self._waiting_until = 0
            # If it is not heard, enqueues notify for a few seconds more than they need to.
            with suppress(AirunnerError):
                await self._table.stop_waiting(self._options.relay_id)

    def _note_away(self, error: Exception, failures: int) -> None:
        self._is_away = True
        if self._stopping:
            self._claiming.stop()
        _log_away(error, failures)

    def _log_surprise(self, queue: str, error: BaseException) -> None:
        _log.error("outbox.relay_error", queue=queue, error=error_text(error), exc_info=error)


def _filled(outcomes: Sequence[SendOutcome], rows: Sequence[ClaimedRow]) -> list[SendOutcome]:
    """Return an outcome for each row: those that no call was made for were not tried."""
    return [*outcomes, *[NotTried("no call was made for it")] * (len(rows) - len(outcomes))]


def _is_ours(error: Exception) -> bool:
    return isinstance(error, AirunnerError)


def _log_away(error: Exception, failures: int) -> None:
    with suppress(Exception):
        _log.warning("outbox.database_failed", failures=failures, error=error_text(error))
