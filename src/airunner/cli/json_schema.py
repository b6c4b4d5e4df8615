"""The objects that `--json` prints. Fields may be added within a version; none changes its meaning."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import TYPE_CHECKING

from airunner.domain.event import Event, Gap, Output, ProcessEnd, ProcessError, ProcessStart, Progress
from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DeadLetter, QueueStats, Setting, WorkerSeen
    from airunner.domain.job import Job, JobParams, JobResult
    from airunner.generation.diagnosis.hops import Diagnosis
    from airunner.reading.log_lines import LogLine
    from airunner.reading.proof import LogVerdict
    from airunner.reading.why.explain import Explanation
    from airunner.reading.why.timeline import TimelineEntry
    from airunner.stores.records import ApiKey


def job_to_json(job: Job) -> dict[str, object]:
    """A job; secrets are masked by the server. An abridged one lacks its large parts, which `get` prints."""
    life = job.life
    return {
        "job_id": job.job_id,
        "queue": job.queue,
        "state": job.state.name,
        "attempt": job.attempt,
        "max_attempts": life.max_attempts,
        "cancel_requested": life.cancel_requested,
        "cancelled_by": life.cancelled_by,
        "cancelled_at": to_iso(life.cancelled_at),
        "created_at": to_iso(job.created_at),
        "updated_at": to_iso(life.updated_at),
        "due_at": to_iso(life.due_at),
        "visible_until": to_iso(life.visible_until),
        "worker_id": life.worker_id,
        "instance_id": life.instance_id,
        "request_id": job.request_id,
        "retried_from": job.retried_from,
        "last_error": life.last_error,
        "params": _params(job.params),
        "result": _result(job.result) if job.result else None,
        "params_url": job.params_url,
        "result_url": job.result_url,
        "abridged": job.abridged,
    }


def event_to_json(job_id: str, event: Event) -> dict[str, object]:
    """One event. Output that is not UTF-8 is in `output_base64` instead of `output`."""
    return {
        "job_id": job_id,
        "attempt": event.attempt,
        "sequence": event.sequence,
        "timestamp": to_iso(event.timestamp),
        "cursor": event.cursor,
        "event_type": "OUTPUT" if isinstance(event.data, Output) else event.event_type.name,
        **_event_content(event),
    }


def line_to_json(job_id: str, line: LogLine) -> dict[str, object]:
    """One line of output with the position of its first piece; not UTF-8, it is in `output_base64`."""
    return {
        "job_id": job_id,
        "attempt": line.attempt,
        "sequence": line.sequence,
        "timestamp": to_iso(line.timestamp),
        "stream": line.stream.name.lower(),
        **_text_or_base64(line.content),
    }


def verdict_to_json(job_id: str, verdict: LogVerdict) -> dict[str, object]:
    """What was proven about a log that was read; `attempt` is 0 when it has several."""
    return {
        "job_id": job_id,
        "verdict": verdict.kind.value,
        "text": verdict.text,
        "attempt": verdict.attempt,
        "events": verdict.events,
        "missing": [asdict(missed) for missed in verdict.missing],
    }


def why_to_json(job: Job, entries: Sequence[TimelineEntry], explanation: Explanation) -> dict[str, object]:
    """Why a job is where it is; an entry whose time nobody noted has an empty one."""
    return {
        "job_id": job.job_id,
        "queue": job.queue,
        "state": job.state.name,
        "reason": explanation.reason.value,
        "answer": explanation.text,
        "entries": [{**asdict(entry), "at": to_iso(entry.at)} for entry in entries],
    }


def queue_to_json(queue: QueueStats) -> dict[str, object]:
    """A queue that was used."""
    return {
        "name": queue.name,
        "paused": queue.paused,
        "scheduled": queue.scheduled,
        "running": queue.running,
        "oldest_scheduled_at": to_iso(queue.oldest_scheduled_at),
        "paused_by": queue.paused_by,
        "paused_at": to_iso(queue.paused_at),
    }


def worker_to_json(worker: WorkerSeen) -> dict[str, object]:
    """A worker that was heard of lately; one that does not say what it can do has null for both."""
    abilities = worker.abilities
    return {
        "worker_id": worker.worker_id,
        "instance_id": worker.instance_id,
        "queues": list(worker.queues),
        "handlers": list(abilities.handlers) if abilities else None,
        "more_handlers": worker.more_handlers,
        "commands": abilities.commands if abilities else None,
        "last_seen_at": to_iso(worker.last_seen_at),
        "job_ids": list(worker.job_ids),
    }


def key_to_json(key: ApiKey) -> dict[str, object]:
    """An API key, without anything secret."""
    return {
        "key_id": key.key_id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "queues": sorted(key.queues),
        "created_at": to_iso(key.created_at),
        "revoked_at": to_iso(key.revoked_at),
    }


def dead_letter_to_json(letter: DeadLetter) -> dict[str, object]:
    """A message that nobody could do anything with."""
    return {
        "message_id": letter.message_id,
        "reason": letter.reason.name.lower(),
        "code": letter.code,
        "job_id": letter.job_id,
        "sent_at": to_iso(letter.sent_at),
        "redrives": letter.redrives,
        "body": letter.body,
        "body_cut": letter.body_cut,
    }


def setting_to_json(setting: Setting) -> dict[str, object]:
    """A setting that can be changed while servers run, with its last changes."""
    return {
        "name": setting.name,
        "value": setting.value,
        "configured": setting.configured,
        "is_set": setting.is_set,
        "allowed": setting.allowed,
        "changes": [
            {
                "value": change.value,
                "old_value": change.old_value,
                "changed_by": change.changed_by,
                "changed_at": to_iso(change.changed_at),
            }
            for change in setting.changes
        ],
        "unread_reason": setting.unread_reason,
    }


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, object]:
    """What became of an item that was sent through all hops; `broken` is empty if it passed all of them."""
    return {
        "id": diagnosis.session_id,
        "broken": diagnosis.broken.name.value if diagnosis.broken else "",
        "hops": [
            {
                "hop": hop.name.value,
                "ok": hop.is_ok,
                "millis": None if hop.seconds is None else round(hop.seconds * 1000, 3),
                "text": hop.text,
            }
            for hop in diagnosis.hops
        ],
    }


def _params(params: JobParams) -> dict[str, object]:
    fields = asdict(params)
    fields["process_type"] = params.process_type.name
    return {name: value for name, value in fields.items() if value}


def _result(result: JobResult) -> dict[str, object]:
    return {
        "success": result.success,
        "outcome": result.outcome.name,
        "exit_code": result.exit_code,
        "error_message": result.error_message,
        "started_at": to_iso(result.started_at),
        "completed_at": to_iso(result.completed_at),
        "output_json": result.output_json,
        "final_sequence": result.final_sequence,
        "output_sha256": result.output_sha256.hex(),
    }


def _event_content(event: Event) -> dict[str, object]:
    match event.data:
        case Output(output=output, stream=stream):
            return {"stream": stream.name.lower(), **_text_or_base64(output)}
        case ProcessStart(pid=pid, started_at=started_at, worker_id=worker_id):
            return {"pid": pid, "started_at": to_iso(started_at), "worker_id": worker_id}
        case ProcessEnd() as end:
            return {
                "pid": end.pid,
                "exit_code": end.exit_code,
                "run_duration_ms": end.run_duration_ms,
                "event_count": end.event_count,
                "output_sha256": end.output_sha256.hex(),
            }
        case ProcessError(error_message=message):
            return {"error_message": message}
        case Gap() | Progress() as other:
            return asdict(other)
        case _:
            return {}


def _text_or_base64(output: bytes) -> dict[str, object]:
    try:
        return {"output": output.decode()}
    except UnicodeDecodeError:
        return {"output_base64": base64.b64encode(output).decode()}
