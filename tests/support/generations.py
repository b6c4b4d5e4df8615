"""Generations under test: the service on a database, and verdicts as a worker writes them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from airunner.config import load_settings
from airunner.generation.session_api.service import GenerationService
from airunner.generation.session_api.start import make_generations
from airunner.postgres.pool import Database
from airunner.services.composition import Services

MESSAGE = re.compile(r"id: (.*)\nevent: (.*)\ndata: (.*)\n\n")


@asynccontextmanager
async def opened(services: Services, dsn: str) -> AsyncIterator[GenerationService]:
    """Open the service around services that are still to be opened, as a server does."""
    settings = load_settings(environ={}, flags={"postgres.dsn": dsn}).settings
    generations = make_generations(settings, services)
    async with generations, services:
        yield generations


async def begin(database: Database, session_id: str, *, notify: bool = True) -> None:
    """Write the start of a try."""
    await _write(
        database, "state = 'running', attempts = attempts + 1, started_at = airunner.instant()", session_id
    )
    if notify:
        await database.execute("SELECT pg_notify('session_completed', $1)", session_id)


async def finish(database: Database, session_id: str, state: str = "done", *, notify: bool = True) -> None:
    """Write a verdict, and notify as its transaction does."""
    change = f"state = '{state}', finished_at = airunner.instant(), result = '{{\"place\": \"a.png\"}}'"
    await _write(database, change, session_id)
    if notify:
        await database.execute("SELECT pg_notify('session_completed', $1)", session_id)


async def _write(database: Database, change: str, session_id: str) -> None:
    status = await database.execute(
        f"UPDATE airunner.generation_sessions SET {change}, version = version + 1 WHERE id = $1::text::uuid",  # noqa: S608  of tests
        session_id,
    )
    assert status == "UPDATE 1"


def news_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return event and data of each message in the text of a stream."""
    return [(event, json.loads(data)) for _, event, data in MESSAGE.findall(text)]
