"""Calls with one entry each that are made at the same time: they share a call that carries many."""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from airunner.client.batch_calls import Sized, send_call
from airunner.client.connection import PASSING
from airunner.domain.errors import AirunnerError
from airunner.domain.outcomes import send_entries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from airunner.domain.clock import Clock

M = TypeVar("M", bound=Sized)
R = TypeVar("R")

MAX_ENTRIES: Final = 50
"""As many as the embedded store writes by one statement."""
LARGE_BYTES: Final = 16 * 1024
"""A larger entry goes by itself: its own call is the least of its cost, and nobody has to wait for it."""


class SharedCalls(Generic[M, R]):
    """Sends entries, those together that come in one turn of the loop; each has its own outcome.

    An entry that comes while no other is on its way goes at once, in a call of its own, so that whoever calls
    alone waits for nobody. The others wait until the loop has run what was ready: tasks that are answered
    together ask together again. Entries must be idempotent: one that is refused in a way that may pass goes
    on by itself, as any single call does that was refused so, within the time that it began with.

    Cancelling one caller leaves the others alone; its entry is not sent if it is not on its way yet. A call
    that nobody waits for any more is cancelled. What a call fails with as a whole is raised for all of them,
    for each as an error of its own.
    """

    def __init__(
        self,
        send_one: Callable[[M], Awaitable[R]],
        send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
        send_again: Callable[[M, Exception, int], Awaitable[R]],
        clock: Clock,
    ) -> None:
        """`send_again` goes on with an entry after an error, begun at an instant of the monotonic clock."""
        self._send_one = send_one
        self._send_many = send_many
        self._send_again = send_again
        self._clock = clock
        self._under_way = 0
        self._next: _SharedCall[M, R] | None = None

    async def send(self, message: M) -> R:
        """Return what became of an entry, or raise why it was refused."""
        self._under_way += 1
        try:
            if self._under_way == 1 or message.ByteSize() > LARGE_BYTES:
                return await self._send_one(message)
            began = self._clock.monotonic()
            outcome = await self._send_with_others(message)
            if isinstance(outcome, PASSING):
                return await self._send_again(message, outcome, began)
            if isinstance(outcome, AirunnerError):
                raise outcome
            return outcome
        finally:
            self._under_way -= 1

    def _send_with_others(self, message: M) -> Awaitable[R | AirunnerError]:
        call = self._next
        if call is None or not call.is_open:
            send = partial(send_call, send_one=self._send_one, send_many=self._send_many)
            call = self._next = _SharedCall(send, asyncio.get_running_loop())
        return call.add(message)


class _SharedCall(Generic[M, R]):
    """One call: open for entries until the loop comes to it, then under way until its answer."""

    def __init__(
        self,
        send: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._send = send
        self._loop = loop
        self._entries: dict[asyncio.Future[R | AirunnerError], M] = {}
        self._started = False
        self._task: asyncio.Task[None] | None = None
        loop.call_soon(self._start)

    @property
    def is_open(self) -> bool:
        """Whether one more entry can join; not once its loop has ended before it came to start the call."""
        return not self._started and len(self._entries) < MAX_ENTRIES and self._loop.is_running()

    async def add(self, message: M) -> R | AirunnerError:
        """Return what became of an entry, once the call is answered."""
        outcome: asyncio.Future[R | AirunnerError] = self._loop.create_future()
        self._entries[outcome] = message
        try:
            return await outcome
        except asyncio.CancelledError:
            if self._task and all(entry.cancelled() for entry in self._entries):
                self._task.cancel()
            raise

    def _start(self) -> None:
        self._started = True
        self._entries = {entry: message for entry, message in self._entries.items() if not entry.cancelled()}
        if self._entries:
            # Whoever waits holds it: a loop holds no task.
            self._task = self._loop.create_task(self._run(), name="shared call")
            self._task.add_done_callback(self._end)

    async def _run(self) -> None:
        try:
            outcomes = await send_entries(list(self._entries.values()), self._send)
        except Exception as error:  # noqa: BLE001  whatever it is, it is raised for all who wait
            for entry in self._entries:
                if not entry.done():
                    entry.set_exception(_own_copy(error))
        else:
            for entry, outcome in zip(self._entries, outcomes, strict=True):
                if not entry.done():
                    entry.set_result(outcome)

    def _end(self, _: asyncio.Task[None]) -> None:
        """Let nobody wait for a call that was cancelled, be it before its first step."""
        for entry in self._entries:
            entry.cancel()


def _own_copy(error: Exception) -> Exception:
    """Return an error for one of many callers: what one of them adds to it is not for the others."""
    kind = type(error)
    # Not by `copy`, which calls constructors that want more than what an error keeps.
    own = kind.__new__(kind, *error.args)
    vars(own).update({name: copy.copy(value) for name, value in vars(error).items()})
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)
