"""Watches an item from both ends: in the database, where it listens too, and as a reader of its stream."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import AirunnerError, error_text
from airunner.generation.diagnosis.hops import HopName, Observation
from airunner.generation.diagnosis.queue_look import look_at_queue
from airunner.generation.diagnosis.server_calls import ServerTrouble
from airunner.generation.session_api.start import APPLICATION_NAME
from airunner.generation.sessions import COMPLETED_CHANNEL
from airunner.outbox.start import listen_options
from airunner.services.notifier import Bell

if TYPE_CHECKING:
    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.generation.diagnosis.hops import ItemProgress
    from airunner.generation.diagnosis.item_table import ItemTable
    from airunner.generation.diagnosis.server_calls import ServerCalls

_POLL_MS: Final = 50
_LISTEN_SECONDS: Final = 5.0
# How long after a relay waited it counts as one that runs.
_SIGN_SECONDS: Final = 3.0
# How long after a verdict its notification, and the end of its stream, are waited for.
_HEAR_SECONDS: Final = 2.0
_TELL_SECONDS: Final = 10.0


class ItemLost(Exception):
    """Nothing can be told of the item any more, or it is not here at all."""

    def __init__(self, hop: HopName, text: str) -> None:
        super().__init__(text)
        self.hop = hop


class ItemWatch:
    """Watches one item; `listen` before it is sent, `run` after that. Instants are the database's."""

    def __init__(self, settings: Settings, clock: Clock, table: ItemTable, server: ServerCalls) -> None:
        self._settings = settings
        self._clock = clock
        self._table = table
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._bell = Bell(clock)
        self._heard: list[tuple[str, float]] = []
        self._told_at: float | None = None
        self._is_stream_over = False
        self._stream_trouble = ""
        self._relay_waited_at: int | None = None
        self._end_seen_at: int | None = None

    async def listen(self, stack: AsyncExitStack) -> None:
        """Hear of verdicts from now on; one that cannot listen hears of none, and its hop is broken then."""
        from airunner.postgres.listening import Listener

        connected = asyncio.Event()

        def heard(_channel: str, session_id: str) -> None:
            self._heard.append((session_id, self._loop.time()))
            self._bell.ring()

        options = replace(listen_options(self._settings), application_name="airunner diag")
        listener = Listener(
            options, [COMPLETED_CHANNEL], on_payload=heard, on_gap=connected.set, clock=self._clock
        )
        stack.push_async_callback(listener.stop)
        listener.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LISTEN_SECONDS):
                await connected.wait()

    async def run(self, session_id: str, give_up_at: int) -> Observation:
        """Return what was seen of it when it was over, or the time was, by the monotonic clock.

        ItemLost if the database knows nothing of it, or cannot be asked.
        """
        following = asyncio.create_task(self._follow(session_id))
        try:
            progress = await self._watch(session_id, give_up_at)
        finally:
            following.cancel()
            await asyncio.wait({following})
        return await self._observe(session_id, progress)

    async def _watch(self, session_id: str, give_up_at: int) -> ItemProgress:
        while True:
            noted = self._bell.rings
            is_late = self._clock.monotonic() >= give_up_at
            progress = await self._read(session_id)
            if is_late or self._is_over(session_id, progress):
                return progress
            await self._bell.wait(noted, self._clock.now() + _POLL_MS)

    async def _read(self, session_id: str) -> ItemProgress:
        try:
            progress = await self._table.read(session_id)
        except AirunnerError as error:
            raise ItemLost(HopName.DATABASE, error_text(error)) from None
        if progress is None:
            raise ItemLost(
                HopName.OUTBOX,
                "the server has enqueued it, and it is not here: the server has another database or schema",
            )
        if progress.relays_waiting:
            self._relay_waited_at = self._clock.monotonic()
        return progress

    def _is_over(self, session_id: str, progress: ItemProgress) -> bool:
        if progress.outbox_state == "parked" or progress.state == "failed":
            return True
        if progress.finished_at is None:
            return False
        if self._end_seen_at is None:
            self._end_seen_at = self._clock.monotonic()
        waited = (self._clock.monotonic() - self._end_seen_at) / 1000
        # The mark of a relay may come after the verdict.
        is_noted = progress.dispatched_at is not None and self._heard_at(session_id, progress) is not None
        is_heard = is_noted or waited > _HEAR_SECONDS
        is_told = self._is_stream_over or bool(self._stream_trouble) or waited > _TELL_SECONDS
        return is_heard and is_told

    def _heard_at(self, session_id: str, progress: ItemProgress) -> float | None:
        """Return when the verdict was notified: what came before it was of something else."""
        least = (progress.finished_at or float("inf")) - self._table.clock_error
        arrivals = [self._table.at(when) for name, when in self._heard if name == session_id]
        return next((at for at in arrivals if at >= least), None)

    async def _follow(self, session_id: str) -> None:
        """Read the stream of the session to its end, as a browser does."""

        def told(event: str) -> None:
            if event in {"done", "failed"}:
                self._told_at = self._table.at(self._loop.time())

        try:
            await self._server.follow(session_id, told)
            self._is_stream_over = True
        except ServerTrouble as error:
            self._stream_trouble = str(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the stream cannot be read
            self._stream_trouble = f"the stream of the session cannot be read: {type(error).__name__}"
        finally:
            self._bell.ring()

    async def _observe(self, session_id: str, progress: ItemProgress) -> Observation:
        diag = self._settings.diag
        seen = Observation(
            progress=progress,
            handler=diag.job_type,
            outputs=diag.outputs,
            has_waiting_relay=self._has_waiting_relay(),
            heard_at=self._heard_at(session_id, progress),
            told_at=self._told_at,
            is_stream_over=self._is_stream_over,
            stream_trouble=self._stream_trouble,
        )
        if progress.started_at is None and progress.finished_at is None:
            seen.queue = await look_at_queue(self._settings, self._clock)
        elif progress.finished_at is not None:
            seen.is_server_listening = await self._has_listening_server()
        return seen

    def _has_waiting_relay(self) -> bool:
        """Return whether a relay waited for work a moment ago; it does not while it tries to send."""
        waited_at = self._relay_waited_at
        return waited_at is not None and self._clock.monotonic() - waited_at < _SIGN_SECONDS * 1000

    async def _has_listening_server(self) -> bool:
        from airunner.postgres.listening import listener_name

        try:
            return await self._table.has_listener(listener_name(APPLICATION_NAME))
        except AirunnerError:
            return True
