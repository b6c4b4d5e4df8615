"""What clients of a server under fire have seen, and whether it can be the truth.

A History only grows: jobs that were accepted and handed out, states that were read, events that were
acknowledged and those that watchers received, and what the processes themselves noted about what they wrote.
`problems` says what of it breaks a promise.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airunner.domain.event import Event, EventData, Gap, Output, OutputBatch, ProcessEnd, StreamType
from airunner.domain.job import Job, JobResult, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A job as somebody read it."""

    job_id: str
    state: JobState
    attempt: int
    result: JobResult | None = None

    @classmethod
    def of(cls, job: Job) -> Reading:
        return cls(job_id=job.job_id, state=job.state, attempt=job.attempt, result=job.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the process of one attempt wrote, by its own account."""

    stdout: bytes = b""
    stderr: bytes = b""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What one watcher received of one job; `ended` when it was told that nothing more will come."""

    watcher: str
    job_id: str
    events: list[Event] = field(default_factory=list)
    ended: bool = False

    def attempts(self) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.attempt].append(event)
        return found


@dataclass(slots=True, kw_only=True)
class History:
    """The log of a test, in the order of its entries."""

    accepted: list[str] = field(default_factory=list)
    claims: list[tuple[str, int]] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)
    watches: list[Watch] = field(default_factory=list)
    written: dict[tuple[str, int], Written] = field(default_factory=dict)

    def accept(self, job_id: str) -> None:
        """The server said that it has this job."""
        self.accepted.append(job_id)

    def claim(self, job: Job) -> None:
        """The server handed this job to a worker, as the attempt that it has now."""
        self.claims.append((job.job_id, job.attempt))
        self.read(job)

    def read(self, job: Job) -> None:
        """Somebody read this job."""
        self.readings.append(Reading.of(job))

    def acknowledge(self, job_id: str, attempt: int, last_sequence: int) -> None:
        """The server said that it has the events of this attempt up to there."""
        before = self.acknowledged.get((job_id, attempt), 0)
        self.acknowledged[job_id, attempt] = max(before, last_sequence)

    def purge(self, job_id: str) -> None:
        """The retention of this job is over: when all is, it has to be gone."""
        self.purged.add(job_id)

    def watch(self, watcher: str, job_id: str) -> Watch:
        """Somebody begins to watch; what they receive goes into the answer."""
        watch = Watch(watcher=watcher, job_id=job_id)
        self.watches.append(watch)
        return watch

    def collect(self, folder: Path) -> None:
        """Take the accounts of the processes: files named JOB.ATTEMPT.stdout and JOB.ATTEMPT.stderr."""
        for file in sorted(folder.glob("*.stdout")):
            job_id, attempt, _ = file.name.rsplit(".", 2)
            self.written[job_id, int(attempt)] = Written(
                stdout=file.read_bytes(), stderr=file.with_suffix(".stderr").read_bytes()
            )

    def attempts_begun(self, job_id: str) -> list[int]:
        """The attempts for which a process was started."""
        return sorted(attempt for job, attempt in self.written if job == job_id)

    def known_jobs(self) -> list[str]:
        """The jobs that the server must have had: those that it accepted, and those that it handed out."""
        return list(dict.fromkeys([*self.accepted, *(job_id for job_id, _ in self.claims)]))


def problems(history: History, at_the_end: Mapping[str, Job]) -> list[str]:
    """Return every broken promise; `at_the_end` is how each known job was read when all was over."""
    last = {job_id: Reading.of(job) for job_id, job in at_the_end.items()}
    return [
        *_lost(history, last),
        *_claimed_twice(history.claims),
        *_unsettled(history.readings, last),
        *(problem for watch in history.watches for problem in _misled(watch, history.written, last)),
        *_forgotten(history, last),
        *_contradictions(history.watches),
    ]


def _lost(history: History, last: Mapping[str, Reading]) -> Iterator[str]:
    for job_id in history.known_jobs():
        if job_id in history.purged:
            if job_id in last:
                yield f"{job_id}: to be purged, but still there"
        elif job_id not in last:
            yield f"{job_id}: accepted, but gone"
        elif not last[job_id].state.terminal:
            yield f"{job_id}: accepted, but never ended: {last[job_id].state.name}"


def _claimed_twice(claims: Iterable[tuple[str, int]]) -> Iterator[str]:
    """An attempt has one holder, ever."""
    for (job_id, attempt), times in Counter(claims).items():
        if times > 1:
            yield f"{job_id}: attempt {attempt} was handed out {times} times"


def _unsettled(readings: Iterable[Reading], last: Mapping[str, Reading]) -> Iterator[str]:
    """A job that has ended stays as it is, and its attempts only ever rise."""
    seen: dict[str, Reading] = {}
    for reading in (*readings, *last.values()):
        before = seen.get(reading.job_id, reading)
        if before.state.terminal and reading != before:
            yield f"{reading.job_id}: ended as {before}, then became {reading}"
        if reading.attempt < before.attempt:
            yield f"{reading.job_id}: attempt {reading.attempt} after {before.attempt}"
        seen[reading.job_id] = reading


def _misled(
    watch: Watch, written: Mapping[tuple[str, int], Written], last: Mapping[str, Reading]
) -> Iterator[str]:
    name = f"{watch.job_id} watched by {watch.watcher}"
    for problem in _disorder(watch.events):
        yield f"{name}: {problem}"
    for attempt, events in watch.attempts().items():
        truth = written.get((watch.job_id, attempt), Written())
        for problem in _untrue(events, truth):
            yield f"{name}: attempt {attempt}: {problem}"
    if watch.ended and watch.job_id in last:
        for problem in _unfinished(watch, last[watch.job_id]):
            yield f"{name}: {problem}"


def _disorder(events: Iterable[Event]) -> Iterator[str]:
    attempt, expected = 0, 1
    for event in events:
        if event.attempt > attempt:
            attempt, expected = event.attempt, 1
        if (event.attempt, event.sequence) != (attempt, expected):
            yield f"expected ({attempt}, {expected}), received ({event.attempt}, {event.sequence})"
            attempt, expected = event.attempt, event.sequence
        if isinstance(event.data, Gap):
            yield f"a gap from {event.sequence} to {event.last_sequence}: {event.data.reason}"
        expected = event.last_sequence + 1


def _untrue(events: list[Event], truth: Written) -> Iterator[str]:
    """Compare with what the process wrote: all of it once it has ended, else its beginning."""
    seen = {stream: b"".join(_bytes(events, stream)) for stream in StreamType}
    ends = [event for event in events if isinstance(event.data, ProcessEnd)]
    for stream, told in ((StreamType.STDOUT, truth.stdout), (StreamType.STDERR, truth.stderr)):
        if seen[stream] != (told if ends else told[: len(seen[stream])]):
            yield f"{stream.name} has {len(seen[stream])} bytes that are not the {len(told)} of the process"
    if not ends:
        return
    if len(ends) > 1 or ends[0] is not events[-1]:
        yield "PROCESS_END is not the one last event"
    for end in (event.data for event in ends if isinstance(event.data, ProcessEnd)):
        if end.event_count != events[-1].sequence - 1:
            yield f"PROCESS_END counts {end.event_count} events before it, not {events[-1].sequence - 1}"
        if end.output_sha256 != hashlib.sha256(b"".join(_bytes(events))).digest():
            yield "PROCESS_END has the digest of other output"


def _unfinished(watch: Watch, last: Reading) -> Iterator[str]:
    """A watcher that was told the end has all that the result speaks of."""
    if last.result is None or not last.result.final_sequence:
        return
    events = watch.attempts().get(last.attempt, [])
    received = events[-1].last_sequence if events else 0
    if received != last.result.final_sequence:
        yield f"ended after {received} of {last.result.final_sequence} events"
    elif last.result.output_sha256 != hashlib.sha256(b"".join(_bytes(events))).digest():
        yield "the result has the digest of other output"


def _forgotten(history: History, last: Mapping[str, Reading]) -> Iterator[str]:
    """Whoever was told the end has all that was acknowledged, and all that anybody else has seen."""
    known = defaultdict(int, history.acknowledged)
    for watch in history.watches:
        for event in watch.events:
            position = (watch.job_id, event.attempt)
            known[position] = max(known[position], event.last_sequence)
    for watch in history.watches:
        if not watch.ended or watch.job_id not in last:
            continue
        received = {attempt: events[-1].last_sequence for attempt, events in watch.attempts().items()}
        for (job_id, attempt), sequence in known.items():
            if job_id == watch.job_id and received.get(attempt, 0) < sequence:
                yield (
                    f"{job_id} watched by {watch.watcher}: attempt {attempt}: "
                    f"ended after {received.get(attempt, 0)} of {sequence} events that were known"
                )


def _contradictions(watches: Iterable[Watch]) -> Iterator[str]:
    """What one watcher received another received just so."""
    told: dict[tuple[str, int, int], EventData] = {}
    for watch in watches:
        for event in watch.events:
            position = (watch.job_id, event.attempt, event.sequence)
            if told.setdefault(position, event.data) != event.data:
                who = f"{watch.job_id} watched by {watch.watcher}"
                yield f"{who}: {position[1:]} differs from what others saw"


def _bytes(events: Iterable[Event], stream: StreamType | None = None) -> Iterator[bytes]:
    for event in events:
        data = event.data
        outputs = data.outputs if isinstance(data, OutputBatch) else (data,)
        for output in outputs:
            if isinstance(output, Output) and stream in {None, output.stream}:
                yield output.output
