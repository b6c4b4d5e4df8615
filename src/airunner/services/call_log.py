"""What a server logs of the calls that change something: one line for each call, however many jobs it names.

What a line tells has happened already: it is written after the answer, and dropped when it cannot be written.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airunner.services.caller import current_caller
from airunner.telemetry.logs import get_logger, log_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import Position
    from airunner.domain.execution import BatchingConfig
    from airunner.domain.job import Job
    from airunner.stores.records import ApiKey, NewJob
    from airunner.stores.settings import StoredSetting
    from airunner.telemetry.logs import Line

_log = get_logger("airunner.calls")

_LATER_SECONDS = 0.05
"""Lines are written together, once answers have gone: one by one they would cost each call a tenth."""


def log_enqueued(jobs: Sequence[NewJob]) -> None:
    """Log the jobs that one call has added; a repeated request adds none."""
    if not jobs:
        return
    first = jobs[0]
    _write(
        logging.INFO,
        "jobs.enqueued",
        count=len(jobs),
        queue=first.queue if len(jobs) == 1 else ",".join(dict.fromkeys(job.queue for job in jobs)),
        first_job_id=first.job_id,
        batching=first.execution.batching,
    )
    _log_each(jobs)


def log_retried(jobs: Sequence[NewJob]) -> None:
    """Log the copy of a job that has ended; a repeated request makes none."""
    for job in jobs:
        _write(logging.INFO, "job.retried", job_id=job.job_id, queue=job.queue, retried_from=job.retried_from)
    _log_each(jobs)


def log_cancelled(job: Job) -> None:
    """Log that a job was cancelled, or that its worker is to cancel it."""
    _write(logging.INFO, "job.cancelled", job_id=job.job_id, queue=job.queue, state=job.state.name.lower())


def log_paused(queue: str, *, paused: bool) -> None:
    """Log that a queue was paused or resumed."""
    _write(logging.INFO, "queue.paused" if paused else "queue.resumed", queue=queue)


def log_setting_changed(name: str, stored: StoredSetting) -> None:
    """Log that a run-time setting was changed, or set again to what it was."""
    old = stored.changes[0].old_value if stored.changes else None
    _write(logging.INFO, "setting.changed", name=name, value=stored.value, old_value=old)


def log_replayed(job_id: str, start: Position, end: Position) -> None:
    """Log that a stream has delivered what was stored when it began, and now waits for more or ends."""
    _write(
        logging.DEBUG,
        "stream.replayed",
        job_id=job_id,
        from_attempt=start.attempt,
        from_sequence=start.sequence + 1,
        last_attempt=end.attempt,
        last_sequence=end.sequence,
    )


def log_key_created(key: ApiKey) -> None:
    """Log a new key. Keys are written beside the server, so nobody knows by whom."""
    scopes, queues = sorted(key.scopes), sorted(key.queues)
    fields = {"key_id": key.key_id, "name": key.name, "scopes": scopes, "queues": queues}
    log_together(_log, [(logging.INFO, "key.created", fields)])


def log_key_revoked(key_id: str) -> None:
    """Log the end of a key."""
    log_together(_log, [(logging.INFO, "key.revoked", {"key_id": key_id})])


def write_waiting() -> None:
    """Write the lines that wait for answers to go first; it happens by itself but at the end of a server."""
    lines = _waiting.take()
    for _, _, fields in lines:
        if batching := fields.get("batching"):
            fields["batching"] = _batching_fields(batching)
    log_together(_log, lines)


def _log_each(jobs: Sequence[NewJob]) -> None:
    if not _waiting.logs_debug:
        return
    for job in jobs:
        _write(
            logging.DEBUG,
            "job.enqueued",
            job_id=job.job_id,
            queue=job.queue,
            request_id=job.request_id,
            batching=job.execution.batching,
        )


@lru_cache(maxsize=64)
def _batching_fields(batching: BatchingConfig) -> dict[str, Any]:
    return asdict(batching)


def _write(level: int, event: str, **fields: Any) -> None:
    fields["principal"] = current_caller.get().principal
    _waiting.add(level, event, fields)


class _Waiting:
    """Lines that wait for answers to go first."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self.logs_debug = False
        """Whether lines about single jobs are wanted, as the first line found it."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, level: int, event: str, fields: dict[str, Any]) -> None:
        """Keep a line; who wants none of its level is asked when it is written."""
        loop = asyncio.get_running_loop()
        if not self._lines or loop is not self._loop:
            self._loop = loop
            with suppress(Exception):
                self.logs_debug = bool(_log.is_enabled_for(logging.DEBUG))
            loop.call_later(_LATER_SECONDS, write_waiting)
        self._lines.append((level, event, fields))

    def take(self) -> list[Line]:
        """Return the lines, which wait no more."""
        lines, self._lines = self._lines, []
        return lines


_waiting = _Waiting()
