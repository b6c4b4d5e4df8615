"""A log is called complete only if it is, and otherwise exactly what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.cli.proof_report import ProofReport
from airunner.domain.batching import Batcher, unpack
from airunner.domain.event import (
    Event,
    EventType,
    Gap,
    Output,
    Position,
    ProcessEnd,
    ProcessStart,
    StreamType,
)
from airunner.domain.execution import BatchingConfig
from airunner.domain.requests import StreamRequest
from airunner.reading.proof import Coverage, LogProof, LogVerdict, MissingRange, VerdictKind

NOON = 1_700_000_000_000
outputs = st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=30)


def log(lines: list[bytes], attempt: int = 1) -> list[Event]:
    """The single events of an orderly attempt, made by the one who makes them in earnest."""
    batcher = Batcher(BatchingConfig(max_batch_size=3))
    flushes = batcher.add(ProcessStart(pid=1, started_at=NOON), NOON)
    flushes += batcher.add_output(lines, StreamType.STDOUT, NOON)
    flushes += batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=1), NOON)
    events = [single for flush in flushes for event in flush.events for single in unpack(event)]
    return [replace(event, attempt=attempt) for event in events]


def numbers(count: int) -> list[bytes]:
    return [b"%d\n" % number for number in range(count)]


def lost(first: int, last: int) -> Event:
    gap = Gap(first_sequence=first, last_sequence=last, reason="rot")
    return Event(sequence=first, timestamp=NOON, data=gap, attempt=1)


def proof_of(events: list[Event], coverage: Coverage = Coverage.ALL) -> LogProof:
    proof = LogProof(coverage)
    for event in events:
        proof.see(event)
    return proof


def without_digest(events: list[Event]) -> list[Event]:
    *before, end = events
    assert isinstance(end.data, ProcessEnd)
    return [*before, replace(end, data=replace(end.data, event_count=0, output_sha256=b""))]


def with_count(events: list[Event], count: int) -> list[Event]:
    *before, end = events
    assert isinstance(end.data, ProcessEnd)
    return [*before, replace(end, data=replace(end.data, event_count=count))]


WHOLE = log(numbers(100))
AGAIN = log(numbers(3), attempt=2)


@pytest.mark.parametrize(
    ("events", "coverage", "text"),
    [
        (WHOLE, Coverage.ALL, "complete: 102 events, output digest matches"),
        (log(numbers(10_000)), Coverage.ALL, "complete: 10,002 events, output digest matches"),
        (AGAIN, Coverage.ALL, "complete: 5 events of attempt 2, output digest matches"),
        (WHOLE + AGAIN, Coverage.ALL, "complete: 2 attempts, 107 events, output digests match"),
        (WHOLE, Coverage.LATER, "complete: 102 events, output digest matches"),
        (WHOLE[89:], Coverage.LATER, "partial: from event 90"),
        (WHOLE[89:] + AGAIN, Coverage.LATER, "partial: from event 90"),
        (WHOLE[89:95], Coverage.LATER, "partial: from event 90, without an end"),
        (WHOLE[89:] + AGAIN[2:], Coverage.LATER, "gap: events 1 to 2 of attempt 2 are missing"),
        (AGAIN[2:], Coverage.SINCE, "partial: from event 3 of attempt 2"),
        (WHOLE[89:] + AGAIN[2:], Coverage.SINCE, "partial: from event 90; from event 3 of attempt 2"),
        (WHOLE[1:-1:7], Coverage.FILTERED, "partial: only some types of events"),
        (WHOLE[-1:], Coverage.FILTERED, "partial: only some types of events"),
        (WHOLE[89:], Coverage.ALL, "gap: events 1 to 89 of attempt 1 are missing"),
        (WHOLE[:50] + WHOLE[100:], Coverage.ALL, "gap: events 51 to 100 of attempt 1 are missing"),
        (
            WHOLE[:9] + WHOLE[10:19] + WHOLE[29:],
            Coverage.ALL,
            "gap: event 10, events 20 to 29 of attempt 1 are missing",
        ),
        (
            [*WHOLE[:50], lost(51, 60), *WHOLE[60:]],
            Coverage.ALL,
            "gap: events 51 to 60 of attempt 1 are missing",
        ),
        (
            [*WHOLE[:50], lost(55, 60), *WHOLE[63:]],
            Coverage.ALL,
            "gap: events 51 to 63 of attempt 1 are missing",
        ),
        ([lost(7, 9)], Coverage.FILTERED, "gap: events 7 to 9 of attempt 1 are missing"),
        (WHOLE[:-1], Coverage.ALL, "unfinished: attempt 1 has no end, 101 events so far"),
        (WHOLE[:1] + AGAIN, Coverage.ALL, "unfinished: attempt 1 has no end, 1 event so far"),
        ([], Coverage.ALL, "unfinished: there are no events"),
        ([], Coverage.LATER, "partial: there are no such events"),
        (without_digest(WHOLE), Coverage.ALL, "unproven: the end of attempt 1 has no digest"),
        (
            with_count(WHOLE, 7),
            Coverage.ALL,
            "mismatch: the end of attempt 1 counts 7 events before it, not 101",
        ),
        (
            WHOLE[:9] + WHOLE[8:],
            Coverage.ALL,
            "mismatch: event 9 of attempt 1 came again or out of order",
        ),
        (
            [*WHOLE, replace(WHOLE[1], sequence=103)],
            Coverage.ALL,
            "mismatch: event 103 of attempt 1 follows its end",
        ),
    ],
)
def test_the_verdict_says_what_was_seen(events: list[Event], coverage: Coverage, text: str) -> None:
    assert proof_of(events, coverage).verdict().text == text


@pytest.mark.parametrize(
    ("events", "final", "text"),
    [
        (WHOLE, Position(1, 102), "complete: 102 events, output digest matches"),
        (WHOLE, Position(1, 0), "complete: 102 events, output digest matches"),
        (WHOLE[:-1], Position(1, 102), "gap: event 102 of attempt 1 is missing"),
        (WHOLE[:50], Position(1, 102), "gap: events 51 to 102 of attempt 1 are missing"),
        ([*WHOLE[:50], lost(51, 60)], Position(1, 102), "gap: events 51 to 102 of attempt 1 are missing"),
        (WHOLE, Position(2, 5), "gap: events 1 to 5 of attempt 2 are missing"),
        ([], Position(1, 3), "gap: events 1 to 3 of attempt 1 are missing"),
    ],
)
def test_a_log_that_stops_before_the_last_event_has_a_gap(
    events: list[Event], final: Position, text: str
) -> None:
    proof = proof_of(events)
    assert proof.verdict(final).text == text
    assert proof.verdict(final).text == text, "asking changes nothing"


def test_every_attempt_has_its_own_verdict() -> None:
    first, second = proof_of(WHOLE[:1] + AGAIN[:2] + AGAIN[3:]).attempts()
    assert (first.attempt, first.kind, first.events) == (1, VerdictKind.UNFINISHED, 1)
    assert (second.attempt, second.kind, second.events) == (2, VerdictKind.GAP, 4)
    assert second.missing == (MissingRange(attempt=2, first=3, last=3),)


def test_batches_prove_as_much_as_their_single_events() -> None:
    batcher = Batcher(BatchingConfig(max_batch_size=3))
    flushes = batcher.add_output(numbers(10), StreamType.STDOUT, NOON)
    flushes += batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=1), NOON)
    events = [replace(event, attempt=1) for flush in flushes for event in flush.events]
    assert len(events) < 11
    assert proof_of(events).verdict().text == "complete: 11 events, output digest matches"


@given(lines=outputs, choice=st.data())
def test_any_event_that_is_left_out_is_named(lines: list[bytes], choice: st.DataObject) -> None:
    events = log(lines)
    assert proof_of(events).verdict().kind is VerdictKind.COMPLETE
    first = choice.draw(st.integers(0, len(events) - 1))
    last = choice.draw(st.integers(first, len(events) - 1))
    rest = events[:first] + events[last + 1 :]
    verdict = proof_of(rest).verdict(Position(1, len(events)))
    assert verdict.kind is VerdictKind.GAP
    assert verdict.missing == (MissingRange(attempt=1, first=first + 1, last=last + 1),)
    assert verdict.events == len(rest)


@given(lines=outputs, choice=st.data())
def test_any_byte_that_is_changed_is_noticed(lines: list[bytes], choice: st.DataObject) -> None:
    events = log(lines)
    index = choice.draw(st.integers(1, len(events) - 2))
    data = events[index].data
    assert isinstance(data, Output)
    changed = bytearray(data.output)
    changed[choice.draw(st.integers(0, len(changed) - 1))] ^= choice.draw(st.integers(1, 255))
    events[index] = replace(events[index], data=replace(data, output=bytes(changed)))
    verdict = proof_of(events).verdict()
    assert verdict.text == "mismatch: the output of attempt 1 has another digest than its end"
    assert verdict.broken


@given(lines=outputs, choice=st.data())
def test_whoever_begins_later_has_a_part(lines: list[bytes], choice: st.DataObject) -> None:
    events = log(lines)
    first = choice.draw(st.integers(2, len(events)))
    verdict = proof_of(events[first - 1 :], Coverage.LATER).verdict(Position(1, len(events)))
    assert verdict.text == f"partial: from event {first}"
    assert not verdict.broken


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (StreamRequest(job_id="j"), VerdictKind.GAP),
        (StreamRequest(job_id="j", attempt=1), VerdictKind.GAP),
        (StreamRequest(job_id="j", from_sequence=90), VerdictKind.PARTIAL),
        (StreamRequest(job_id="j", cursor="1-59"), VerdictKind.PARTIAL),
        (StreamRequest(job_id="j", from_timestamp=NOON), VerdictKind.PARTIAL),
        (StreamRequest(job_id="j", event_filter=frozenset({EventType.OUTPUT_DATA})), VerdictKind.PARTIAL),
    ],
)
def test_what_was_asked_for_decides_what_may_be_missing(request_: StreamRequest, kind: VerdictKind) -> None:
    proof = LogProof(Coverage.of_request(request_))
    for event in WHOLE[89:]:
        proof.see(event)
    assert proof.verdict().kind is kind


BAD = LogVerdict(kind=VerdictKind.GAP, detail="x", missing=(MissingRange(attempt=1, first=2, last=3),))
GOOD = LogVerdict(kind=VerdictKind.COMPLETE, detail="y", attempt=1, events=3)
BAD_OBJECT = (
    '{"v":1,"type":"verdict","job_id":"j","verdict":"gap","text":"gap: x","attempt":0,"events":0,'
    '"missing":[{"attempt":1,"first":2,"last":3}]}\n'
)
GOOD_OBJECT = (
    '{"v":1,"type":"verdict","job_id":"j","verdict":"complete","text":"complete: y","attempt":1,"events":3,'
    '"missing":[]}\n'
)


@pytest.mark.parametrize(
    ("report", "verdict", "out", "err"),
    [
        (ProofReport(), GOOD, "", ""),
        (ProofReport(), BAD, "", "airunner: gap: x\n"),
        (ProofReport(quiet=True), BAD, "", "airunner: gap: x\n"),
        (ProofReport(requested=True), GOOD, "", "airunner: complete: y\n"),
        (ProofReport(as_json=True), GOOD, "", ""),
        (ProofReport(as_json=True), BAD, BAD_OBJECT, "airunner: gap: x\n"),
        (ProofReport(as_json=True, requested=True), GOOD, GOOD_OBJECT, ""),
    ],
)
def test_without_a_terminal_only_what_is_bad_or_asked_for_is_said(
    report: ProofReport, verdict: LogVerdict, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report.show("j", verdict)
    assert capsys.readouterr() == (out, err)
