"""How many handlers a generation worker runs at once: a setting that may change while it runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.errors import InvalidArgument
from airunner.postgres.identifiers import quote_identifier
from airunner.services.settings.registry import GENERATION_CONCURRENCY
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.postgres.pool import Database

_log = get_logger("airunner.generation")


class Concurrency:
    """The number of the table `app_settings`, else the configured one; `run_once` reads it again.

    A value that is not allowed, written by hand, is logged once, and the last good one stays: after a restart
    that is the last one that was set.
    """

    def __init__(self, database: Database, schema: str, configured: int) -> None:
        self._database = database
        quoted = quote_identifier(schema)
        self._value = f"SELECT value #>> '{{}}' FROM {quoted}.app_settings WHERE name = $1"  # noqa: S608  quoted
        self._last_change = (
            f"SELECT new_value #>> '{{}}' FROM {quoted}.app_settings_history WHERE name = $1 "  # noqa: S608  quoted
            "ORDER BY number DESC LIMIT 1"
        )
        self._configured = configured
        self._refused: str | None = None
        self._has_good = False
        self.current = configured
        """How many may run now."""

    async def run_once(self) -> None:
        """Read it again."""
        text = await self._read(self._value)
        try:
            wanted = self._parse(text)
        except InvalidArgument as error:
            await self._refuse(text, error)
            return
        self._refused = None
        self._take(wanted)

    async def _refuse(self, text: str | None, error: InvalidArgument) -> None:
        """Keep the last good one."""
        if not self._has_good:
            with suppress(InvalidArgument):
                self._take(self._parse(await self._read(self._last_change)))
        if text != self._refused:
            name = GENERATION_CONCURRENCY.name
            _log.error("setting.refused", name=name, kept=self.current, error=error.text)
        self._refused = text

    async def _read(self, statement: str) -> str | None:
        text: str | None = await self._database.fetch_value(statement, GENERATION_CONCURRENCY.name)
        return text

    def _parse(self, text: str | None) -> int:
        return self._configured if text is None else int(GENERATION_CONCURRENCY.parse(text))

    def _take(self, wanted: int) -> None:
        self._has_good = True
        if wanted != self.current:
            _log.info("worker.concurrency", before=self.current, now=wanted)
        self.current = wanted
        telemetry.generation_concurrency.show({(): wanted})
