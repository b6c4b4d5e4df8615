"""The one loop that receives, extends and drains; `queues.base` has the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from airunner.domain.background import WakeUp
from airunner.domain.errors import VisibilityLost, error_text, permanent_failure, retry_after_seconds
from airunner.queues.base import ConsumerOptions, Delivery, Hold, Runner, Source, TryAgain
from airunner.queues.settlements import Settlements
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

_log = get_logger("airunner.consumer")

_PROVIDER_POLL_MS: Final = 1_000
# Handlers in threads need the interpreter to begin: who asks for more while others wait would keep it.
_LET_BEGIN_SECONDS: Final = 0.001
_LAST_MOMENT_MS: Final = 2_000


class Consumer(Generic[T, R]):
    """Works on what a source delivers until it is stopped.

    One slow delivery delays neither the next receive nor another's settlement. Settlements are gathered
    while one is on its way, so a busy consumer reports many in one call and an idle one reports at once.
    """

    def __init__(
        self,
        source: Source[T, R],
        runner: Runner[T, R],
        *,
        clock: Clock,
        options: ConsumerOptions | None = None,
    ) -> None:
        self._source = source
        self._runner = runner
        self._clock = clock
        self._options = options or ConsumerOptions()
        self._held: dict[Delivery[T], _Held[T]] = {}
        self._settlements: Settlements[T, R] = Settlements(source, clock, self._forget)
        self._receiving: set[asyncio.Task[Sequence[Delivery[T]]]] = set()
        self._running = 0
        self._requested = 0
        self._received = 0
        self._stopped_at: int | None = None
        self._killed = False
        self._change = WakeUp(clock)
        self._failure: Exception | None = None
        self.receive_began_at: int | None = None
        """When the last receive began, by the monotonic clock; None while no slot is free for another."""

    @property
    def running(self) -> int:
        """How many deliveries are being processed."""
        return self._running

    async def run(self) -> None:
        """Work until `stop` or the last of `max_deliveries`, then drain. Call it once.

        After a fatal error of the source it drains too, and raises that error. Cancelling this is a stop,
        cancelling it again a kill; in both cases it raises only when all is over.
        """
        work = asyncio.create_task(self._work())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                self.kill()
                await work
            raise

    def stop(self) -> None:
        """Receive no more, let processing go on for `drain_seconds`, cancel and release what is left."""
        if self._stopped_at is None:
            self._stopped_at = self._clock.now()
            for receiving in self._receiving:
                receiving.cancel()
            self._change.notify()

    def kill(self) -> None:
        """Cancel all processing at once, settle nothing more, and end."""
        self._killed = True
        self.stop()
        self._change.notify()

    async def _work(self) -> None:
        settlers = [asyncio.create_task(self._settlements.run()) for _ in range(self._options.settlers)]
        try:
            await asyncio.gather(*(self._receive_on() for _ in range(self._options.receivers)))
            await self._drain()
        finally:
            for settler in settlers:
                settler.cancel()
            await asyncio.wait(settlers)
        if self._failure:
            raise self._failure

    async def _receive_on(self) -> None:
        failures = 0
        while not self._ending:
            try:
                deliveries = await self._receive() if await self._has_room() else ()
            except self._options.fatal as error:
                self._failure = error
                self.stop()
                return
            except Exception as error:  # noqa: BLE001 - whatever goes wrong with a source, the loop goes on
                failures += 1
                _log.warning("receive.failed", failures=failures, error=error_text(error))
                pause = self._options.reconnect.delay(failures, at_least=retry_after_seconds(error))
                await self._until(lambda: self._ending, self._clock.now() + _ms(pause))
                continue
            failures = 0
            self._begin(deliveries)
            if deliveries and self._receiving:
                await self._change.wait_briefly(_LET_BEGIN_SECONDS)

    async def _has_room(self) -> bool:
        """Wait for a free slot; False when nothing is to be received any more."""
        poll = not isinstance(self._options.concurrency, int)
        while not self._ending and self._room() <= 0:
            if not self._receiving:
                self.receive_began_at = None
            deadline = self._clock.now() + _PROVIDER_POLL_MS if poll else None
            await self._until(lambda: self._ending or self._room() > 0, deadline)
        return not self._ending

    def _room(self) -> int:
        """Return how many deliveries may be asked for now.

        A slot is free when its processing has ended; but what waits for its settlement is bounded as well.
        """
        options = self._options
        limit = options.concurrency if isinstance(options.concurrency, int) else options.concurrency()
        room = min(limit - self._running, 2 * limit - len(self._held)) - self._requested
        if options.max_deliveries is not None:
            room = min(room, options.max_deliveries - self._received - self._requested)
        return min(room, options.max_receive)

    async def _receive(self) -> Sequence[Delivery[T]]:
        room = self._room()
        receiving = asyncio.ensure_future(self._source.receive(room))
        self._requested += room
        self._receiving.add(receiving)
        self.receive_began_at = self._clock.monotonic()
        try:
            await asyncio.wait({receiving})
        finally:
            self._requested -= room
            self._receiving.discard(receiving)
            self._change.notify()
        return () if receiving.cancelled() else receiving.result()

    def _begin(self, deliveries: Sequence[Delivery[T]]) -> None:
        if not deliveries:
            return
        self._received += len(deliveries)
        received = [_Held(delivery) for delivery in deliveries]
        self._held.update(zip(deliveries, received, strict=True))
        if self._stopped_at is None:
            self._running += len(deliveries)
            self._runner.begin(deliveries, self._finish, self._fail)
        else:
            for held in received:
                held.settling = True
                self._settlements.release(held.delivery, 0, "")
        # One timer for all that came together; most of them are over when it rings.
        age_ms = _ms(min([delivery.extend_after_seconds for delivery in deliveries]))
        self._clock.call_at(self._clock.now() + age_ms, lambda: self._extend(received))

    def _extend(self, received: Iterable[_Held[T]]) -> None:
        for held in received:
            if held.delivery in self._held:
                held.extender = asyncio.create_task(self._keep(held), name=f"extend {held.delivery.key}")

    async def _keep(self, held: _Held[T]) -> None:
        failures = 0
        while True:
            try:
                hold = await self._source.extend(held.delivery)
                failures = 0
            except Exception as error:  # noqa: BLE001 - an unreachable source is no reason to let go
                failures += 1
                _log.warning(
                    "extend.failed", key=held.delivery.key, failures=failures, error=error_text(error)
                )
                pause = self._options.reconnect.delay(failures, at_least=retry_after_seconds(error))
                await self._clock.sleep(pause)
                continue
            if hold is Hold.CANCELLED:
                held.delivery.cancelled.set()
            elif hold is Hold.LOST:
                if not held.settling:
                    held.delivery.lost = True
                    self._cancel(held)
                    _log.warning("delivery.lost", key=held.delivery.key, attempt=held.delivery.attempt)
                return

    def _finish(self, results: Sequence[tuple[Delivery[T], R]]) -> None:
        """Ack deliveries whose processing has returned; those that were given up are left out."""
        known = [entry for entry in results if entry[0] in self._held]
        self._running -= len(known)
        self._forget([delivery for delivery, _ in known if delivery.lost])
        processed = [entry for entry in known if not entry[0].lost]
        for delivery, _ in processed:
            self._held[delivery].settling = True
        self._settlements.ack(processed)
        self._change.notify()

    def _fail(self, delivery: Delivery[T], error: BaseException) -> None:
        """Decide what becomes of a delivery whose processing has raised."""
        held = self._held.get(delivery)
        if held is None:
            return
        self._running -= 1
        if delivery.lost or isinstance(error, VisibilityLost):
            self._forget([delivery])
            return
        held.settling = True
        if isinstance(error, asyncio.CancelledError):
            self._settlements.release(delivery, 0, "")
        elif not isinstance(error, TryAgain) and (failure := permanent_failure(error)):
            self._settlements.dead_letter(delivery, failure)
        else:
            again = error if isinstance(error, TryAgain) else TryAgain(error_text(error))
            _log.warning("handler.failed", key=delivery.key, attempt=delivery.attempt, error=str(again))
            delay = self._options.redelivery.delay(delivery.attempt)
            delay = delay if again.delay_seconds is None else again.delay_seconds
            self._settlements.release(delivery, delay, str(again))

    def _forget(self, deliveries: Iterable[Delivery[T]]) -> None:
        for delivery in deliveries:
            held = self._held.pop(delivery, None)
            if held and held.extender:
                held.extender.cancel()
        self._change.notify()

    async def _drain(self) -> None:
        """Wait for the held deliveries, then cancel them, then give them up; extending goes on meanwhile."""
        await self._until(lambda: not self._held or self._stopped_at is not None)
        stopped_at = self._clock.now() if self._stopped_at is None else self._stopped_at
        if not await self._until(self._is_over, stopped_at + _ms(self._options.drain_seconds)):
            self._cancel_all()
            await self._until(self._is_over, self._clock.now() + _ms(self._options.release_seconds))
        if self._held:
            await self._abandon()

    async def _abandon(self) -> None:
        _log.warning("consumer.abandoned", keys=sorted(delivery.key for delivery in self._held))
        for delivery in self._held:
            delivery.lost = True
        self._cancel_all()
        self._settlements.abandon()
        await self._until(lambda: self._running == 0, self._clock.now() + _LAST_MOMENT_MS)
        self._forget(list(self._held))

    def _cancel_all(self) -> None:
        for held in self._held.values():
            self._cancel(held)

    def _cancel(self, held: _Held[T]) -> None:
        if not held.settling:
            self._runner.cancel(held.delivery)

    def _is_over(self) -> bool:
        return self._killed or not self._held

    @property
    def _ending(self) -> bool:
        if self._stopped_at is not None:
            return True
        return self._options.max_deliveries is not None and self._received >= self._options.max_deliveries

    async def _until(self, condition: Callable[[], bool], deadline: int | None = None) -> bool:
        """Wait until the condition holds, looking after every change; False if the deadline was first."""
        while not condition():
            if deadline is not None and self._clock.now() >= deadline:
                return False
            await self._change.wait(deadline)
        return True


class _Held(Generic[T]):
    """A delivery that is not settled yet."""

    __slots__ = ("delivery", "extender", "settling")

    def __init__(self, delivery: Delivery[T]) -> None:
        self.delivery = delivery
        self.extender: asyncio.Task[None] | None = None
        self.settling = False


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
