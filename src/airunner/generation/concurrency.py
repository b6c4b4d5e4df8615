"""How many handlers a generation worker runs at once: a setting that may change while it runs."""

from __future__ import annotations

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

    A value that is not allowed, written by hand, is logged once, and the last good one stays.
    """

    def __init__(self, database: Database, schema: str, configured: int) -> None:
        self._database = database
        table = f"{quote_identifier(schema)}.app_settings"
        self._statement = f"SELECT value #>> '{{}}' FROM {table} WHERE name = $1"  # noqa: S608  quoted
        self._configured = configured
        self._refused: str | None = None
        self.current = configured
        """How many may run now."""

    async def run_once(self) -> None:
        """Read it again."""
        setting = GENERATION_CONCURRENCY
        text = await self._database.fetch_value(self._statement, setting.name)
        try:
            wanted = self._configured if text is None else int(setting.parse(text))
        except InvalidArgument as error:
            if text != self._refused:
                _log.error("setting.refused", name=setting.name, kept=self.current, error=error.text)
            self._refused = text
            return
        self._refused = None
        if wanted != self.current:
            _log.info("worker.concurrency", before=self.current, now=wanted)
        self.current = wanted
        telemetry.generation_concurrency.show({(): wanted})
