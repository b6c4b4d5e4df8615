"""EventService: publishing and streaming, replay and live in one loop."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from airunner.codec.events import decode_event, encode_events
from airunner.domain import limits
from airunner.domain.answers import Published
from airunner.domain.errors import Unavailable
from airunner.domain.event import StreamProgress, start_position
from airunner.services import metrics
from airunner.services.call_log import log_replayed
from airunner.services.caller import current_caller
from airunner.services.notifier import job_bell
from airunner.services.streams.shared_pages import Committed
from airunner.services.streams.stream_position import StreamPosition
from airunner.stores.records import AttemptKey, EventQuery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.event import EncodedEvent, Event, Position
    from airunner.domain.requests import StreamRequest
    from airunner.domain.token import TokenSigner
    from airunner.services.notifier import Notifier
    from airunner.services.streams.shared_pages import StreamedPage
    from airunner.services.streams.stream_position import Deliver
    from airunner.services.watchers import Watchers
    from airunner.services.worker_registry import WorkerRegistry
    from airunner.stores.base import JobStore


class EventService:
    """Implements EventsApi."""

    def __init__(
        self,
        *,
        store: JobStore,
        clock: Clock,
        signer: TokenSigner,
        notifier: Notifier,
        watchers: Watchers,
        workers: WorkerRegistry,
        looks_again: bool = True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._signer = signer
        self._notifier = notifier
        self._watchers = watchers
        self._workers = workers
        # Whether a stream that nobody rang for reads the store all the same; not where that is paid for.
        self._looks_again = looks_again
        self._stopping = False

    def stop(self) -> None:
        """Let every stream end, so that its reader resumes elsewhere."""
        self._stopping = True

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        """Append events of the attempt that the token holds."""
        return await self.publish_encoded(task_token, encode_events(events))

    async def publish_encoded(self, task_token: str, events: Sequence[EncodedEvent]) -> Published:
        """Append events that are checked and encoded already; the bell rings after the commit."""
        token = self._signer.decode(task_token)
        current_caller.get().check_queue(token.queue)
        key = AttemptKey(token.job_id, token.attempt, token.receipt)
        now = self._clock.now()
        life = await self._store.append_events(key, events, now)
        metrics.published(events)
        self._workers.beat(token.job_id, now)
        self._notifier.published(token.job_id, life, Committed.by(life, events, now))
        return Published(
            next_sequence=life.last_sequence + 1,
            cancel_requested=life.cancel_requested,
            watched=self._watchers.watched(token.job_id) or life.watched_until > now,
        )

    async def stream_events(self, request: StreamRequest) -> AsyncGenerator[Event, None]:
        """Yield single events: what is stored, then what comes, until the job ends."""
        async with aclosing(self.stream_or_idle(request)) as events:
            async for event in events:
                if event is not None:
                    yield event

    async def stream_or_idle(self, request: StreamRequest) -> AsyncGenerator[Event | None, None]:
        """Yield single events, and None now and then while nothing happens."""
        start = await self.start_position(request)
        progress = StreamProgress(start, request.from_timestamp)
        async with aclosing(self.stream_pages(request, start)) as pages:
            async for page in pages:
                if page is None:
                    yield None
                    continue
                for encoded in page.events:
                    for event in progress.take(encoded, decode_event(encoded)):
                        yield event

    async def stream_pages(
        self, request: StreamRequest, start: Position | None = None, deliver: Deliver | None = None
    ) -> AsyncGenerator[StreamedPage | None, None]:
        """Yield events as they are stored, those together that were read together, and None as above.

        One loop for replay and live: note the bell, look at what comes after the position, yield, wait. What
        was committed here since the last look is at hand; all else is read from the store. Nothing is
        buffered for a reader, so nothing is dropped; a reader that stalls only stalls itself. While the
        stream waits, what is at hand is not yielded but given to `deliver`, if that can take it.
        """
        position = start or await self.start_position(request)
        query = EventQuery(
            job_id=limits.check_uuid(request.job_id, "job_id"),
            after=position,
            from_timestamp=request.from_timestamp,
            only_attempt=request.attempt,
        )
        with (
            self._watchers.watch(current_caller.get().principal, query.job_id),
            self._notifier.listen(job_bell(query.job_id)) as bell,
        ):
            reached = StreamPosition(bell, query, request, self._clock, deliver)
            quiet, replayed, rung = True, False, False
            while not self._stopping:
                noted = bell.rings
                shared = await reached.look(self._store, rung=rung)
                reached.pass_over(shared)
                if wanted := reached.wanted_of(shared):
                    quiet = False
                    yield wanted
                    reached.note_told()
                if shared.page.full:
                    continue
                # All up to here is seen, the state of the job included.
                reached.looked = noted
                if not replayed:
                    replayed = True
                    log_replayed(query.job_id, position, reached.after)
                if not request.follow or reached.is_at_end(shared.page):
                    return
                if quiet or reached.told_by() <= self._clock.monotonic():
                    # The reader of a job without events learns at once that it is connected.
                    quiet = False
                    yield None
                    reached.note_told()
                while not (rung := await bell.follow(reached.looked, reached.take, reached.told_by)):
                    await reached.check_caller()
                    yield None
                    reached.note_told()
                    if self._looks_again:
                        break
        raise Unavailable("the server is shutting down")

    async def start_position(self, request: StreamRequest) -> Position:
        """Return the position after which the wanted events begin, or raise where the caller may not see."""
        request.validate()
        job_id = limits.check_uuid(request.job_id, "job_id")
        queues = current_caller.get().queues
        if not queues and not request.is_relative:
            # Whether there is such a job is told by the first read of its events.
            return start_position(request, 0)
        life = await self._store.get_life(job_id, queues=queues)
        return start_position(request, 0 if request.attempt else life.attempt)
