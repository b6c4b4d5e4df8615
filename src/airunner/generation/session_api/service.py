"""GenerationService: sessions for callers, each of whom sees its own.

It is an async context. A database that is away at the start is waited for: until it answers, calls are
refused with Unavailable. A stream that was begun outlives an outage: it goes on when the database is back.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Final, Self

from airunner.domain import limits
from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    InvalidArgument,
    NotFound,
    Unavailable,
    error_text,
)
from airunner.generation.session_api.feed import LOOK_SECONDS, SessionFeed
from airunner.generation.session_api.queries import LAST_ID, LAST_INSTANT, SessionQueries
from airunner.generation.session_api.readers import AllSessions, OneSession
from airunner.generation.session_api.records import SessionPage
from airunner.outbox.schema import GENERATION_QUEUE, check_outbox
from airunner.services.caller import current_caller
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from airunner.domain.clock import Clock
    from airunner.generation.session_api.readers import SessionReader
    from airunner.generation.session_api.records import SessionNews, StartRequest, WholeSession
    from airunner.postgres.listening import Listener
    from airunner.postgres.pool import Database
    from airunner.services.notifier import Notifier

_log = get_logger("airunner.generations")

MAX_PAYLOAD_BYTES: Final = 900 * 1024
STILL_HERE_SECONDS: Final = 15.0
"""After how long without news a stream says that it is still there."""
_PAGE_TOKEN: Final = re.compile(r"([0-9]{1,18})\.([0-9a-f-]{36})")


class GenerationService:
    """Starts sessions, reads them, and streams their news."""

    def __init__(self, database: Database, schema: str, *, clock: Clock, notifier: Notifier) -> None:
        self._database = database
        self._schema = schema
        self._clock = clock
        self._queries = SessionQueries(database, schema)
        self.feed = SessionFeed(self._queries, notifier, clock, prepare=self._open_if_needed)
        self.listener: Listener | None = None
        """What hears of verdicts; it runs while the service is open."""
        self._why_closed = "it was not opened"
        self._is_open = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        """Open the database, if it answers; FailedPrecondition where its schema is not what we need."""
        try:
            await self._open_if_needed()
        except Unavailable as error:
            _log.warning("generations.database_failed", error=error_text(error))
        if self.listener:
            self.listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        try:
            if self.listener:
                await self.listener.stop()
        finally:
            await self._database.close()

    def stop(self) -> None:
        """Let every stream end with the next ring, so that its reader resumes elsewhere."""
        self._stopping = True

    async def start(self, request: StartRequest) -> str:
        """Enqueue work in the name of the caller and return the id of its session.

        The same request_id with the same content returns the id and writes nothing; AlreadyExists with
        other content.
        """
        principal = self._caller()
        limits.check_handler_name(request.name, "name")
        if not 0 <= request.delay_seconds <= limits.MAX_DELAY_SECONDS:
            raise InvalidArgument(f"delay_seconds must be from 0 to {limits.MAX_DELAY_SECONDS}")
        session_id = limits.check_uuid(request.request_id or str(uuid.uuid4()), "request_id")
        payload = _payload_text(request.payload)
        try:
            await self._queries.start(principal, request.name, payload, request.delay_seconds, session_id)
        except AlreadyExists:
            raise AlreadyExists("request_id was used with other content") from None
        except InvalidArgument:
            # What is left after the checks above is what jsonb cannot hold.
            raise InvalidArgument("payload holds a value that PostgreSQL's JSON cannot store") from None
        return session_id

    async def get(self, session_id: str) -> WholeSession:
        """Return a session of the caller; NotFound if it is somebody else's, or nobody's."""
        found = await self._queries.find(_check_id(session_id), self._caller())
        if found is None:
            raise NotFound("there is no such generation")
        return found

    async def list_page(self, *, page_size: int = 0, page_token: str = "") -> SessionPage:
        """Return sessions of the caller, the newest first; a page size of 0 is the default."""
        principal = self._caller()
        size = page_size or limits.DEFAULT_PAGE_SIZE
        if not 1 <= size <= limits.MAX_PAGE_SIZE:
            raise InvalidArgument(f"page_size must be from 1 to {limits.MAX_PAGE_SIZE}")
        found = await self._queries.page(principal, _position_of(page_token), size + 1)
        shown = found[:size]
        token = f"{shown[-1].created_at}.{shown[-1].session_id}" if len(found) > size else ""
        return SessionPage(sessions=shown, next_page_token=token)

    def stream_one(self, session_id: str, last_seen: str = "") -> AsyncGenerator[SessionNews | str, None]:
        """Return the states that a session comes into until its end, and an empty text now and then.

        `last_seen` is the cursor of the last news that the reader has: what follows it is told.
        """
        principal = self._caller()
        key = _check_id(session_id)
        return self._follow(OneSession(self._queries, self.feed, principal, key, last_seen))

    def stream_all(self, last_seen: str = "") -> AsyncGenerator[SessionNews | str, None]:
        """Return the states that sessions of the caller come into, and now and then a cursor alone.

        Without `last_seen` it is what changes from now on. With it, it is what changed since, and in the
        minute before: a state may be repeated, none is missed.
        """
        return self._follow(AllSessions(self._queries, self.feed, self._caller(), last_seen))

    async def _follow(self, reader: SessionReader) -> AsyncGenerator[SessionNews | str, None]:
        """Note the bell, read, tell, wait for a ring. While nothing rings, nothing is read."""
        caller = current_caller.get()
        with self.feed.listen(reader.bell) as bell:
            has_begun = False
            while not self._stopping:
                noted = bell.rings
                await caller.check_again()
                is_read = True
                try:
                    found = await reader.read()
                except Unavailable:
                    if not has_begun:
                        raise
                    found, is_read = [], False
                has_begun = True
                for news in found:
                    yield news
                if reader.is_over:
                    return
                if is_read and reader.has_more:
                    continue
                yield reader.cursor
                seconds = STILL_HERE_SECONDS if is_read else LOOK_SECONDS
                while not await bell.wait(noted, self._clock.now() + int(seconds * 1000)) and is_read:
                    await caller.check_again()
                    yield reader.cursor
        raise Unavailable("the server is shutting down")

    async def _open_if_needed(self) -> None:
        if self._is_open:
            return
        try:
            await self._database.open()
            await check_outbox(self._database, self._schema)
        except AirunnerError as error:
            self._why_closed = error.text
            await self._database.close()
            raise
        self._is_open = True

    def _caller(self) -> str:
        """Return who calls, if it may use the queue and there is a database."""
        caller = current_caller.get()
        caller.check_queue(GENERATION_QUEUE)
        if not self._is_open:
            raise Unavailable(f"the database of generations is not open: {self._why_closed}")
        return caller.principal


def _payload_text(payload: object) -> str:
    try:
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument("payload must be a JSON value") from error
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(f"payload must have at most {MAX_PAYLOAD_BYTES // 1024} KiB")
    return text


def _check_id(session_id: str) -> str:
    return limits.check_uuid(session_id, "id")


def _position_of(page_token: str) -> tuple[int, str]:
    """Return the instant and id that a page begins after."""
    if not page_token:
        return LAST_INSTANT, LAST_ID
    found = _PAGE_TOKEN.fullmatch(page_token)
    if not found or int(found[1]) > LAST_INSTANT:
        raise InvalidArgument("page_token must be the next_page_token of a page")
    return int(found[1]), limits.check_uuid(found[2], "page_token")
