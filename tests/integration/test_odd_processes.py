"""Processes that print in odd ways: every watcher gets exactly their bytes, live and again."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from airunner.domain.event import EventType, Output, StreamType
from airunner.domain.job import Outcome, ProcessType
from airunner.domain.requests import StreamRequest
from tests.support.processes import until_gone
from tests.support.workers import Bench, working

OUTPUT = frozenset({EventType.OUTPUT_DATA})
ANSI = b"\x1b[2J\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[3A\x1b[?25l done\n"
BARS = b"".join(b"\r\x1b[K[%-50s] %3d%%" % (b"=" * (part // 2), part) for part in range(101)) + b"\n"

ODD = {
    "nothing at all": b"",
    "one byte": b"x",
    "NUL bytes": b"a\0b\0\0\n\0",
    "every byte": bytes(range(256)) * 300,
    "invalid UTF-8": b"\xff\xfe\xc3\x28 \xf0\x9f\x98 cut\n\xed\xa0\x80\n",
    "a character in two writes": "ä€😀".encode() * 50_000,
    "a line of 5 MB": b"0123456789" * 500_000 + b"\n",
    "5 MB without an end": b"9876543210" * 500_000,
    "random": random.Random(4).randbytes(2_000_000),
    "ANSI": ANSI * 1000,
    "progress bars": BARS * 20,
    "carriage returns and newlines": b"a\r\nb\rc\n\r\n\r\r\n" * 1000,
    "only newlines": b"\n" * 20_000,
}


async def watch(bench: Bench, job_id: str) -> bytes:
    request = StreamRequest(job_id=job_id, event_filter=OUTPUT)
    events = bench.services.events.stream_events(request)
    return b"".join([event.data.output async for event in events if isinstance(event.data, Output)])


@pytest.mark.parametrize("written", ODD.values(), ids=ODD)
async def test_every_watcher_gets_every_byte(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "written").write_bytes(written)
    async with working(tmp_path) as bench:
        job_id = await bench.submit("cat", str(tmp_path / "written"))
        watchers = [asyncio.create_task(watch(bench, job_id)) for _ in range(3)]
        log = await bench.log_of(job_id)
        seen = await asyncio.gather(*watchers)
        again = await watch(bench, job_id)
    assert log.result.outcome is Outcome.SUCCESS
    assert [*seen, again, log.output()] == [written] * 5


async def test_a_terminal_passes_odd_bytes_too(tmp_path: Path) -> None:
    written = ANSI + BARS + b"\0\xff\xfe\x80 no newline"
    (tmp_path / "written").write_bytes(written)
    async with working(tmp_path) as bench:
        log = await bench.do("cat", str(tmp_path / "written"), process_type=ProcessType.PTY)
    assert log.output() == written


async def test_output_without_newlines_is_seen_while_the_process_goes_on(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    script = f"printf 'Working'; cat {go_on}; printf '...'; cat {go_on}; printf '\\377 done'"
    seen = b""
    async with working(tmp_path) as bench:
        job_id = await bench.submit("sh", "-c", script)
        parts = iter([b"Working", b"Working...", b"Working...\xff done"])
        expected = next(parts)
        async for event in bench.services.events.stream_events(
            StreamRequest(job_id=job_id, event_filter=OUTPUT)
        ):
            assert isinstance(event.data, Output)
            seen += event.data.output
            if seen == expected and (following := next(parts, None)):
                expected = following
                # The process waits here: what was seen was seen before it went on.
                await asyncio.to_thread(go_on.write_bytes, b"")
    assert seen == b"Working...\xff done"


async def test_a_progress_bar_is_seen_as_it_moves(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    script = f"for part in 10 50 100; do printf '\\r%3d %%' $part; cat {go_on}; done; echo"
    async with working(tmp_path) as bench:
        job_id = await bench.submit("sh", "-c", script)
        seen = b""
        moved = 0
        async for event in bench.services.events.stream_events(
            StreamRequest(job_id=job_id, event_filter=OUTPUT)
        ):
            assert isinstance(event.data, Output)
            seen += event.data.output
            if moved < seen.count(b"%"):
                moved += 1
                await asyncio.to_thread(go_on.write_bytes, b"")
    assert (seen, moved) == (b"\r 10 %\r 50 %\r100 %\n", 3)


async def test_both_streams_without_newlines_keep_their_bytes(tmp_path: Path) -> None:
    script = "import os\nfor n in range(2000): os.write(1, b'o%d\\0' % n); os.write(2, b'e%d\\r' % n)"
    async with working(tmp_path) as bench:
        log = await bench.do(sys.executable, "-c", script)
    assert log.output(StreamType.STDOUT) == b"".join(b"o%d\0" % n for n in range(2000))
    assert log.output(StreamType.STDERR) == b"".join(b"e%d\r" % n for n in range(2000))


async def test_what_a_grandchild_with_the_pipe_says_in_time_is_kept_and_then_it_is_ended(
    tmp_path: Path,
) -> None:
    printed = tmp_path / "said"
    script = f"(echo early; while ! test -e {printed}; do sleep 0.01; done; printf late; exec sleep 1000) &"
    async with working(tmp_path) as bench:
        job_id = await bench.submit("sh", "-c", f"{script} echo child $!; exit 7")
        watching = asyncio.create_task(watch(bench, job_id))
        await bench.first_output(job_id)
        printed.touch()
        log = await bench.log_of(job_id)
        seen = await watching
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, 7)
    assert seen == log.output()
    assert b"late" in seen
    assert log.errors == [
        "a process that was left behind kept the output open; what it wrote later is missing",
    ]
    pid = int(next(line.split()[1] for line in seen.split(b"\n") if line.startswith(b"child")))
    await until_gone(pid)
