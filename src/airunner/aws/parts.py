"""The parts of a store on AWS, each of which may be away by itself: who is asked when, and what they said."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from airunner.aws.calls import Aws
    from airunner.aws.wellness import Wellness
    from airunner.domain.clock import Clock

# A table that is asked every second after a second of silence is asked at least every two.
_ASK_AFTER_MS: Final = 1_000
_KEPT_MS: Final = 1_500


class AwsParts:
    """Asks the tables, and one after the other all else that a store on AWS has.

    Nothing here raises because a part is away: each question is one try with a deadline.
    """

    def __init__(
        self,
        aws: Aws,
        clock: Clock,
        wellness: Wellness,
        *,
        tables: Mapping[str, Mapping[str, Any]],
        others: Mapping[str, Callable[[], Awaitable[str]]],
    ) -> None:
        """Know the tables, each by a key that it may be asked for, the first being that of `wellness`.

        `others` ask what else there is; an answer in words says what is wrong with it.
        """
        self._aws = aws
        self._clock = clock
        self._wellness = wellness
        self._tables = tables
        self._others = others
        self._turn = 0
        self._troubles: dict[str, str] = {}
        self._check: asyncio.Task[list[str]] | None = None
        self._checked_at = 0

    @property
    def well_seconds(self) -> float:
        """For how long the first table has answered without a pause."""
        return self._wellness.well_ms / 1000

    @property
    def troubles(self) -> Mapping[str, str]:
        """What was wrong with each of the others when it was last asked; empty words if nothing was."""
        return self._troubles

    async def keep_well(self) -> None:
        """Ask the first table something, unless it has just answered. Call it every second."""
        if self._wellness.silent_ms < _ASK_AFTER_MS:
            return
        table, key = next(iter(self._tables.items()))
        if trouble := await self._aws.ask_table(table, key):
            self._wellness.missed(f"{table} {trouble}")

    async def ask_next(self) -> None:
        """Ask one of the others, with each call the next of them."""
        if self._others:
            names = list(self._others)
            name = names[self._turn % len(names)]
            self._turn += 1
            self._troubles[name] = await self._others[name]()

    async def check_tables(self) -> None:
        """Raise Unavailable, naming the tables that do not answer. They are asked every other second at most.

        Who comes while they are asked gets the same answer.
        """
        if self._check is None or (self._check.done() and not self._is_fresh):
            self._check = asyncio.create_task(self._ask_tables(), name="check tables")
        if problems := await asyncio.shield(self._check):
            raise Unavailable("; ".join(problems))

    @property
    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._checked_at < _KEPT_MS

    async def _ask_tables(self) -> list[str]:
        answers = await asyncio.gather(*(self._ask_table(table) for table in self._tables))
        self._checked_at = self._clock.monotonic()
        return [sentence for sentence in answers if sentence]

    async def _ask_table(self, table: str) -> str:
        trouble = await self._aws.ask_table(table, self._tables[table])
        return f"The table {table} {trouble}." if trouble else ""
