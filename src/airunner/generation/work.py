"""One try at work of the generation queue: its start, the handler, and the verdict around it.

The same for both sinks: whoever took the work from a queue of messages, or as a job, has it done here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from airunner import telemetry
from airunner.domain.clock import wait_until
from airunner.domain.errors import AirunnerError, InvalidArgument, PermanentFailure
from airunner.domain.retry import RetryPolicy, retry
from airunner.generation.verdict import (
    GenerationFailed,
    GenerationFailure,
    Settled,
    Success,
    TimedOut,
    judge_error,
    read_success,
    text_of,
)
from airunner.handlers.arguments import INVALID_RESULT
from airunner.handlers.calls import HandlerCall, HandlerCalls
from airunner.handlers.context import OutputSink
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.queues.base import TryAgain
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.clock import Clock
    from airunner.generation.sessions import BegunTry, SessionTable
    from airunner.generation.verdict import GenerationSession, Verdict
    from airunner.handlers.context import Context
    from airunner.handlers.registry import Handler

_log = get_logger("airunner.generation")

UNKNOWN_SESSION: Final = "unknown_session"
"""The code of a body whose id nobody enqueued here: there is no place for what it would do."""
# What a handler has to end after its deadline, or when the worker stops, before nobody waits for it any more.
_GRACE_SECONDS: Final = 1.0
_LOST_MARGIN_SECONDS: Final = 60
_DATABASE_AWAY: Final = RetryPolicy(first_seconds=0.5, max_seconds=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTry:
    """One delivery of work."""

    id: str
    handler: Handler
    payload_json: str
    attempt: int
    last_try: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """How long things may take."""

    deadline_seconds: float = 900.0
    """Of a handler, from when it has begun."""
    visibility_seconds: float = 120.0
    """Of what it was taken from; after its deadline and this nobody can hold the work."""
    threads: int = 10
    """How many sync handlers can run at once."""
    verdict_policy: RetryPolicy = _DATABASE_AWAY
    """How long to wait after a verdict, or the start of a try, that could not be written."""

    @property
    def lost_seconds(self) -> float:
        """How long after its last try work without a verdict is lost."""
        return self.deadline_seconds + self.visibility_seconds + _LOST_MARGIN_SECONDS


class NoFreeThread(Exception):
    """A handler was not called: no thread became free for it."""


class WorkCall(HandlerCall[str, OutputSink]):
    """A call that knows whether it has begun; made on the worker's loop, that of `callbacks`."""

    __slots__ = ("_callbacks", "begun")

    def __init__(
        self,
        key: str,
        handler: Handler,
        payload_json: str,
        *,
        output: OutputSink,
        context: Context,
        callbacks: LoopCallbacks,
    ) -> None:
        super().__init__(key, handler, payload_json, output=output, context=context)
        self._callbacks = callbacks
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def run(self) -> None:
        """Call a sync handler, in the current thread."""
        self._callbacks.post(self._begin)
        super().run()

    async def run_async(self, task: asyncio.Task[Any] | None) -> None:
        """Call an async handler, in the current task: others may have kept the loop to themselves before."""
        self._callbacks.post(self._begin)
        await super().run_async(task)

    def _begin(self) -> None:
        """Take note, on the worker's loop, that it has a thread."""
        if not self.begun.done():
            self.begun.set_result(None)

    def raise_if_called_off(self) -> None:
        """Raise CancelledError if its job was stopped: what a handler then returns is no result."""
        if self.context and self.context.cancelled and not self.stopped:
            raise asyncio.CancelledError


class GenerationWork:
    """Does work, any number at once, on one loop; handlers run beside it."""

    def __init__(self, sessions: SessionTable, clock: Clock, options: WorkOptions) -> None:
        self._sessions = sessions
        self._clock = clock
        self._options = options
        self._overdue: set[WorkCall] = set()
        self._calls: HandlerCalls[WorkCall] | None = None

    @property
    def overdue(self) -> int:
        """How many handlers go on though nobody waits for them any more; each still takes a slot."""
        return len(self._overdue)

    async def run(
        self,
        work: WorkTry,
        make_context: Callable[[GenerationSession], tuple[OutputSink, Context]],
    ) -> str:
        """Do work that was delivered, and return its result as JSON once its verdict is written.

        Work with a verdict is not done again: the result is empty, or GenerationFailed while the letter of a
        failed one was not sent; the same if another one writes the verdict meanwhile. Raises TryAgain when
        there is to be another try; GenerationFailed once a failed verdict is written. While PostgreSQL does
        not answer it waits, before the handler is called and after it: the handler is called once, whatever
        becomes of the verdict.
        """
        begun = await self._begin(work)
        if begun.session is None or begun.settled is not Settled.OPEN:
            return _answer_settled(work, begun)
        _log.info("job.start", **_facts(work))
        output, context = make_context(begun.session)
        call = WorkCall(
            work.id,
            work.handler,
            work.payload_json,
            output=output,
            context=context,
            callbacks=self._callbacks,
        )
        started_at = self._clock.monotonic()
        try:
            verdict: Verdict = read_success(await self._call(call))
        except Exception as error:  # noqa: BLE001  the handler's own: what it means is decided here
            verdict = await self._judge(work, error)
        finally:
            output.flush()
        seconds = round((self._clock.monotonic() - started_at) / 1000, 3)
        written = await self._write(work, verdict)
        if written is None:
            return _answer_settled(work, await self._begin(work)) or call.result
        if isinstance(written, GenerationFailure):
            _log.error("job.permanent_failure", code=written.code, error=written.reason, **_facts(work))
            raise GenerationFailed(begun.session, written, self._clock.now())
        _log.info("job.completed", seconds=seconds, **_facts(work))
        return call.result

    def close(self) -> None:
        """Begin no more handlers."""
        if self._calls:
            self._calls.close()

    @cached_property
    def _callbacks(self) -> LoopCallbacks:
        return LoopCallbacks(asyncio.get_running_loop())

    async def _begin(self, work: WorkTry) -> BegunTry:
        lost_seconds = self._options.lost_seconds
        return await retry(
            self._options.verdict_policy,
            self._clock,
            lambda: self._sessions.begin(
                work.id, work.attempt, last_try=work.last_try, lost_seconds=lost_seconds
            ),
            retry_if=lambda error: isinstance(error, AirunnerError),
            on_failure=lambda error, failures: _log.warning(
                "job.start_failed", failures=failures, error=text_of(error), **_facts(work)
            ),
        )

    async def _call(self, call: WorkCall) -> str:
        """Return the result of a handler; TimedOut once its deadline is over, counted from its begin.

        CancelledError where its job was stopped, also if it ends by itself then.
        """
        call.raise_if_called_off()
        if self._calls is None:
            self._calls = HandlerCalls(
                threads=self._options.threads, callbacks=self._callbacks, on_ended=self._on_ended
            )
        self._calls.begin([call])
        try:
            await self._wait_for_thread(call)
            is_over = await wait_until(self._clock, self._after(self._options.deadline_seconds), call.done())
            call.raise_if_called_off()
        except (asyncio.CancelledError, NoFreeThread):
            await self._stop(call)
            raise
        if not is_over:
            await self._stop(call)
            if call.failed or not call.settled:
                raise TimedOut(f"the handler took longer than {self._options.deadline_seconds:g} s")
        return await call.done()

    async def _wait_for_thread(self, call: WorkCall) -> None:
        # With more than this and its deadline it would be lost while it runs.
        seconds = self._options.visibility_seconds
        if not await wait_until(self._clock, self._after(seconds), call.begun):
            raise NoFreeThread(f"no thread became free for the handler in {seconds:g} s")

    def _after(self, seconds: float) -> int:
        return self._clock.now() + int(seconds * 1000)

    async def _stop(self, call: WorkCall) -> None:
        """Ask a handler to end and wait a moment for it; then it is heard no more, and only takes a slot."""
        call.stop()
        with suppress(asyncio.CancelledError):
            await wait_until(self._clock, self._after(_GRACE_SECONDS), call.done())
        if not call.settled:
            self._overdue.add(call)
            call.done().cancel()
            # One that prints without end would be heard without end.
            call.output.seal()
            _log.warning("handler.overdue", id=call.key, handler=call.handler.name)
        elif call.failed:
            call.done().exception()

    def _on_ended(self, calls: Sequence[WorkCall]) -> None:
        self._overdue.difference_update(calls)

    async def _judge(self, work: WorkTry, error: Exception) -> GenerationFailure:
        """Return what an error means for good; TryAgain if there is to be another try."""
        failure = judge_error(error, is_last_try=work.last_try)
        if failure:
            return failure
        text = text_of(error)
        _log.warning("job.retry", error=text, **_facts(work))
        telemetry.generation_retries.add(1)
        # Only for those who read it later: that it is lost while PostgreSQL is away changes nothing.
        with suppress(AirunnerError):
            await self._sessions.note_error(work.id, text)
        raise TryAgain(text) from error

    async def _write(self, work: WorkTry, verdict: Verdict) -> Verdict | None:
        """Write a verdict, however long that takes; return it as it was written.

        None if there is one: of a copy that was quicker, or this one, if the answer was lost.
        """

        async def write(verdict: Verdict) -> bool:
            return await retry(
                self._options.verdict_policy,
                self._clock,
                lambda: self._sessions.settle(work.id, verdict, work.handler.hooks),
                retry_if=lambda error: (
                    not (isinstance(error, InvalidArgument) and isinstance(verdict, Success))
                ),
                on_failure=lambda error, failures: _log.warning(
                    "verdict.failed", failures=failures, error=text_of(error), **_facts(work)
                ),
            )

        try:
            is_new = await write(verdict)
        except InvalidArgument:
            reason = "the result has a value that PostgreSQL cannot keep"
            verdict = GenerationFailure(code=INVALID_RESULT, reason=reason)
            is_new = await write(verdict)
        if not is_new:
            return None
        telemetry.generation_verdicts.add(1, "done" if isinstance(verdict, Success) else "failed")
        return verdict


def _answer_settled(work: WorkTry, begun: BegunTry) -> str:
    if begun.settled is Settled.UNKNOWN:
        raise PermanentFailure(UNKNOWN_SESSION, "nobody enqueued this id here")
    telemetry.generation_verdicts.add(1, "repeated")
    _log.info("job.settled", state=begun.settled.value, **_facts(work))
    if begun.settled is Settled.FAILED and begun.session and begun.failure:
        raise GenerationFailed(begun.session, begun.failure, begun.failed_at)
    return ""


def _facts(work: WorkTry) -> dict[str, object]:
    return {"id": work.id, "handler": work.handler.name, "attempt": work.attempt}
