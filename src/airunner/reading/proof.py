"""Whether a reader has all events of a job, proven from what the events themselves say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from airunner.domain.event import Gap, Output, OutputBatch, Position, ProcessEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airunner.domain.event import Event, EventData
    from airunner.domain.job import Job
    from airunner.domain.requests import StreamRequest


class Coverage(StrEnum):
    """What a reader asked for.

    LATER begins within the first attempt that it sees and goes on with all; SINCE begins at a time, which may
    be within any attempt; FILTERED leaves out events everywhere.
    """

    ALL = "all"
    LATER = "later"
    SINCE = "since"
    FILTERED = "filtered"

    @classmethod
    def of_request(cls, request: StreamRequest) -> Coverage:
        """Return what a stream request covers."""
        if request.event_filter:
            return cls.FILTERED
        if request.from_timestamp:
            return cls.SINCE
        return cls.LATER if request.from_sequence or request.cursor else cls.ALL


class VerdictKind(StrEnum):
    """What can be said of a log, the worst first."""

    MISMATCH = "mismatch"
    GAP = "gap"
    UNFINISHED = "unfinished"
    UNPROVEN = "unproven"
    PARTIAL = "partial"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRange:
    """Events of an attempt that were not seen, both ends included."""

    attempt: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """What a reader has of one attempt, or of several when `attempt` is 0. `events` counts what was seen."""

    kind: VerdictKind
    detail: str
    attempt: int = 0
    events: int = 0
    missing: tuple[MissingRange, ...] = ()

    @property
    def text(self) -> str:
        """The verdict as a line for people."""
        return f"{self.kind}: {self.detail}"

    @property
    def broken(self) -> bool:
        """Whether something is missing or wrong that the reader had asked for."""
        return self.kind in {VerdictKind.GAP, VerdictKind.MISMATCH}


class LogProof:
    """Proves whether a reader of one job has all of its events.

    `see` takes what a stream yields, in its order; the verdicts may be asked for at any time, and again. A
    proof keeps a few numbers and one digest for each attempt, never events.
    """

    def __init__(self, coverage: Coverage = Coverage.ALL) -> None:
        self._coverage = coverage
        self._attempts: dict[int, _Attempt] = {}

    def see(self, event: Event) -> None:
        """Take the next event."""
        attempt = self._attempts.get(event.attempt)
        if attempt is None:
            attempt = self._attempts[event.attempt] = self._begin(event)
        attempt.see(event)

    def attempts(self, final: Position | None = None) -> tuple[LogVerdict, ...]:
        """Return the verdict of each attempt that has any, in order.

        `final` is the last event of the job as its result tells it: a log that stops before has a gap.
        """
        found = {number: seen.verdict(_last_of(final, number)) for number, seen in self._attempts.items()}
        if final and final.sequence and final.attempt not in found and self._coverage is Coverage.ALL:
            unseen = _Attempt(number=final.attempt, whole=True)
            found[final.attempt] = unseen.verdict(final.sequence)
        return tuple(found[number] for number in sorted(found))

    def verdict(self, final: Position | None = None) -> LogVerdict:
        """Return the verdict of everything: that of the worst attempt, with all that is missing anywhere."""
        found = self.attempts(final)
        if not found:
            return self._nothing()
        worst = min((verdict.kind for verdict in found), key=list(VerdictKind).index)
        those = [verdict for verdict in found if verdict.kind is worst]
        events = sum(verdict.events for verdict in found)
        if worst is VerdictKind.COMPLETE and len(those) > 1:
            detail = f"{len(those)} attempts, {_counted(events)}, output digests match"
        else:
            detail = "; ".join(verdict.detail for verdict in those)
        missing = tuple(missed for verdict in found for missed in verdict.missing)
        attempt = found[0].attempt if len(found) == 1 else 0
        return LogVerdict(kind=worst, detail=detail, attempt=attempt, events=events, missing=missing)

    def _begin(self, event: Event) -> _Attempt:
        later = self._coverage is Coverage.SINCE or (self._coverage is Coverage.LATER and not self._attempts)
        filtered = self._coverage is Coverage.FILTERED
        first = event.sequence if later or filtered else 1
        whole = first == 1 and not filtered
        return _Attempt(number=event.attempt, first=first, expected=first, whole=whole, filtered=filtered)

    def _nothing(self) -> LogVerdict:
        if self._coverage is Coverage.ALL:
            return LogVerdict(kind=VerdictKind.UNFINISHED, detail="there are no events")
        return LogVerdict(kind=VerdictKind.PARTIAL, detail="there are no such events")


def final_position(job: Job, request: StreamRequest) -> Position | None:
    """Return the last event of a job that has ended; None if the request is for another attempt only."""
    if job.result is None or request.attempt not in {0, job.attempt}:
        return None
    return Position(job.attempt, job.result.final_sequence)


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What was seen of one attempt; `whole` when all of it was asked for, from its first event."""

    number: int
    whole: bool
    first: int = 1
    expected: int = 1
    filtered: bool = False
    events: int = 0
    end: ProcessEnd | None = None
    fault: str = ""
    missing: list[tuple[int, int]] = field(default_factory=list)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def see(self, event: Event) -> None:
        """Compare an event with what had to come."""
        if event.sequence < self.expected:
            self._blame(f"event {event.sequence:,} of attempt {self.number} came again or out of order")
            return
        if self.end:
            self._blame(f"event {event.sequence:,} of attempt {self.number} follows its end")
        if event.sequence > self.expected and not self.filtered:
            self._miss(self.expected, event.sequence - 1)
        self.expected = event.last_sequence + 1
        self._take(event.sequence, event.data)

    def verdict(self, last: int) -> LogVerdict:
        """Return what is to be said; `last` is the last sequence if it is known, else 0."""
        kind, detail = self._judge(missing := self._missing_until(last))
        return LogVerdict(kind=kind, detail=detail, attempt=self.number, events=self.events, missing=missing)

    def _take(self, sequence: int, data: EventData) -> None:
        if isinstance(data, Gap):
            self._miss(sequence, data.last_sequence)
            return
        self.events += len(data.outputs) if isinstance(data, OutputBatch) else 1
        if self.whole:
            for output in _outputs(data):
                self.digest.update(output.output)
        if isinstance(data, ProcessEnd):
            self.end = data
            if _says_count(data) and data.event_count != sequence - 1:
                self._blame(
                    f"the end of attempt {self.number} counts {_counted(data.event_count)} before it, "
                    f"not {sequence - 1:,}"
                )

    def _judge(self, missing: tuple[MissingRange, ...]) -> tuple[VerdictKind, str]:
        if self.fault:
            return VerdictKind.MISMATCH, self.fault
        if missing:
            return VerdictKind.GAP, _told(missing)
        if self.filtered:
            return VerdictKind.PARTIAL, f"only some types of events{self._of_attempt}"
        if not self.whole:
            return VerdictKind.PARTIAL, f"from event {self.first:,}{self._of_attempt}{self._open_end}"
        if self.end is None:
            return VerdictKind.UNFINISHED, f"attempt {self.number} has no end, {_counted(self.events)} so far"
        if not self.end.output_sha256:
            return VerdictKind.UNPROVEN, f"the end of attempt {self.number} has no digest"
        if self.end.output_sha256 != self.digest.digest():
            return (
                VerdictKind.MISMATCH,
                f"the output of attempt {self.number} has another digest than its end",
            )
        return VerdictKind.COMPLETE, f"{_counted(self.events)}{self._of_attempt}, output digest matches"

    def _missing_until(self, last: int) -> tuple[MissingRange, ...]:
        ranges = list(self.missing)
        if last >= self.expected and not self.filtered:
            _extend(ranges, self.expected, last)
        return tuple(MissingRange(attempt=self.number, first=first, last=end) for first, end in ranges)

    def _miss(self, first: int, last: int) -> None:
        _extend(self.missing, first, last)

    def _blame(self, fault: str) -> None:
        self.fault = self.fault or fault

    @property
    def _of_attempt(self) -> str:
        return f" of attempt {self.number}" if self.number > 1 else ""

    @property
    def _open_end(self) -> str:
        return "" if self.end else ", without an end"


def _extend(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Add a range behind all others; one that continues the last becomes part of it."""
    if ranges and ranges[-1][1] + 1 == first:
        first = ranges.pop()[0]
    ranges.append((first, last))


def _outputs(data: EventData) -> Iterator[Output]:
    if isinstance(data, Output):
        yield data
    elif isinstance(data, OutputBatch):
        yield from data.outputs


def _says_count(end: ProcessEnd) -> bool:
    # The count of an end that proves nothing is left at 0.
    return bool(end.event_count or end.output_sha256)


def _last_of(final: Position | None, attempt: int) -> int:
    return final.sequence if final and final.attempt == attempt else 0


def _told(missing: tuple[MissingRange, ...]) -> str:
    spans = [
        f"event {missed.first:,}"
        if missed.first == missed.last
        else f"events {missed.first:,} to {missed.last:,}"
        for missed in missing
    ]
    one = len(missing) == 1 and missing[0].first == missing[0].last
    return f"{', '.join(spans)} of attempt {missing[0].attempt} {'is' if one else 'are'} missing"


def _counted(events: int) -> str:
    return "1 event" if events == 1 else f"{events:,} events"
