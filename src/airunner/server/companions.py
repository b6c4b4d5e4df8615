"""What works beside a server in its process: begun once it serves, drained before it goes.

The one order of shutdown holds for these too: they take nothing new, finish what they hold while the server
still answers, and give back the rest; then the server goes, and its store last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain.background import BackgroundTasks
from airunner.domain.clock import wait_until
from airunner.domain.errors import AirunnerError, Unavailable, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

_log = get_logger("airunner.companions")

SOUND_SECONDS: Final = 60.0
"""How long a companion has to run until its former ends are forgotten."""
PATIENCE_SECONDS: Final = 120.0
"""How long one may end again and again before it is named as unwell."""
DRAIN_SECONDS: Final = 90.0
"""How long companions may take to drain; each has a shorter limit of its own."""
_KILL_SECONDS: Final = 5.0
LONGEST_DRAIN_SECONDS: Final = DRAIN_SECONDS + _KILL_SECONDS
"""How long `drain` may take; whoever stops the process must wait for longer."""
_SECOND_CANCEL_MS: Final = 100


class Companion(Protocol):
    """A relay, or a consumer with what belongs to it. Each is run once."""

    async def run(self) -> None:
        """Work until `drain`, and return when all is over. To cancel it twice is to end it at once."""

    async def drain(self) -> None:
        """Take nothing new, finish or give back what is held. May return before `run` does."""

    @property
    def healthy(self) -> bool:
        """Whether its loops make progress; to wait for what is away is no failure."""

    @property
    def state(self) -> str:
        """What it does, in a word; `waiting` while something that it needs does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionKind:
    """A companion that a server is to have, and how one is made."""

    name: str
    build: Callable[[], Companion]
    """Called again after each end that nobody asked for."""


class Companions:
    """Runs companions, and begins each anew that ends by itself; none of them takes the server along."""

    def __init__(
        self, kinds: Sequence[CompanionKind], clock: Clock, *, policy: RetryPolicy | None = None
    ) -> None:
        policy = policy or RetryPolicy(first_seconds=1.0, max_seconds=30.0)
        self._clock = clock
        self._supervisors = [_Supervisor(kind, clock, policy) for kind in kinds]

    @property
    def unwell(self) -> list[str]:
        """The names of those that make no progress, or have ended again and again for two minutes."""
        return [one.kind.name for one in self._supervisors if not one.healthy]

    @property
    def waiting(self) -> list[str]:
        """The names of those that wait for something that does not answer; a restart would not help them."""
        return [one.kind.name for one in self._supervisors if one.waiting]

    def start(self) -> None:
        """Begin all, each in a task of its own. Call it once."""
        for one in self._supervisors:
            one.start()

    async def drain(self) -> None:
        """Stop all at once and return when all have ended; harmless before `start`, and when repeated.

        Who has not ended after DRAIN_SECONDS is cancelled, and then left to itself.
        """
        for one in self._supervisors:
            one.drain()
        if not await self._ended(DRAIN_SECONDS):
            self.kill()
            await self._ended(_KILL_SECONDS)
        for one in self._supervisors:
            if one.task and not one.task.done():
                _write_log(logging.WARNING, "companion.abandoned", one.kind.name)

    def kill(self) -> None:
        """End all at once; `drain` returns soon after."""
        for one in self._supervisors:
            one.cancel()
            # A consumer drains at the first, and gives up at the second.
            self._clock.call_at(self._clock.now() + _SECOND_CANCEL_MS, one.cancel)

    async def _ended(self, seconds: float) -> bool:
        tasks = [one.task for one in self._supervisors if one.task and not one.task.done()]
        if not tasks:
            return True
        over = asyncio.ensure_future(asyncio.wait(tasks))
        return await wait_until(self._clock, self._clock.now() + round(seconds * 1000), over)


class _Supervisor:
    """Runs one companion after the other of a kind, until it is stopped."""

    def __init__(self, kind: CompanionKind, clock: Clock, policy: RetryPolicy) -> None:
        self.kind = kind
        self.task: asyncio.Task[None] | None = None
        self._clock = clock
        self._policy = policy
        self._companion: Companion | None = None
        self._draining = BackgroundTasks(self._drain_failed)
        self._stopped = False
        self._began_at = 0
        self._failing_since: int | None = None

    @property
    def healthy(self) -> bool:
        """Whether it runs and makes progress, or has not failed for long."""
        if self.task is None or self._stopped:
            return True
        companion = self._companion
        if companion and self._seconds_since(self._began_at) >= SOUND_SECONDS:
            self._failing_since = None
        if self._failing_since is not None and self._seconds_since(self._failing_since) > PATIENCE_SECONDS:
            return False
        return companion is None or _is_healthy(companion)

    @property
    def waiting(self) -> bool:
        """Whether there is one, and it waits."""
        try:
            return self._companion is not None and self._companion.state == "waiting"
        except Exception:  # noqa: BLE001  that it cannot say so makes it unwell, and nothing else
            return False

    def start(self) -> None:
        """Begin, in a task of its own."""
        self.task = asyncio.create_task(self._run(), name=self.kind.name)

    def drain(self) -> None:
        """Let the companion drain, and begin no other."""
        if self._stopped:
            return
        self._stopped = True
        if self._companion is None:
            # It has not begun, or waits to begin anew, and need not.
            self.cancel()
        else:
            self._draining.begin(self.kind.name, self._companion.drain())

    def cancel(self) -> None:
        """Cancel whatever goes on, and begin nothing more."""
        self._stopped = True
        if self.task:
            self.task.cancel()

    def _drain_failed(self, _: str, error: BaseException) -> None:
        self._log_failure(error, 1)
        self.cancel()

    async def _run(self) -> None:
        # A new series of tries after each companion that ran for long: its pauses begin small again.
        while not self._stopped:
            await retry(
                self._policy,
                self._clock,
                self._run_one,
                retry_if=lambda _: True,
                on_failure=self._log_failure,
            )

    async def _run_one(self) -> None:
        """Run a companion to its end; raise if it failed soon, so that a pause follows."""
        try:
            await self._run_to_end()
        except Exception as error:
            if self._stopped or self._seconds_since(self._began_at) >= SOUND_SECONDS:
                self._failing_since = None
                self._log_failure(error, 1)
                return
            if self._failing_since is None:
                self._failing_since = self._began_at
            raise

    async def _run_to_end(self) -> None:
        self._began_at = self._clock.monotonic()
        try:
            companion = self._companion = self.kind.build()
            _write_log(logging.INFO, "companion.start", self.kind.name)
            await companion.run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unavailable("something that it waited for was cancelled") from None
        finally:
            self._companion = None
        if not self._stopped:
            raise Unavailable("it ended by itself")
        _write_log(logging.INFO, "companion.end", self.kind.name)

    def _log_failure(self, error: BaseException, failures: int) -> None:
        surprise = None if isinstance(error, AirunnerError) else error
        _write_log(
            logging.WARNING,
            "companion.failed",
            self.kind.name,
            failures=failures,
            error=error_text(error),
            exc_info=surprise,
        )

    def _seconds_since(self, instant: int) -> float:
        return (self._clock.monotonic() - instant) / 1000


def _is_healthy(companion: Companion) -> bool:
    try:
        return companion.healthy
    except Exception:  # noqa: BLE001  one that cannot say so is not
        return False


def _write_log(level: int, event: str, name: str, **fields: object) -> None:
    """Log what happened to a companion. No log line ends one, or the server."""
    with suppress(Exception):
        _log.log(level, event, companion=name, **fields)
