"""How `monitor` and `run` end: with what is proven about the log that was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner.cli.printing import hint, print_json, say
from airunner.domain.event import Position
from airunner.reading.proof import Coverage, LogProof, LogVerdict, VerdictKind

if TYPE_CHECKING:
    from airunner.domain.job import Job
    from airunner.domain.requests import StreamRequest


def open_proof(request: StreamRequest) -> LogProof:
    """Return a proof that expects what the request asks for."""
    if request.event_filter:
        return LogProof(Coverage.FILTERED)
    if request.from_timestamp:
        return LogProof(Coverage.SINCE)
    return LogProof(Coverage.LATER if request.from_sequence or request.cursor else Coverage.ALL)


def final_position(job: Job, request: StreamRequest) -> Position | None:
    """Return the last event of a job that has ended, unless another attempt was asked for."""
    if job.result is None or request.attempt not in {0, job.attempt}:
        return None
    return Position(job.attempt, job.result.final_sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Who hears of a verdict: everybody if it is a bad one or was asked for, else people at a terminal.

    `quiet` leaves out that a log is complete; `who` names the job where there are several. What is bad is
    said on standard error beside JSON as well.
    """

    as_json: bool = False
    requested: bool = False
    quiet: bool = False
    who: str = ""

    def tell(self, job_id: str, verdict: LogVerdict) -> None:
        """Say the verdict on standard error, or print it as the next object."""
        wanted = verdict.broken or self.requested
        if self.as_json and wanted:
            from airunner.cli.json_schema import verdict_document

            print_json("verdict", verdict_document(job_id, verdict))
        if verdict.broken or (wanted and not self.as_json):
            say(self.who + verdict.text)
        elif not wanted and not (self.quiet and verdict.kind is VerdictKind.COMPLETE):
            hint(self.who + verdict.text)
