"""A call that goes the short way, as uvicorn's protocol sees it: in the place of its own cycle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from airunner.rpc.thin import cancelled_answer, late_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from airunner.rpc.thin import ThinAnswer, ThinCalls, ThinRequest


class ThinExchange:
    """One request and its answer. The protocol reads and sets what is public here, as of its own cycles."""

    __slots__ = (
        "_body",
        "_calls",
        "_disconnected",
        "_is_late",
        "_on_response",
        "_request",
        "_task",
        "_transport",
        "keep_alive",
        "response_complete",
    )

    def __init__(
        self,
        calls: ThinCalls,
        request: ThinRequest,
        body: bytes,
        transport: asyncio.Transport,
        *,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        """`on_response` hears when the answer is written."""
        self._calls = calls
        self._request = request
        self._body = body
        self._transport = transport
        self._on_response = on_response
        self._task: asyncio.Task[None] | None = None
        self._is_late = False
        self._disconnected = False
        self.keep_alive = keep_alive
        self.response_complete = False

    @property
    def response_started(self) -> bool:
        """Whether anything of an answer is written: all of it is, at once."""
        return self.response_complete

    @property
    def message_event(self) -> ThinExchange:
        """What the protocol sets when there is news; there is none that is waited for."""
        return self

    @property
    def disconnected(self) -> bool:
        """Whether the caller is gone."""
        return self._disconnected

    @disconnected.setter
    def disconnected(self, disconnected: bool) -> None:
        self._disconnected = disconnected
        if disconnected and self._request.method.waits and self._task:
            # Others are better finished: what they write may be begun.
            self._task.cancel()

    def set(self) -> None:
        """Hear of news."""

    def start(self, address: str) -> asyncio.Task[None]:
        """Begin the call, in a task that ends with its answer."""
        self._task = asyncio.get_running_loop().create_task(self._run(address))
        return self._task

    async def _run(self, address: str) -> None:
        # Set only here: a task that is cancelled before its first step would answer nothing.
        timer = self._set_timer()
        try:
            answer = await self._calls.answer(self._request, self._body, address)
        except asyncio.CancelledError:
            if not self._is_late:
                self._write(cancelled_answer())
                raise
            answer = late_answer()
        finally:
            if timer:
                timer.cancel()
        self._write(answer)

    def _set_timer(self) -> asyncio.TimerHandle | None:
        timeout_ms = self._request.timeout_ms
        if timeout_ms is None:
            return None
        return asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire)

    def _expire(self) -> None:
        if self._task and not self._task.done():
            self._is_late = True
            self._task.cancel()

    def _write(self, answer: ThinAnswer) -> None:
        """Write an answer in one piece, unless nobody is there to read it."""
        self.response_complete = True
        if self._disconnected or self._transport.is_closing():
            return
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        self._transport.write(
            b"%b%b%bcontent-length: %d\r\n\r\n%b"
            % (STATUS_LINE[answer.status], answer.headers, closing, len(answer.body), answer.body)
        )
        if not self.keep_alive:
            self._transport.close()
        self._on_response()
