"""What handlers of generation print, as log lines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from airunner.generation.output import LoggedOutput
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.testing.conditions import until
from tests.support.consumers import turns

LIMIT_SECONDS = 20


def make_output() -> LoggedOutput:
    return LoggedOutput(LoopCallbacks(asyncio.get_running_loop()), "session", "paint")


def lines_of(logs: list[Any]) -> list[tuple[str, str]]:
    return [(entry["line"], entry["stream"]) for entry in logs if entry["event"] == "job.output"]


async def in_a_thread(function: Callable[[], None]) -> None:
    """Run it beside the loop, and wait: one that waits for itself fails instead of hanging."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    await until(lambda: not thread.is_alive(), limit_seconds=LIMIT_SECONDS)


class CollectingText(str):
    """A text in whose midst something is done once, as by the garbage collector, when it is taken apart."""

    __slots__ = ("collect",)
    collect: Callable[[], None]

    def __radd__(self, other: str) -> CollectingText:
        joined = CollectingText(str.__add__(other, self))
        joined.collect = self.collect
        return joined

    def split(self, *args: Any, **options: Any) -> list[str]:
        self.collect()
        return str.split(self, *args, **options)


def collecting(text: str, collect: Callable[[], None]) -> CollectingText:
    made = CollectingText(text)
    made.collect = collect
    return made


async def test_lines_of_both_streams_are_logged_when_they_end() -> None:
    output = make_output()
    with capture_logs() as logs:
        output.write("one\ntw", is_stderr=False)
        output.write("err", is_stderr=True)
        output.write("o\n", is_stderr=False)
        output.progress(1, 2, "half")
        await until(lambda: len(lines_of(logs)) == 3)
        output.flush()
        await until(lambda: len(lines_of(logs)) == 4)
    assert lines_of(logs) == [
        *(("one", "stdout"), ("two", "stdout")),
        *(("1 of 2: half", "stdout"), ("err", "stderr")),
    ]


async def test_what_is_printed_while_a_line_is_taken_comes_behind_it_and_whole() -> None:
    output = make_output()

    def finalize() -> None:
        output.write("freed\nfreed too", is_stderr=False)
        output.flush()

    def talk() -> None:
        output.write("be", is_stderr=False)
        output.write(collecting("gun\nand ", finalize), is_stderr=False)
        output.write("ended\n", is_stderr=False)

    with capture_logs() as logs:
        await in_a_thread(talk)
        await until(lambda: len(lines_of(logs)) == 4)
    assert [line for line, _ in lines_of(logs)] == ["begun", "and freed", "freed too", "ended"]


async def test_what_comes_after_the_seal_goes_nowhere_and_what_came_before_is_logged() -> None:
    output = make_output()
    with capture_logs() as logs:
        output.write("before\nunfinished", is_stderr=True)
        output.seal()
        output.write("late\n", is_stderr=False)
        output.progress(1, 2, "late")
        output.flush()
        output.seal()
        await turns()
    assert lines_of(logs) == [("before", "stderr"), ("unfinished", "stderr")]


async def test_what_comes_while_the_loop_is_behind_is_dropped_and_counted() -> None:
    output = make_output()
    with capture_logs() as logs:
        for number in range(1_003):
            output.write(f"{number}\n", is_stderr=False)
        await until(lambda: any(entry["event"] == "job.output_dropped" for entry in logs))
        output.write("after\n", is_stderr=False)
        await until(lambda: lines_of(logs)[-1] == ("after", "stdout"))
    assert len(lines_of(logs)) == 1_001
    assert [entry["lines"] for entry in logs if entry["event"] == "job.output_dropped"] == [3]


async def test_a_huge_text_without_an_end_is_taken_in_no_time() -> None:
    output = make_output()
    with capture_logs() as logs:
        began = time.thread_time()
        output.write("x" * 2**25, is_stderr=False)
        assert time.thread_time() - began < 2
        output.write("yz\n", is_stderr=False)
        await turns()
    (dropped,) = [entry["lines"] for entry in logs if entry["event"] == "job.output_dropped"]
    assert (len(lines_of(logs)), len(lines_of(logs)[0][0])) == (1_000, 4_000)
    assert len(lines_of(logs)) + dropped == -(-(2**25 + 2) // 4_000)
