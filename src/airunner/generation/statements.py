"""The SQL of `SessionTable` and of the pass over lost work; `{schema}` stands for the quoted schema."""

from __future__ import annotations

from typing import Final

LISTENING_LOCK: Final = 0x6169_7275_6E05
"""The advisory lock that those hold, in shared mode, who want to hear of starts."""


def render(statement: str, schema: str) -> str:
    """Return a statement for a schema, given by its quoted name."""
    text = statement.replace("{session}", _SESSION).replace("{listening_lock}", str(LISTENING_LOCK))
    return text.replace("{schema}", schema)


_SESSION: Final = """\
s.principal, s.user_id, s.name, s.request::text AS request, s.created_at, s.started_at, s.first_error,
    s.last_error"""

# What is answered of the session is as it was before. A later try of a copy of the message puts off when the
# work is lost. NOTIFY takes a lock of the whole database at commit: it is spared unless somebody listens, who
# holds the advisory lock in shared mode then. Tries that begin at the same moment may notify for nothing.
BEGIN: Final = """\
WITH wanted AS (
    SELECT $1::text::uuid AS id,
        EXISTS (SELECT FROM {schema}.outbox_effects WHERE outbox_id = $1::text::uuid AND kind = 'verdict')
            AS has_verdict,
        EXISTS (SELECT FROM {schema}.outbox_effects WHERE outbox_id = $1::text::uuid AND kind = 'letter')
            AS has_letter
), begun AS (
    UPDATE {schema}.generation_sessions AS s SET
        state = 'running',
        attempts = greatest(s.attempts, $2::integer),
        started_at = coalesce(s.started_at, {schema}.instant()),
        lost_after = CASE WHEN $3::boolean OR s.lost_after IS NOT NULL
            THEN greatest(s.lost_after, {schema}.instant() + make_interval(secs => $4::double precision)) END,
        version = s.version + 1
    FROM wanted AS w WHERE s.id = w.id AND NOT w.has_verdict AND s.finished_at IS NULL RETURNING s.id
)
SELECT w.id::text AS id, w.has_verdict, w.has_letter, s.state, s.code, s.error, s.attempts, s.finished_at,
    EXISTS (SELECT FROM begun) AS is_begun, {session},
    CASE WHEN s.state = 'queued' AND EXISTS (SELECT FROM begun)
        THEN CASE WHEN NOT pg_try_advisory_xact_lock({listening_lock})
            THEN pg_notify('session_started', w.id::text) END END
FROM wanted AS w LEFT JOIN {schema}.generation_sessions AS s USING (id)
"""
NOTE_ERROR: Final = """\
UPDATE {schema}.generation_sessions SET
    first_error = CASE WHEN first_error = '' THEN $2 ELSE first_error END, last_error = $2
WHERE id = $1::text::uuid AND finished_at IS NULL
"""
# Whoever writes the row of the ledger writes the rest, and others find it. A second one waits for the first.
# The session comes after its row of the outbox, as where a relay marks both: in another order each might wait
# for the other.
SETTLE: Final = """\
WITH effect AS (
    INSERT INTO {schema}.outbox_effects (outbox_id, kind, at)
    VALUES ($1::text::uuid, 'verdict', {schema}.instant())
    ON CONFLICT DO NOTHING RETURNING outbox_id
), settled AS (
    UPDATE {schema}.outbox AS o SET verdict_at = {schema}.instant()
    FROM effect AS e WHERE o.id = e.outbox_id RETURNING o.id
), finished AS (
    UPDATE {schema}.generation_sessions AS s SET
        state = $2, code = $3, error = $4, result = $5::text::jsonb,
        first_error = CASE WHEN s.first_error = '' THEN $4 ELSE s.first_error END,
        last_error = CASE WHEN $4 = '' THEN s.last_error ELSE $4 END,
        lost_after = NULL, finished_at = {schema}.instant(), version = s.version + 1
    FROM effect AS e LEFT JOIN settled AS o ON o.id = e.outbox_id
    WHERE s.id = e.outbox_id RETURNING s.*
), pictures AS (
    INSERT INTO {schema}.images (session_id, position, place, content_type, bytes, sha256)
    SELECT f.id, i.position, i.place, i.content_type, i.bytes, i.sha256
    FROM finished AS f CROSS JOIN unnest($6::text[], $7::text[], $8::bigint[], $9::bytea[])
        WITH ORDINALITY AS i (place, content_type, bytes, sha256, position)
)
SELECT e.outbox_id::text AS id, s.attempts, {session}, pg_current_xact_id()::text AS transaction,
    pg_notify('session_completed', e.outbox_id::text)
FROM effect AS e LEFT JOIN finished AS s ON s.id = e.outbox_id
"""
NOTE_LETTER: Final = """\
INSERT INTO {schema}.outbox_effects (outbox_id, kind, at)
VALUES ($1::text::uuid, 'letter', {schema}.instant()) ON CONFLICT DO NOTHING
"""
