"""How many handlers a generation worker runs at once: a setting that may change while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.postgres.identifiers import quote_identifier
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.postgres.pool import Database

_log = get_logger("airunner.generation")

CONCURRENCY_SETTING: Final = "gen_worker_concurrency"
MIN_CONCURRENCY: Final = 1
MAX_CONCURRENCY: Final = 10


class Concurrency:
    """The number of the table `app_settings`, else the configured one; `run_once` reads it again.

    A value that is no number from 1 to 10, written by hand, is logged once, and the last good one stays.
    """

    def __init__(self, database: Database, schema: str, configured: int) -> None:
        self._database = database
        self._statement = f"SELECT value::text FROM {quote_identifier(schema)}.app_settings WHERE name = $1"  # noqa: S608  quoted
        self._configured = configured
        self._refused: str | None = None
        self.current = configured
        """How many may run now."""

    async def run_once(self) -> None:
        """Read it again."""
        text = await self._database.fetch_value(self._statement, CONCURRENCY_SETTING)
        wanted = self._configured if text is None else _read(text)
        if wanted is None:
            if text != self._refused:
                _log.error("settings.refused", name=CONCURRENCY_SETTING, kept=self.current)
            self._refused = text
            return
        self._refused = None
        if wanted != self.current:
            _log.info("worker.concurrency", before=self.current, now=wanted)
        self.current = wanted
        telemetry.generation_concurrency.show({(): wanted})


def _read(text: str) -> int | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and MIN_CONCURRENCY <= value <= MAX_CONCURRENCY else None
