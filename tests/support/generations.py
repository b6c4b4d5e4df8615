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
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import GenerationFailure, Success
from airunner.handlers.images import Image, Images
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
    """Write the start of a try as a worker does; without its notification, by hand."""
    if notify:
        await SessionTable(database, "airunner").begin(session_id, 1, last_try=False, lost_seconds=60.0)
    else:
        await _write(database, "state = 'running', started_at = airunner.instant()", session_id)


async def finish(database: Database, session_id: str, state: str = "done", *, notify: bool = True) -> None:
    """Write a verdict as a worker does; without its notification, by hand."""
    if not notify:
        await _write(database, f"state = '{state}', finished_at = airunner.instant()", session_id)
        return
    failure = GenerationFailure(code="out_of_paint", reason="there is none")
    picture = Image.of("pictures/a.png", "image/png", b"a picture")
    verdict = Success(result_json='{"size": 9}', images=Images([picture])) if state == "done" else failure
    assert await SessionTable(database, "airunner").settle(session_id, verdict)


async def _write(database: Database, change: str, session_id: str) -> None:
    status = await database.execute(
        f"UPDATE airunner.generation_sessions SET {change}, version = version + 1 WHERE id = $1::text::uuid",  # noqa: S608  of tests
        session_id,
    )
    assert status == "UPDATE 1"


def news_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return event and data of each message in the text of a stream."""
    return [(event, json.loads(data)) for _, event, data in MESSAGE.findall(text)]
