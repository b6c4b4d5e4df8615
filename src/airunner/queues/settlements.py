"""Reporting to a source what became of its deliveries."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from airunner.domain.background import BackgroundTasks, WakeUp
from airunner.domain.errors import error_text
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.errors import PermanentFailure
    from airunner.queues.base import Delivery, Source

T = TypeVar("T")
R = TypeVar("R")

_log = get_logger("airunner.consumer")

_MAX_SETTLEMENTS: Final = 100

OnSettled: TypeAlias = "Callable[[Sequence[Delivery[T]]], None]"


class Settlements(Generic[T, R]):
    """Acks many deliveries in one call, and releases or dead-letters each by itself, in the background.

    Acks gather while a call is on its way. `on_settled` is called with deliveries whose report is over,
    also with one that failed: its visibility lapses, and others are still settled.
    """

    def __init__(self, source: Source[T, R], clock: Clock, on_settled: OnSettled[T]) -> None:
        self._source = source
        self._on_settled = on_settled
        self._finished: deque[tuple[Delivery[T], R]] = deque()
        self._added = WakeUp(clock)
        self._single = BackgroundTasks(
            lambda key, error: _log.error("settlement.failed", key=key, error=error_text(error))
        )

    def ack(self, processed: Sequence[tuple[Delivery[T], R]]) -> None:
        """Report deliveries that were processed, each with its result."""
        self._finished.extend(processed)
        self._added.notify()

    def release(self, delivery: Delivery[T], delay_seconds: float, error: str) -> None:
        """Give a delivery back."""
        self._begin(delivery, self._source.release(delivery, delay_seconds, error))

    def dead_letter(self, delivery: Delivery[T], failure: PermanentFailure) -> None:
        """Put a delivery aside for good."""
        self._begin(delivery, self._source.dead_letter(delivery, failure))

    async def run(self) -> None:
        """Send acks until cancelled; there may be several of these, each with one call outstanding."""
        while True:
            while not self._finished:
                await self._added.wait()
            count = min(len(self._finished), _MAX_SETTLEMENTS)
            await self._ack([self._finished.popleft() for _ in range(count)])

    def abandon(self) -> None:
        """Report nothing more; what is on its way is cancelled."""
        self._finished.clear()
        self._single.cancel()

    async def _ack(self, together: list[tuple[Delivery[T], R]]) -> None:
        try:
            await self._source.ack(together)
        except Exception as error:  # noqa: BLE001  whatever it is, the next ones are reported
            _log.error("ack.failed", settlements=len(together), error=error_text(error))
        finally:
            self._on_settled([delivery for delivery, _ in together])

    def _begin(self, delivery: Delivery[T], report: Coroutine[Any, Any, None]) -> None:
        # In a task of its own, which outlives the processing of the delivery.
        task = self._single.begin(delivery.key, report)
        task.add_done_callback(lambda _: self._on_settled([delivery]))
