"""A job as text for people."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from airunner.domain.job import Job


def command_line(job: Job) -> str:
    """Return what a job does, as one would type it."""
    params = job.params
    if params.handler:
        return f"handler {params.handler}"
    return shlex.join((params.command, *params.args)) if params.command else params.repository_url


def job_fields(job: Job) -> dict[str, str]:
    """Return the fields of a job by their names; those that say nothing are empty."""
    life, result = job.life, job.result
    cancelling = " (cancel requested)" if life.cancel_requested and not job.state.terminal else ""
    fields = {
        "job": job.job_id,
        "queue": job.queue,
        "state": f"{job.state.name}{cancelling}",
        "cancelled": f"{to_iso(life.cancelled_at)} by {life.cancelled_by}" if life.cancelled_by else "",
        "command": command_line(job),
        "owner": job.params.owner,
        "metadata": shlex.join(f"{key}={value}" for key, value in sorted(job.params.metadata.items())),
        "attempt": f"{job.attempt} of {life.max_attempts}",
        "created": to_iso(job.created_at),
        "updated": to_iso(life.updated_at),
        "worker": life.worker_id,
        "instance": life.instance_id,
        "visible until": to_iso(life.visible_until) if not job.state.terminal else "",
        "retried from": job.retried_from,
        "last error": life.last_error,
    }
    if result:
        fields |= {
            "outcome": result.outcome.name,
            "exit code": str(result.exit_code),
            "error": result.error_message,
            "events": str(result.final_sequence or ""),
            "output": result.output_json,
        }
    return fields
