"""Rows to and from the domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from airunner.codec.jobs import (
    decode_execution,
    decode_params,
    decode_result,
    encode_execution,
    encode_result,
)
from airunner.domain.event import EncodedEvent, EventType
from airunner.domain.job import Job, JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.stores.base import ApiKey
from airunner.stores.sqlite.schema import INLINE_PARAMS_BYTES

if TYPE_CHECKING:
    from airunner.stores.base import NewJob

Row: TypeAlias = tuple[Any, ...]

LIFE = (
    "state, attempt, handed_back, max_attempts, due_at, updated_at, visible_until, visibility_seconds, "
    "cancel_requested, worker_id, instance_id, last_sequence, last_error, completed_by, finished_at, result"
)
_LIFE_WIDTH = LIFE.count(",") + 1
JOB = (
    f"{LIFE}, job_id, queue, created_at, principal, request_id, retried_from, execution, "
    "coalesce(params, (SELECT large.params FROM large_params large WHERE large.id = jobs.id))"
)
EVENT = "attempt, first_sequence, last_sequence, first_timestamp, last_timestamp, event_type, payload"
KEY = "key_id, name, secret_hash, scopes, queues, created_at, revoked_at"

INSERT_JOB = (
    "INSERT INTO jobs (state, attempt, handed_back, max_attempts, due_at, updated_at, visible_until, "
    "visibility_seconds, cancel_requested, worker_id, instance_id, last_sequence, last_error, completed_by, "
    "ready, wake_at, job_id, queue, created_at, principal, request_id, fingerprint, retried_from, execution, "
    "params) VALUES (1, 0, 0, ?, ?, ?, 0, 0, 0, '', '', 0, '', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (request_id, principal) DO NOTHING"
)
SAVE_LIFE = (
    "UPDATE jobs SET state = ?, attempt = ?, handed_back = ?, due_at = ?, updated_at = ?, visible_until = ?, "
    "visibility_seconds = ?, cancel_requested = ?, worker_id = ?, instance_id = ?, last_sequence = ?, "
    "last_error = ?, completed_by = ?, finished_at = ?, result = ?, ready = ?, wake_at = ?, expires_at = ? "
    "WHERE id = ?"
)
INSERT_EVENT = f"INSERT INTO job_events (job, stored_at, {EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def uuid_bytes(text: str) -> bytes:
    """Return the bytes of a canonical UUID."""
    return bytes.fromhex(text.replace("-", ""))


def uuid_text(raw: bytes) -> str:
    """Return the canonical text of a UUID's bytes."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_job_row(new: NewJob) -> Row:
    """Return the values of INSERT_JOB."""
    ready = new.due_at <= new.created_at
    return (
        new.max_attempts,
        new.due_at,
        new.created_at,
        ready,
        None if ready else new.due_at,
        uuid_bytes(new.job_id),
        new.queue,
        new.created_at,
        new.principal,
        uuid_bytes(new.request_id),
        new.fingerprint,
        new.retried_from,
        encode_execution(new.execution),
        new.params_bytes if len(new.params_bytes) <= INLINE_PARAMS_BYTES else None,
    )


def life_values(life: Lifecycle, row_id: int) -> Row:
    """Return the values of SAVE_LIFE."""
    claimable_from = life.claimable_from
    ready = claimable_from is not None and claimable_from <= life.updated_at
    return (
        int(life.state),
        life.attempt,
        life.handed_back,
        life.due_at,
        life.updated_at,
        life.visible_until,
        life.visibility_seconds,
        life.cancel_requested,
        life.worker_id,
        life.instance_id,
        life.last_sequence,
        life.last_error,
        life.completed_by,
        life.finished_at or None,
        encode_result(life.result) if life.result else None,
        ready,
        None if ready else claimable_from,
        life.expires_at,
        row_id,
    )


def life_from_row(row: Row) -> Lifecycle:
    """Return the life of a row of LIFE."""
    return Lifecycle(
        state=JobState(row[0]),
        attempt=row[1],
        handed_back=row[2],
        max_attempts=row[3],
        due_at=row[4],
        updated_at=row[5],
        visible_until=row[6],
        visibility_seconds=row[7],
        cancel_requested=bool(row[8]),
        worker_id=row[9],
        instance_id=row[10],
        last_sequence=row[11],
        last_error=row[12],
        completed_by=row[13],
        finished_at=row[14] or 0,
        result=decode_result(row[15]) if row[15] is not None else None,
    )


def job_from_row(row: Row, life: Lifecycle | None = None) -> Job:
    """Return the job of a row of JOB, with another life if one is given."""
    job_id, queue, created_at, principal, request_id, retried_from, execution, params = row[_LIFE_WIDTH:]
    return Job(
        job_id=uuid_text(job_id),
        queue=queue,
        params=decode_params(params),
        execution=decode_execution(execution),
        created_at=created_at,
        request_id=uuid_text(request_id),
        principal=principal,
        retried_from=retried_from,
        life=life or life_from_row(row),
    )


def event_values(row_id: int, event: EncodedEvent, now: int) -> Row:
    """Return the values of INSERT_EVENT."""
    return (
        row_id,
        now,
        event.attempt,
        event.first_sequence,
        event.last_sequence,
        event.first_timestamp,
        event.last_timestamp,
        int(event.event_type),
        event.payload,
    )


def event_from_row(row: Row) -> EncodedEvent:
    """Return the event of a row of EVENT."""
    return EncodedEvent(
        attempt=row[0],
        first_sequence=row[1],
        last_sequence=row[2],
        first_timestamp=row[3],
        last_timestamp=row[4],
        event_type=EventType(row[5]),
        payload=row[6],
    )


def key_values(key: ApiKey) -> Row:
    """Return the values of KEY."""
    return (
        key.key_id,
        key.name,
        key.secret_hash,
        " ".join(sorted(key.scopes)),
        " ".join(sorted(key.queues)),
        key.created_at,
        key.revoked_at,
    )


def key_from_row(row: Row) -> ApiKey:
    """Return the key of a row of KEY."""
    return ApiKey(
        key_id=row[0],
        name=row[1],
        secret_hash=row[2],
        scopes=frozenset(row[3].split()),
        queues=frozenset(row[4].split()),
        created_at=row[5],
        revoked_at=row[6],
    )
