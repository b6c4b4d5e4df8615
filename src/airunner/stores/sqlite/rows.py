"""Rows to and from the domain."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airunner.codec.execution import decode_execution, encode_execution
from airunner.codec.jobs import decode_params, decode_result, encode_params, encode_result
from airunner.domain.event import EncodedEvent, EventType
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JOB_STATES, Job, JobParams, JobResult, JobState, Outcome
from airunner.domain.lifecycle import Lifecycle
from airunner.stores.records import ApiKey, claim_size
from airunner.stores.sqlite.schema import INLINE_PARAMS_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airunner.stores.records import NewJob

Row: TypeAlias = tuple[Any, ...]

# In the order of the fields of a Lifecycle.
LIFE = (
    "max_attempts, due_at, updated_at, state, attempt, handed_back, visible_until, visibility_seconds, "
    "cancel_requested, worker_id, instance_id, last_sequence, last_error, result, completed_by, finished_at, "
    "silent_attempts, cancelled_by, cancelled_at"
)
_LIFE_WIDTH = LIFE.count(",") + 1
_PARAMS = _LIFE_WIDTH + 7
JOB = (
    f"{LIFE}, job_id, queue, created_at, principal, request_id, retried_from, execution, "
    "coalesce(params, (SELECT large.params FROM large_params large WHERE large.id = jobs.id))"
)
EVENT = "attempt, first_sequence, last_sequence, first_timestamp, last_timestamp, event_type, payload"
KEY = "key_id, name, secret_hash, scopes, queues, created_at, revoked_at"

JOBS_AT_ONCE = 50
"""So many jobs are inserted by one statement; SQLite keeps one ready for each number that occurs."""
_NEW_JOB = "(1, 0, 0, ?, ?, ?, 0, 0, 0, '', '', 0, '', 0, ?, nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
FIND_READY = f"SELECT {JOB}, jobs.id FROM jobs WHERE queue = ? AND ready = 1 ORDER BY id LIMIT ?"
# The first of each handler, then the first of these: what the caller cannot do is not looked at.
FIND_READY_FOR = f"""
    SELECT {JOB}, jobs.id FROM jobs WHERE id IN (
        SELECT able.id FROM json_each(:handlers) wanted JOIN jobs able ON able.id IN (
            SELECT id FROM jobs INDEXED BY jobs_ready_by_handler
            WHERE queue = :queue AND handler = wanted.value AND ready = 1 ORDER BY id LIMIT :count
        )
    )
    ORDER BY id LIMIT :count
"""
SAVE_LIFE = (
    "UPDATE jobs SET state = ?, attempt = ?, handed_back = ?, due_at = ?, updated_at = ?, visible_until = ?, "
    "visibility_seconds = ?, cancel_requested = ?, worker_id = ?, instance_id = ?, last_sequence = ?, "
    "last_error = ?, completed_by = ?, finished_at = ?, result = ?, silent_attempts = ?, "
    "cancelled_by = ?, cancelled_at = ?, ready = ?, wake_at = ?, expires_at = ? WHERE id = ?"
)
# What a claim and a completion change, but for the result: mostly the same for all jobs of one call.
_SAVE_STEP = (
    "UPDATE jobs SET state = ?, attempt = ?, handed_back = ?, silent_attempts = ?, updated_at = ?, "
    "visible_until = ?, visibility_seconds = ?, worker_id = ?, instance_id = ?, last_sequence = ?, "
    "completed_by = ?, finished_at = ?, ready = ?, wake_at = ?, expires_at = ?"
)
SAVE_CLAIMS = f"{_SAVE_STEP} WHERE id IN"
SAVE_ENDS = f"{_SAVE_STEP}, result = result_of(id) WHERE id IN"
END_UNREADABLE = (
    "UPDATE jobs SET state = ?, updated_at = ?, finished_at = ?, result = ?, visible_until = 0, ready = 0, "
    "wake_at = NULL, expires_at = NULL WHERE id = ?"
)
INSERT_EVENT = f"INSERT INTO job_events (job, stored_at, {EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
EVENTS_AT_ONCE = 50
INSERT_EVENTS = INSERT_EVENT + ", (?, ?, ?, ?, ?, ?, ?, ?, ?)" * (EVENTS_AT_ONCE - 1)
blob: Final = bytearray
"""Makes of bytes what a statement takes quickest.

For anything but bytearray, int, float and str Python looks for an adapter each time, even for None.
"""
_STATES = {int(state): state for state in JOB_STATES}
_EVENT_TYPES = {int(kind): kind for kind in EventType}


@lru_cache
def insert_jobs(count: int) -> str:
    """Return the statement that inserts so many jobs, but for those whose request was made before."""
    return (
        "INSERT INTO jobs (state, attempt, handed_back, max_attempts, due_at, updated_at, visible_until, "
        "visibility_seconds, cancel_requested, worker_id, instance_id, last_sequence, last_error, "
        "completed_by, ready, wake_at, job_id, queue, created_at, principal, request_id, fingerprint, "
        f"retried_from, execution, params, handler) VALUES {', '.join([_NEW_JOB] * count)} "
        "ON CONFLICT (request_id, principal) DO NOTHING"
    )


@lru_cache
def insert_published(count: int) -> str:
    """Return the statement that publishes so many events, of jobs as they are known; see `at_once`."""
    events = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO published (job, stored_at, {EVENT}, known_at) VALUES {events}"


def uuid_bytes(text: str) -> bytes:
    """Return the bytes of a canonical UUID."""
    return bytes.fromhex(text.replace("-", ""))


def uuid_text(raw: bytes) -> str:
    """Return the canonical text of a UUID's bytes."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_job_row(new: NewJob) -> Row:
    """Return the values of one job for `insert_jobs`."""
    ready = new.ready
    return (
        new.max_attempts,
        new.due_at,
        new.created_at,
        int(ready),
        0 if ready else new.due_at,
        blob(uuid_bytes(new.job_id)),
        new.queue,
        new.created_at,
        new.principal,
        blob(uuid_bytes(new.request_id)),
        blob(new.fingerprint),
        new.retried_from,
        blob(encode_execution(new.execution)),
        blob(new.params_bytes) if is_inline(new) else None,
        new.params.handler_key,
    )


def is_inline(new: NewJob) -> bool:
    """Return whether the parameters of a job are in its row."""
    return len(new.params_bytes) <= INLINE_PARAMS_BYTES


def life_values(life: Lifecycle, row_id: int) -> Row:
    """Return the values of SAVE_LIFE."""
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
        life.silent_attempts,
        life.cancelled_by,
        life.cancelled_at,
        *_derived(life),
        row_id,
    )


def step_values(life: Lifecycle) -> Row:
    """Return the values of SAVE_CLAIMS and SAVE_ENDS."""
    return (
        int(life.state),
        life.attempt,
        life.handed_back,
        life.silent_attempts,
        life.updated_at,
        life.visible_until,
        life.visibility_seconds,
        life.worker_id,
        life.instance_id,
        life.last_sequence,
        life.completed_by,
        life.finished_at or None,
        *_derived(life),
    )


def wake_time(life: Lifecycle) -> int | None:
    """Return when a job that is saved so falls due or lapses; None if that is past, or never."""
    return _derived(life)[1]


def lives_from_rows(found: Sequence[Row]) -> list[Lifecycle]:
    """Return the lives of rows that begin with LIFE; equal ones are one object, since many are alike."""
    known: dict[Row, Lifecycle] = {}
    lives = []
    for row in found:
        columns = row[:_LIFE_WIDTH]
        life = known.get(columns)
        if life is None:
            life = known[columns] = life_from_row(columns)
        lives.append(life)
    return lives


def life_from_row(row: Row) -> Lifecycle:
    """Return the life of a row that begins with LIFE. Never fails: what cannot be read is said to be so."""
    result = row[13]
    return Lifecycle(
        row[0],
        row[1],
        row[2],
        state_from_column(row[3]),
        row[4],
        row[5],
        row[6],
        row[7],
        bool(row[8]),
        row[9],
        row[10],
        row[11],
        row[12],
        None if result is None else _result(result),
        row[14],
        row[15] or 0,
        row[16],
        row[17],
        row[18],
    )


def state_from_column(value: int) -> JobState:
    """Return the state of a row; one that nobody here knows is an end."""
    return _STATES.get(value, JobState.FAILED)


def jobs_from_rows(found: Sequence[Row], lives: Iterable[Lifecycle]) -> list[Job]:
    """Return the jobs of rows that begin with JOB, with other lives; equal parameters are one object.

    Raises if one of them cannot be read: nobody may work on a part of a job.
    """
    known: dict[bytes, JobParams] = {}
    jobs = []
    for row, life in zip(found, lives, strict=True):
        encoded = row[_PARAMS]
        params = known.get(encoded)
        if params is None:
            params = known[encoded] = decode_params(encoded)
        jobs.append(_job(row, life, params))
    return jobs


def job_from_row(row: Row, life: Lifecycle | None = None) -> Job:
    """Return the job of a row that begins with JOB, with another life if one is given.

    One whose parameters cannot be read has none, and is abridged.
    """
    life = life or life_from_row(row)
    if is_readable(row):
        return _job(row, life, decode_params(row[_PARAMS]))
    readable = (*row[: _PARAMS - 1], encode_execution(ExecutionConfig()), *row[_PARAMS:])
    return replace(_job(readable, life, JobParams()), abridged=True)


def row_claim_size(row: Row) -> int:
    """Return what the job of a row that begins with JOB has in an answer, see `claim_size`."""
    params = row[_PARAMS]
    return claim_size(len(params) if isinstance(params, bytes) else 0, row[12])


def is_readable(row: Row) -> bool:
    """Return whether parameters and execution settings of a row that begins with JOB can be decoded."""
    try:
        decode_params(row[_PARAMS])
        decode_execution(row[_PARAMS - 1])
    except Exception:  # noqa: BLE001  whatever is wrong with the bytes
        return False
    return True


def without_secrets(encoded: bytes | None) -> bytes | None:
    """Return encoded parameters without their secret values; None if there is nothing to remove."""
    try:
        params = decode_params(encoded or b"")
        stripped = params.without_secrets()
    except Exception:  # noqa: BLE001  whatever is wrong with the bytes
        return None
    return None if stripped is params else encode_params(stripped)


def event_values(row_id: int, event: EncodedEvent, now: int) -> Row:
    """Return the values of INSERT_EVENT."""
    return (row_id, *event_columns(event, now))


def event_columns(event: EncodedEvent, now: int) -> Row:
    """Return the values of INSERT_EVENT but for the job, which are the same for all jobs with this event."""
    return (
        now,
        event.attempt,
        event.first_sequence,
        event.last_sequence,
        event.first_timestamp,
        event.last_timestamp,
        int(event.event_type),
        blob(event.payload),
    )


def event_from_row(row: Row) -> EncodedEvent:
    """Return the event of a row of EVENT."""
    return EncodedEvent(
        attempt=row[0],
        first_sequence=row[1],
        last_sequence=row[2],
        first_timestamp=row[3],
        last_timestamp=row[4],
        # A type that nobody here knows: readers are told of a gap in its place.
        event_type=_EVENT_TYPES.get(row[5], EventType.GAP),
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


def _result(encoded: bytes) -> JobResult:
    try:
        return decode_result(encoded)
    except Exception:  # noqa: BLE001  whatever is wrong with the bytes
        return JobResult(success=False, outcome=Outcome.FAILURE, error_message="the result cannot be read")


def _job(row: Row, life: Lifecycle, params: JobParams) -> Job:
    job_id, queue, created_at, principal, request_id, retried_from, execution = row[_LIFE_WIDTH:_PARAMS]
    return Job(
        uuid_text(job_id),
        queue,
        params,
        decode_execution(execution),
        created_at,
        uuid_text(request_id),
        principal,
        life,
        retried_from,
    )


def _derived(life: Lifecycle) -> tuple[bool, int | None, int | None]:
    """Return the columns that follow from the others: ready, wake_at, expires_at."""
    claimable_from = life.claimable_from
    ready = claimable_from is not None and claimable_from <= life.updated_at
    return ready, None if ready else claimable_from, life.expires_at
