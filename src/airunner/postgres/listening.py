"""Hearing NOTIFY: one connection that listens, and is opened again whenever it is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.clock import wait_until
from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.postgres.errors import translated_errors
from airunner.postgres.pool import connect
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import asyncpg

    from airunner.domain.clock import Clock
    from airunner.postgres.pool import PostgresOptions

_log = get_logger("airunner.postgres")

CHECK_SECONDS: Final = 5.0
"""How often the connection is asked whether it still is one."""
_ANSWER_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0


def listener_name(application_name: str) -> str:
    """Return what pg_stat_activity shows of the connection that a program listens on."""
    return f"{application_name} listener"


class Listener:
    """Hands on the payloads of channels, from `start` to `stop`.

    `on_payload` gets channel and payload of each notification. A notification is a hint: those that come
    while there is no connection are lost, so `on_gap` is called each time that one was opened, the first
    included, and whoever listens reads again what may have changed. What the two raise is logged.
    """

    def __init__(
        self,
        options: PostgresOptions,
        channel_names: Sequence[str],
        *,
        on_payload: Callable[[str, str], None],
        on_gap: Callable[[], None],
        clock: Clock,
        policy: RetryPolicy | None = None,
        shared_lock: int | None = None,
    ) -> None:
        """`shared_lock` is an advisory lock, held while it listens: those who notify can tell by it."""
        name = listener_name(options.application_name)
        # A pooler hands its connections on after each transaction: nobody would listen on them.
        self._options = replace(options, application_name=name, is_pooled=False)
        self._channel_names = tuple(channel_names)
        self._on_payload = on_payload
        self._on_gap = on_gap
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._shared_lock = shared_lock
        self._task: asyncio.Task[None] | None = None
        self.is_connected = False
        """Whether notifications arrive now, as far as is known."""

    def start(self) -> None:
        """Begin, in a task of its own. Call it once."""
        self._task = asyncio.create_task(self._run(), name="postgres.listener")

    async def stop(self) -> None:
        """End it and close its connection. Harmless when repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        running = True
        while running:
            connection, lost = await retry(
                self._policy, self._clock, self._connect, retry_if=_is_ours, on_failure=self._log_failure
            )
            self.is_connected = True
            try:
                self._call(self._on_gap)
                await self._watch(connection, lost)
                _log.warning("postgres.listener_lost")
            finally:
                self.is_connected = False
                await _close(connection)
            # A server that drops each connection at once is not asked as fast as it can do that.
            await self._clock.sleep(self._policy.first_seconds)

    async def _connect(self) -> tuple[asyncpg.Connection[Any], asyncio.Future[None]]:
        connection = await connect(self._options)
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def heard(_connection: object, _pid: int, channel: str, payload: object) -> None:
            self._call(self._on_payload, channel, str(payload))

        def ended(_connection: object) -> None:
            if not lost.done():
                lost.set_result(None)

        try:
            connection.add_termination_listener(ended)
            with translated_errors():
                for channel in self._channel_names:
                    await connection.add_listener(channel, heard)
                if self._shared_lock is not None:
                    await connection.execute("SELECT pg_advisory_lock_shared($1)", self._shared_lock)
        except BaseException:
            await _close(connection)
            raise
        return connection, lost

    async def _watch(self, connection: asyncpg.Connection[Any], lost: asyncio.Future[None]) -> None:
        """Return once the connection is lost: it was closed, or gives no answer."""
        while not await wait_until(self._clock, self._clock.now() + int(CHECK_SECONDS * 1000), lost):
            try:
                with translated_errors():
                    await connection.fetchval("SELECT 1", timeout=_ANSWER_SECONDS)
            except AirunnerError:
                return

    def _call(self, function: Callable[..., None], *values: str) -> None:
        try:
            function(*values)
        except Exception:  # noqa: BLE001  the next notification shall be heard all the same
            with suppress(Exception):
                _log.exception("postgres.listener_failed")

    def _log_failure(self, error: Exception, failures: int) -> None:
        with suppress(Exception):
            _log.warning("postgres.listener_away", failures=failures, error=error_text(error))


def _is_ours(error: Exception) -> bool:
    """Return whether to try again: whatever the reason is, somebody may mend it while we run."""
    return isinstance(error, AirunnerError)


async def _close(connection: asyncpg.Connection[Any]) -> None:
    """Close a connection, which may be lost already, without waiting for long."""
    try:
        await connection.close(timeout=_CLOSE_SECONDS)
    except Exception:  # noqa: BLE001  it is given up in any case
        connection.terminate()
