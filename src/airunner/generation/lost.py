"""The verdict of work that nobody will ever tell the end of: its last try died, or its job ended without one.

From PostgreSQL alone, and with sink `jobs` from the jobs of open rows; never from a dead-letter queue. It
needs the handlers, for their hooks: a pass leaves the work of others alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airunner import telemetry
from airunner.domain.errors import AirunnerError, NotFound, Unavailable
from airunner.generation.sessions import HookFailed, SessionTable
from airunner.generation.verdict import LOST, GenerationFailure, text_of
from airunner.postgres.identifiers import quote_identifier
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.domain.clock import Clock
    from airunner.handlers.registry import Handler
    from airunner.postgres.pool import Database
    from airunner.services.api import JobsApi

_log = get_logger("airunner.generation")

PASS_SECONDS: Final = 60.0
PROBE_SECONDS: Final = 5.0
STEADY_SECONDS: Final = 600.0
"""For how long PostgreSQL must have answered: a worker may still hold a result that it could not write."""
_SILENCE_MS: Final = 30_000
_PORTION: Final = 100
_MAX_PORTIONS: Final = 50
# Of all that airunner may ever lock in a database of somebody else.
_LOCK: Final = 0x6169_7275_6E03

_OVERDUE: Final = """\
SELECT id::text, name, lost_after AS since FROM {schema}.generation_sessions
WHERE lost_after <= {schema}.instant() AND finished_at IS NULL
    AND ($2::timestamptz IS NULL OR (lost_after, id) > ($2, $3::text::uuid))
ORDER BY lost_after, id LIMIT $1
"""
_OPEN: Final = """\
SELECT id::text, name, sink_ref, dispatched_at AS since FROM {schema}.outbox
WHERE state = 'dispatched' AND verdict_at IS NULL AND queue = 'generation'
    AND sink_ref <> '' AND NOT starts_with(sink_ref, 'sqs:')
    AND dispatched_at <= {schema}.instant() - interval '1 minute'
    AND ($2::timestamptz IS NULL OR (dispatched_at, id) > ($2, $3::text::uuid))
ORDER BY dispatched_at, id LIMIT $1
"""
# Nobody begins another try meanwhile: that would wait for this row.
_STILL_OPEN: Final = """\
SELECT 1 FROM {schema}.generation_sessions
WHERE id = $1::text::uuid AND finished_at IS NULL AND ($2 OR lost_after <= {schema}.instant()) FOR UPDATE
"""


def lost_loops(
    database: Database,
    schema: str,
    handlers: Mapping[str, Handler],
    clock: Clock,
    *,
    jobs: JobsApi | None = None,
) -> list[Periodic]:
    """Return what does the pass every minute, still to be started."""
    steadiness = Steadiness(database, clock)
    lost = LostPass(database, schema, handlers, steadiness=steadiness, jobs=jobs)
    return [
        Periodic(name, run_once, clock=clock, interval_seconds=seconds, at_once=True)
        for name, run_once, seconds in (
            ("generation.probe", steadiness.run_once, PROBE_SECONDS),
            ("generation.lost", lost.run_once, PASS_SECONDS),
        )
    ]


class Steadiness:
    """For how long PostgreSQL has answered without a break, as far as this process can tell."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._since: int | None = None
        self._answered_at = 0
        self._uptime_seconds = 0.0

    async def run_once(self) -> None:
        """Ask; what it raises is a break, and so is a long time in which nobody asked."""
        try:
            uptime = await self._database.fetch_value(
                "SELECT extract(epoch FROM now() - pg_postmaster_start_time())::double precision"
            )
        except BaseException:
            self._since = None
            raise
        self._uptime_seconds = float(uptime)
        if self._since is None or self._is_silent():
            self._since = self._clock.monotonic()
        self._answered_at = self._clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long; 0 if it did not answer last, or was not asked for a while."""
        if self._since is None or self._is_silent():
            return 0.0
        return min(self._uptime_seconds, (self._clock.monotonic() - self._since) / 1000)

    def _is_silent(self) -> bool:
        """Return whether this process was held up: what happened meanwhile is not known."""
        return self._clock.monotonic() - self._answered_at > _SILENCE_MS


class LostPass:
    """Gives the verdict LOST, one pass at a time over all processes."""

    def __init__(
        self,
        database: Database,
        schema: str,
        handlers: Mapping[str, Handler],
        *,
        steady_seconds: float | None = None,
        steadiness: Steadiness | None = None,
        jobs: JobsApi | None = None,
    ) -> None:
        """`jobs` is given with sink `jobs`; without `steadiness` it does not matter."""
        self._database = database
        self._sessions = SessionTable(database, schema)
        self._schema = quote_identifier(schema)
        self._handlers = handlers
        self._steadiness = steadiness
        self._steady_seconds = STEADY_SECONDS if steady_seconds is None else steady_seconds
        self._jobs = jobs

    async def run_once(self) -> int:
        """Do what is due, oldest first, each in a short transaction; return how many verdicts were given."""
        if self._steadiness and self._steadiness.seconds < self._steady_seconds:
            return 0
        given = await self._pass_over(_OVERDUE, is_ended_job=False)
        if self._jobs:
            given += await self._pass_over(_OPEN, is_ended_job=True)
        return given

    async def _pass_over(self, statement: str, *, is_ended_job: bool) -> int:
        given, since, last_id = 0, None, None
        for _ in range(_MAX_PORTIONS):
            rows = await self._database.fetch(self._text(statement), _PORTION, since, last_id)
            for row in rows:
                given += await self._look_at(row, is_ended_job=is_ended_job)
            if len(rows) < _PORTION:
                break
            # Rows that were sent together have one instant.
            since, last_id = rows[-1]["since"], rows[-1]["id"]
        return given

    async def _look_at(self, row: Any, *, is_ended_job: bool) -> bool:
        handler = self._handlers.get(row["name"])
        if handler is None or (is_ended_job and not await self._has_ended(row["sink_ref"])):
            return False
        reason = "its job ended without a verdict" if is_ended_job else "its last try ended without a word"
        try:
            is_given = await self._give(row["id"], handler, reason, is_ended_job=is_ended_job)
        except (AirunnerError, HookFailed) as error:
            # One whose hook fails keeps no other one waiting.
            _log.error("verdict.failed", id=row["id"], handler=row["name"], error=text_of(error))
            return False
        if is_given:
            telemetry.generation_verdicts.add(1, LOST)
            _log.error("job.permanent_failure", id=row["id"], handler=row["name"], code=LOST, error=reason)
        return is_given

    async def _has_ended(self, job_id: str) -> bool:
        if self._jobs is None:
            return False
        try:
            return (await self._jobs.get_job(job_id, abridge=True)).state.terminal
        except NotFound:
            return True
        except Unavailable:
            raise
        except AirunnerError as error:
            # One that nobody answers for keeps no other one waiting.
            _log.warning("verdict.failed", job_id=job_id, error=text_of(error))
            return False

    async def _give(self, session_id: str, handler: Handler, reason: str, *, is_ended_job: bool) -> bool:
        async with self._database.transaction() as connection:
            if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK):
                return False
            if not await connection.fetchval(self._text(_STILL_OPEN), session_id, is_ended_job):
                return False
            failure = GenerationFailure(code=LOST, reason=reason)
            return await self._sessions.settle_in(connection, session_id, failure, handler.hooks)

    def _text(self, statement: str) -> str:
        return statement.replace("{schema}", self._schema)
