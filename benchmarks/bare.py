"""The limits: bare sqlite3 on the same schema and disk."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from airunner.codec.events import encode_event
from airunner.codec.jobs import encode_params
from airunner.domain.event import EncodedEvent
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import mint_uuid
from airunner.stores.records import NewJob
from airunner.stores.sqlite import rows
from airunner.stores.sqlite.migrations import migrate
from airunner.stores.sqlite.schema import connect
from benchmarks.samples import PARAMS, output_of


def new_job(queue: str = "default", now: int = 1_700_000_000_000) -> NewJob:
    """A job as the server would store it."""
    return NewJob(
        job_id=mint_uuid(now),
        queue=queue,
        principal="anonymous",
        request_id=mint_uuid(time.time_ns() // 1_000_000),
        fingerprint=os.urandom(32),
        params=PARAMS,
        params_bytes=encode_params(PARAMS),
        execution=ExecutionConfig(),
        max_attempts=3,
        created_at=now,
        due_at=now,
    )


def batches(lines: int, size: int = 50) -> list[EncodedEvent]:
    """A job's output as stored batches."""
    return [encode_event(event) for events in output_of(lines // size, size) for event in events]


def insert_rate(directory: Path, count: int, per_commit: int) -> float:
    """Jobs per second that bare sqlite3 inserts, so many a commit."""
    values = [rows.new_job_row(new_job()) for _ in range(count)]
    connection = connect(directory / f"bare-{uuid.uuid4()}.db")
    migrate(connection)
    began = time.perf_counter()
    for start in range(0, count, per_commit):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(rows.insert_jobs(1), values[start : start + per_commit])
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - began
    connection.close()
    return count / elapsed


def batch_commit_rate(directory: Path, count: int, per_commit: int = 1) -> float:
    """Lines per second that bare sqlite3 stores in batches of 50, so many batches a commit."""
    values = [rows.event_values(1, event, 0) for event in batches(count * 50)]
    connection = connect(directory / f"bare-{uuid.uuid4()}.db")
    migrate(connection)
    began = time.perf_counter()
    for start in range(0, count, per_commit):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(rows.INSERT_EVENT, values[start : start + per_commit])
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - began
    connection.close()
    return count * 50 / elapsed


def commit_seconds(directory: Path, count: int, gap_seconds: float) -> list[float]:
    """How long each of so many single-row commits takes, with a gap before each."""
    values = [rows.new_job_row(new_job()) for _ in range(count)]
    connection = connect(directory / f"bare-{uuid.uuid4()}.db")
    migrate(connection)
    took = []
    for value in values:
        time.sleep(gap_seconds)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(rows.insert_jobs(1), value)
        connection.execute("COMMIT")
        took.append(time.perf_counter() - began)
    connection.close()
    return took
