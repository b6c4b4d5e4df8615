"""How `monitor` and `run` end: with what is proven about the log that was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner.cli.printing import hint, print_json, say
from airunner.reading.proof import VerdictKind

if TYPE_CHECKING:
    from airunner.reading.proof import LogVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofReport:
    """Who is told of a verdict: everybody if it is a bad one or was asked for, else people at a terminal.

    `quiet` leaves out that a log is complete; `prefix` names the job where there are several. What is bad is
    said on standard error beside JSON as well.
    """

    as_json: bool = False
    requested: bool = False
    quiet: bool = False
    prefix: str = ""

    def show(self, job_id: str, verdict: LogVerdict) -> None:
        """Say the verdict on standard error, or print it as the next object."""
        wanted = verdict.broken or self.requested
        if self.as_json and wanted:
            from airunner.cli.json_schema import verdict_to_json

            print_json("verdict", verdict_to_json(job_id, verdict))
        if verdict.broken or (wanted and not self.as_json):
            say(self.prefix + verdict.text)
        elif not wanted and not (self.quiet and verdict.kind is VerdictKind.COMPLETE):
            hint(self.prefix + verdict.text)
