"""The spool on a real disk: what comes back, what a damaged file costs, and when there is a file at all."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.event import Event, Gap, ProcessEnd, ProcessError, ProcessStart
from airunner.worker.publishing.spool import SPOOL_MAX_BYTES, Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.publishing.spool_records import record_of
from tests.support.spools import JOB_ID, batch, batches, files_limited_to, single_file


def new_spool(folder: Path, max_bytes: int = SPOOL_MAX_BYTES) -> Spool:
    return Spool(SpoolFolder(folder), JOB_ID, 1, max_bytes=max_bytes)


def write(spool: Spool, *events: Event) -> bool:
    return spool.write(events, 1000 * len(events))


def gap(first: int, last: int) -> Gap:
    return Gap(first_sequence=first, last_sequence=last, reason="the worker's spool was damaged")


def test_blocks_come_back_in_their_order_and_as_they_were(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    events = [
        Event(sequence=1, timestamp=5, data=ProcessStart(pid=7, started_at=5)),
        batch(2),
        Event(sequence=7, timestamp=2000, data=ProcessError(error_message="timed out")),
        Event(sequence=8, timestamp=2000, data=ProcessEnd(pid=7, exit_code=3, run_duration_ms=9)),
    ]
    assert write(spool, *events[:2])
    assert write(spool, *events[2:])
    assert (len(spool), spool.wire_bytes) == (4, 4000)
    assert spool.read() == events[:2]
    assert (len(spool), spool.wire_bytes) == (2, 2000)
    assert spool.read() == events[2:]
    assert not spool


def test_the_file_is_ours_alone_and_is_there_only_while_it_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = new_spool(folder)
    assert not folder.exists()
    for _ in range(2):
        write(spool, batch(1))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(single_file(folder).stat().st_mode) == 0o600
        spool.read()
        assert list(folder.iterdir()) == []
    write(spool, batch(1))
    spool.close()
    spool.close()
    assert list(folder.iterdir()) == []
    assert not spool


def test_output_is_compressed(tmp_path: Path) -> None:
    write(new_spool(tmp_path), batch(1, 50, b"x" * 1000))
    assert single_file(tmp_path).stat().st_size < 5000


def test_the_place_of_what_was_read_is_used_again(tmp_path: Path) -> None:
    events = batches(200)
    size = max(len(record_of(event)) for event in events)
    spool = new_spool(tmp_path, max_bytes=4 * size)
    to_write, read = iter(events), list[Event]()
    for event in itertools.islice(to_write, 2):
        assert write(spool, event)
    for event in to_write:
        assert write(spool, event)
        assert single_file(tmp_path).stat().st_size <= 4 * size
        read += spool.read()
    while spool:
        read += spool.read()
    assert read == events


@given(steps=st.lists(st.one_of(st.just(0), st.integers(1, 50)), max_size=60))
def test_whatever_is_written_and_read_the_order_holds_and_no_block_takes_the_place_of_another(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    spool = new_spool(tmp_path_factory.mktemp("spool"), max_bytes=1500)
    kept: list[Event] = []
    sequence = 1
    for outputs in steps:
        if not outputs and kept:
            assert spool.read() == [kept.pop(0)]
        elif outputs and write(spool, event := batch(sequence, outputs)):
            kept.append(event)
            sequence += outputs
    assert [event for _ in range(len(spool)) for event in spool.read()] == kept


def test_a_full_spool_takes_no_more_until_some_is_read(tmp_path: Path) -> None:
    events = batches(4)
    size = len(record_of(events[0]))
    spool = new_spool(tmp_path, max_bytes=2 * size + 10)
    assert write(spool, events[0])
    assert write(spool, events[1])
    assert not write(spool, events[2])
    assert single_file(tmp_path).stat().st_size <= 2 * size + 10
    assert spool.read() == [events[0]]
    assert write(spool, events[2])
    assert [spool.read(), spool.read()] == [[events[1]], [events[2]]]


def test_a_limit_of_nothing_is_no_spool(tmp_path: Path) -> None:
    assert not write(new_spool(tmp_path, max_bytes=0), batch(1))
    assert list(tmp_path.iterdir()) == []


@given(position=st.integers(min_value=0), mask=st.integers(min_value=1, max_value=255))
def test_any_damaged_byte_becomes_a_gap_and_nothing_else_is_touched(
    tmp_path_factory: pytest.TempPathFactory, position: int, mask: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool, events = new_spool(folder), batches(8)
    assert write(spool, *events[:4])
    assert write(spool, *events[4:])
    file = single_file(folder)
    content = bytearray(file.read_bytes())
    position %= len(content)
    content[position] ^= mask
    file.write_bytes(content)

    read = [*spool.read(), *spool.read()]

    assert list(folder.iterdir()) == []
    intact = [event for event in read if not isinstance(event.data, Gap)]
    gaps = [event.data for event in read if isinstance(event.data, Gap)]
    assert len(gaps) == 1
    assert [event for event in events if event in intact] == intact
    # A damaged length takes the rest of its block along, but never another block.
    assert len(intact) >= 4
    for before, after in itertools.pairwise(read):
        assert after.sequence == before.last_sequence + 1
        assert after.timestamp >= before.timestamp
    assert (read[0].sequence, read[-1].last_sequence) == (1, 40)


def test_a_damaged_record_is_a_gap_of_its_own_sequences(tmp_path: Path) -> None:
    spool, events = new_spool(tmp_path), batches(3)
    write(spool, *events)
    file = single_file(tmp_path)
    content = bytearray(file.read_bytes())
    content[len(record_of(events[0])) + len(record_of(events[1])) - 1] ^= 1
    file.write_bytes(content)
    first, second, third = spool.read()
    assert [first, third] == [events[0], events[2]]
    assert (second.sequence, second.data) == (6, gap(6, 10))


def test_a_file_that_lost_its_end_or_all_of_it_is_a_gap(tmp_path: Path) -> None:
    spool, events = new_spool(tmp_path), batches(4)
    write(spool, *events[:2])
    write(spool, *events[2:])
    file = single_file(tmp_path)
    file.write_bytes(file.read_bytes()[: len(record_of(events[0]))])
    first, second = spool.read()
    assert (first, second.data) == (events[0], gap(6, 10))
    assert [event.data for event in spool.read()] == [gap(11, 20)]


def test_what_an_earlier_block_left_in_the_place_of_a_lost_one_is_not_taken_for_it(tmp_path: Path) -> None:
    spool, events = new_spool(tmp_path), batches(2)
    write(spool, events[0])
    write(spool, events[1])
    file = single_file(tmp_path)
    size = len(record_of(events[0]))
    content = file.read_bytes()
    file.write_bytes(content[:size] + content[:size])
    assert spool.read() == [events[0]]
    assert [event.data for event in spool.read()] == [gap(6, 10)]


def test_a_full_disk_refuses_a_block_and_loses_none(tmp_path: Path) -> None:
    spool, events = new_spool(tmp_path), batches(3)
    size = len(record_of(events[0]))
    with files_limited_to(size + 20) as logged:
        assert write(spool, events[0])
        assert not write(spool, events[1])
        assert not write(spool, events[1])
    warnings = [(entry["event"], entry["error"]) for entry in logged if entry["log_level"] == "warning"]
    assert warnings == [("spool.failed", "File too large")]
    assert write(spool, events[1])
    assert write(spool, events[2])
    assert [spool.read() for _ in range(3)] == [[event] for event in events]


def test_a_disk_that_was_full_from_the_beginning_leaves_no_file(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    with files_limited_to(10):
        assert not write(spool, batch(1))
    assert list(tmp_path.iterdir()) == []
    assert write(spool, batch(1))


@pytest.mark.parametrize("make", [Path.touch, lambda folder: folder.symlink_to(folder.parent)])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "spool")
    spool = new_spool(tmp_path / "spool")
    assert not write(spool, batch(1))
    assert not spool


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(0o777)
    assert not write(new_spool(folder), batch(1))
    assert list(folder.iterdir()) == []


def test_a_file_that_is_there_already_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / f"{JOB_ID}.1.spool").symlink_to(tmp_path / "target")
    assert not write(new_spool(tmp_path), batch(1))
    assert (tmp_path / "target").read_text() == "precious"


def test_a_job_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    assert Spool(SpoolFolder(folder), "../../x", 1).write([batch(1)], 10)
    assert len(list(folder.iterdir())) == 1
    assert list(tmp_path.iterdir()) == [folder]
