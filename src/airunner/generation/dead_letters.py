"""The dead letters of the generation queue, for operators: judged by the ledger, grouped by their codes."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airunner.domain.answers import DeadLetterReason
from airunner.domain.errors import FailedPrecondition, InvalidArgument
from airunner.domain.limits import check_uuid
from airunner.generation.verdict import EXHAUSTED, LOST, TIMEOUT, fit_code
from airunner.generation.work import UNKNOWN_SESSION
from airunner.handlers.arguments import INVALID_PAYLOAD, INVALID_RESULT
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.outbox.start import open_database, queue_addresses
from airunner.postgres.identifiers import quote_identifier
from airunner.queues.message_rules import ABANDONED, REASON_ATTRIBUTE
from airunner.queues.messages import UNDECODABLE, UNHANDLED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airunner.aws.dead_letters import DeadLetterBox
    from airunner.aws.sqs import SqsMessage
    from airunner.config import Settings
    from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
    from airunner.domain.clock import Clock
    from airunner.domain.requests import Redrive
    from airunner.postgres.pool import Database

OUR_CODES: Final = frozenset({
    *(ABANDONED, EXHAUSTED, INVALID_PAYLOAD, INVALID_RESULT, LOST, TIMEOUT),
    *(UNDECODABLE, UNHANDLED, UNKNOWN_SESSION),
})  # fmt: skip
"""All codes that are not the application's own."""
_KNOWN: Final = """\
SELECT s.id::text AS id, EXISTS (
    SELECT FROM {schema}.outbox_effects AS e WHERE e.outbox_id = s.id AND e.kind = 'verdict'
) AS has_verdict
FROM unnest($1::text[]::uuid[]) AS s (id)
WHERE EXISTS (SELECT FROM {schema}.generation_sessions AS g WHERE g.id = s.id)
    OR EXISTS (SELECT FROM {schema}.outbox_effects AS e WHERE e.outbox_id = s.id)
"""


class GenerationDeadLetters:
    """Implements what AdminService asks of dead letters; each call opens the queue and the database."""

    def __init__(self, settings: Settings, clock: Clock, *, short_poll_seconds: int = 1) -> None:
        self._settings = settings
        self._clock = clock
        self._short_poll_seconds = short_poll_seconds

    async def look(self, queue: str, max_messages: int, *, code: str = "") -> DeadLetterPage:  # noqa: ARG002  it has one
        """Look at messages and show them again."""
        async with self._opened() as box:
            return await box.look(max_messages, code=code)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send letters without a verdict back, as they came, and delete what was sent."""
        async with self._opened() as box:
            return await box.redrive(redrive)

    async def purge(
        self,
        queue: str,  # noqa: ARG002  it has one
        max_messages: int,
        *,
        dry_run: bool,
        code: str = "",
    ) -> Sequence[DeadLetter]:
        """Delete letters; sessions stay as they are."""
        async with self._opened() as box:
            return await box.purge(max_messages, dry_run=dry_run, code=code)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[DeadLetterBox]:
        from airunner.aws.clients import OF_A_QUEUE
        from airunner.aws.connect import build_aws
        from airunner.aws.dead_letters import DeadLetterBox
        from airunner.aws.sqs import read_redrive_policy

        url, dead_url = (
            queue_addresses(self._settings)[GENERATION_QUEUE],
            self._settings.generation.dead_letter_url,
        )
        aws = build_aws(self._settings, self._clock, clients=OF_A_QUEUE)
        async with aws, open_database(self._settings) as database:
            if not dead_url:
                policy = await read_redrive_policy(aws, url)
                if policy is None:
                    raise FailedPrecondition("the generation queue has no dead-letter queue")
                dead_url = policy.dead_letter_url
            yield DeadLetterBox(
                aws,
                GENERATION_QUEUE,
                url=url,
                dead_url=dead_url,
                judge=partial(judge_letters, database, self._settings.postgres.schema),
                clock=self._clock,
                short_poll_seconds=self._short_poll_seconds,
            )


def generation_dead_letters(settings: Settings, clock: Clock) -> GenerationDeadLetters | None:
    """Return what a server says of dead letters of generation; None where it has no such queue."""
    is_set = settings.postgres.dsn_text and GENERATION_QUEUE in queue_addresses(settings)
    return GenerationDeadLetters(settings, clock) if is_set and settings.outbox.sink == "sqs" else None


async def judge_letters(
    database: Database, schema: str, messages: Sequence[SqsMessage]
) -> Sequence[DeadLetter]:
    """Return a letter for each message, by what the database knows of its work."""
    from airunner.aws.dead_letters import letter_of

    said = [_read(message) for message in messages]
    ids = sorted({each.id for each in said} - {""})
    rows = await database.fetch(_KNOWN.replace("{schema}", quote_identifier(schema)), ids) if ids else ()
    has_verdict = {row["id"]: row["has_verdict"] for row in rows}
    return [
        replace(letter_of(message), job_id=each.id, code=each.code, reason=_reason(each.id, has_verdict))
        for message, each in zip(messages, said, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Said:
    id: str
    code: str


def _read(message: SqsMessage) -> _Said:
    """Return what a letter says of itself, which anybody may have written."""
    code = message.attributes.get(REASON_ATTRIBUTE, "")
    try:
        body = json.loads(message.body)
        found_id = check_uuid(str(body["id"]), "id")
        failure = body.get("failure")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidArgument):
        return _Said("", fit_code(code or UNDECODABLE))
    if isinstance(failure, dict) and isinstance(failure.get("code"), str):
        code = failure["code"]
    return _Said(found_id, fit_code(code or ABANDONED))


def _reason(work_id: str, has_verdict: dict[str, bool]) -> DeadLetterReason:
    if not work_id:
        return DeadLetterReason.UNREADABLE
    if work_id not in has_verdict:
        return DeadLetterReason.JOB_NOT_FOUND
    return DeadLetterReason.VERDICT if has_verdict[work_id] else DeadLetterReason.NO_VERDICT
