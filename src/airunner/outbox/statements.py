"""The SQL of `OutboxTable`; `{schema}` stands for the quoted name of the schema."""

from __future__ import annotations

from typing import Final


def render(statement: str, schema: str) -> str:
    """Return a statement for a schema, given by its quoted name."""
    return statement.replace("{pending}", _PENDING_QUEUES).replace("{schema}", schema)


# The queues that have pending rows, by a look into the index for each: rows of a queue that is left alone may
# be millions, and nobody shall walk past them.
_PENDING_QUEUES: Final = """\
WITH RECURSIVE pending (queue) AS (
    (SELECT queue FROM {schema}.outbox WHERE state = 'pending' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.queue FROM {schema}.outbox AS o WHERE o.state = 'pending' AND o.queue > p.queue
        ORDER BY o.queue LIMIT 1
    ) FROM pending AS p WHERE p.queue IS NOT NULL
)"""
CLAIM: Final = """\
{pending}, due AS (
    SELECT found.id FROM pending AS p CROSS JOIN LATERAL (
        SELECT o.id FROM {schema}.outbox AS o
        WHERE o.state = 'pending' AND o.queue = p.queue AND o.due_at <= {schema}.instant()
            AND (o.claimed_until IS NULL OR o.claimed_until <= {schema}.instant())
        ORDER BY o.due_at LIMIT $1 FOR UPDATE SKIP LOCKED
    ) AS found
    WHERE p.queue <> ALL ($2::text[])
    LIMIT $4
)
UPDATE {schema}.outbox AS o SET claimed_until = {schema}.instant() + make_interval(secs => $3)
WHERE o.id = ANY (ARRAY(SELECT due.id FROM due))
RETURNING o.id::text, o.queue, o.name, o.payload::text AS body, o.attempts
"""
# A row that was sent is sent, whoever holds the claim by now; what is less than that counts only while it is
# pending.
MARK: Final = """\
WITH mark AS (
    SELECT * FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::integer[], $5::double precision[], $6::text[]
    ) AS m (id, state, reason, attempts, pause, sink_ref)
), marked AS (
    UPDATE {schema}.outbox AS o SET
        state = m.state,
        reason = m.reason,
        attempts = o.attempts + m.attempts,
        due_at = CASE WHEN m.pause > 0
            THEN {schema}.instant() + make_interval(secs => m.pause) ELSE o.due_at END,
        claimed_until = NULL,
        dispatched_at = CASE WHEN m.state = 'dispatched' THEN {schema}.instant() ELSE o.dispatched_at END,
        sink_ref = CASE WHEN m.state = 'dispatched' THEN m.sink_ref ELSE o.sink_ref END
    FROM mark AS m WHERE o.id = m.id::uuid AND o.state = 'pending'
    RETURNING o.id, o.queue, o.state
)
UPDATE {schema}.generation_sessions AS s SET sent_at = {schema}.instant(), version = s.version + 1
FROM marked AS m WHERE m.queue = 'generation' AND m.state = 'dispatched' AND s.id = m.id AND s.sent_at IS NULL
"""
SET_WAITING: Final = """\
INSERT INTO {schema}.outbox_relays (relay_id, waiting_until)
VALUES ($1, {schema}.instant() + make_interval(secs => $2))
ON CONFLICT (relay_id) DO UPDATE SET waiting_until = EXCLUDED.waiting_until
"""
STOP_WAITING: Final = "DELETE FROM {schema}.outbox_relays WHERE relay_id = $1"
# Counting stops somewhere, so that a backlog does not make it slow.
STATUS: Final = """\
{pending}
SELECT
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox WHERE state = 'pending' LIMIT $1) AS p) AS pending,
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox WHERE state = 'parked' LIMIT $1) AS p) AS parked,
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox
        WHERE state = 'dispatched' AND verdict_at IS NULL LIMIT $1) AS p) AS open,
    (SELECT greatest(0, extract(epoch FROM {schema}.instant() - min(found.due_at)))::double precision
        FROM pending AS p CROSS JOIN LATERAL (
            SELECT o.due_at FROM {schema}.outbox AS o WHERE o.state = 'pending' AND o.queue = p.queue
            ORDER BY o.due_at LIMIT 1
        ) AS found) AS oldest_due_seconds,
    (SELECT count(*) FROM {schema}.outbox_relays
        WHERE waiting_until > {schema}.instant()) AS relays_waiting
"""
PARKED: Final = """\
SELECT id::text, queue, name, reason, attempts, created_at FROM {schema}.outbox
WHERE state = 'parked' ORDER BY created_at LIMIT $1
"""
RETRY: Final = """\
UPDATE {schema}.outbox SET state = 'pending', reason = '', attempts = 0, due_at = {schema}.instant(),
    claimed_until = NULL
WHERE state = 'parked' AND ($1::text[] IS NULL OR id::text = ANY ($1::text[]))
RETURNING id::text
"""
# Whether it is new is as of the beginning of the statement, before the function writes.
RERUN: Final = """\
SELECT {schema}.enqueue_as($1, $2, $3::text::jsonb, $4, 0, $5::text::uuid)::text AS id,
    NOT EXISTS (SELECT FROM {schema}.outbox WHERE id = $5::text::uuid)
    AND NOT EXISTS (SELECT FROM {schema}.generation_sessions WHERE id = $5::text::uuid) AS is_new
"""
FIND: Final = """\
SELECT queue, name, (payload -> 'payload')::text AS payload FROM {schema}.outbox WHERE id = $1::text::uuid
"""
FIND_SESSION: Final = """\
SELECT principal, name, request::text AS payload FROM {schema}.generation_sessions WHERE id = $1::text::uuid
"""
