"""The life of one part of a fleet's work: opened, run and drained, in its own process or in a server's."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol

from airunner.domain.errors import AirunnerError, ResourceExhausted, Unavailable, error_text
from airunner.domain.retry import RetryPolicy, StoppableRetry
from airunner.fleet.progress import is_overdue
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from airunner.domain.clock import Clock
    from airunner.fleet.dependencies import Dependencies
    from airunner.queues.consumer import Consumer
    from airunner.queues.messages import MessageSource

_log = get_logger("airunner.fleet")

_OPENING: Final = RetryPolicy(first_seconds=0.5, max_seconds=10.0)


class FleetWork(Protocol):
    """What goes on until it is stopped: a processor of messages, or the schedule. Each is run once."""

    async def run(self) -> None:
        """Work until `stop`, and return when all is over."""

    def stop(self) -> None:
        """Take nothing new, finish or give back what is held. May be repeated."""

    def kill(self) -> None:
        """End at once."""

    @property
    def healthy(self) -> bool:
        """Whether it makes progress; to wait for what is away is some."""

    @property
    def waiting(self) -> bool:
        """Whether something that it needs does not answer."""


class FleetProcess:
    """Opens one part of a fleet's work, waiting for what is away, and runs it. Implements Companion."""

    def __init__(
        self,
        name: str,
        open_work: Callable[[AsyncExitStack], Awaitable[FleetWork]],
        clock: Clock,
        *,
        resources: Sequence[AbstractAsyncContextManager[object]] = (),
    ) -> None:
        """`open_work` opens all that the work needs on a stack; `resources` are open around that."""
        self.name = name
        self._open_work = open_work
        self._clock = clock
        self._resources = resources
        self._opening = StoppableRetry()
        self._work: FleetWork | None = None
        self._stopping = False

    @property
    def healthy(self) -> bool:
        """Whether it makes progress; to wait for AWS is no failure."""
        return self._work is None or self._work.healthy

    @property
    def state(self) -> str:
        """What it does, in a word: `ok`, `waiting` while something does not answer, or `stuck`."""
        if self._work is None:
            return "waiting"
        if not self._work.healthy:
            return "stuck"
        return "waiting" if self._work.waiting else "ok"

    async def run(self) -> None:
        """Open everything and work until `stop`. Call it once.

        Raises what cannot pass, such as a queue that is missing.
        """
        async with AsyncExitStack() as stack:
            for resource in self._resources:
                await stack.enter_async_context(resource)
            self._work = await self._opened(stack)
            if self._work and not self._stopping:
                _log.info("fleet.start", part=self.name)
                await self._work.run()

    def stop(self) -> None:
        """Take nothing new; `run` returns when what is held is finished or given back. May be repeated."""
        if not self._stopping:
            _log.info("fleet.stopping", part=self.name)
        self._stopping = True
        if self._work:
            self._work.stop()
        self._opening.stop()

    async def drain(self) -> None:
        """Do the same."""
        self.stop()

    def kill(self) -> None:
        """End it at once; what is held comes again."""
        self.stop()
        if self._work:
            self._work.kill()

    async def _opened(self, stack: AsyncExitStack) -> FleetWork | None:
        """Return the work, opened; None if it was stopped before that."""
        return await self._opening.run(
            _OPENING,
            self._clock,
            lambda: self._open(stack),
            retry_if=lambda error: isinstance(error, Unavailable | ResourceExhausted),
            on_failure=self._log_waiting,
        )

    async def _open(self, stack: AsyncExitStack) -> FleetWork:
        """Open everything once; what was opened when something fails is closed at once."""
        async with AsyncExitStack() as opened:
            work = await self._open_work(opened)
            await stack.enter_async_context(opened.pop_all())
            return work

    def _log_waiting(self, error: Exception, failures: int) -> None:
        text = error_text(error) if isinstance(error, AirunnerError) else type(error).__name__
        _log.warning("fleet.waiting", part=self.name, failures=failures, error=text)


class MessageWork:
    """Implements FleetWork over the consumer of a queue."""

    def __init__(
        self,
        consumer: Consumer[Any, None],
        source: MessageSource[Any],
        dependencies: Dependencies,
        clock: Clock,
    ) -> None:
        self._consumer = consumer
        self._source = source
        self._dependencies = dependencies
        self._clock = clock

    @property
    def healthy(self) -> bool:
        """Whether it goes on to receive, and something happens to what it has received."""
        began_at = self._consumer.receive_began_at
        receives = began_at is None or not is_overdue(began_at, self._clock)
        return receives and not self._dependencies.progress.is_stuck

    @property
    def waiting(self) -> bool:
        """Whether something that its messages need is away."""
        return not self._dependencies.are_there

    async def run(self) -> None:
        """Process messages until `stop`, and put the last ones aside that nobody can read."""
        try:
            await self._consumer.run()
        finally:
            await self._source.finish()

    def stop(self) -> None:
        """Receive no more; what is held has its time to end, and is given back after that."""
        self._consumer.stop()

    def kill(self) -> None:
        """End at once."""
        self._consumer.kill()
