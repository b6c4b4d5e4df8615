"""How the benchmarks compare: who is in a table, what counts, and what is said when something is missing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import line_of
from benchmarks.harness import ROOT, Row
from benchmarks.peers import contest, document, provision, single_enqueues, tuning
from benchmarks.peers.contenders import AIRUNNER, PEERS
from benchmarks.peers.drain import SessionsMeter
from benchmarks.peers.processes import enqueue, tally
from benchmarks.peers.processes.tally import FOLDER_VARIABLE
from benchmarks.peers.promises import Promise
from benchmarks.peers.turns import Rounds, Sample, in_turns, rate_row, time_row

COUNT_TWICE_IN_TWO_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from benchmarks.peers.processes.tally import count
with ThreadPoolExecutor(2) as threads:
    list(threads.map(lambda _: count(), range(4)))
"""
SPEND_IN_A_CHILD = """
import os, time
if os.fork():
    os.wait()
began = time.process_time()
while time.process_time() < began + 0.2:
    pass
print("spent", flush=True)
time.sleep(60)
"""


def rounds_of(*rates: float, cpu: float = 1) -> Rounds:
    return Rounds([Sample(rate, 1, cpu) for rate in rates])


def test_a_missing_redis_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(provision.Missing, match="apt-get install redis-server"), provision.redis():
        pass


def test_a_row_without_a_goal_is_only_told() -> None:
    assert line_of(Row(name="lines", measured="5 s")) == "| lines | 5 s |  |  |  |  |"


def test_make_bench_sets_nothing_that_a_server_does_not_have() -> None:
    assert "MALLOC" not in (ROOT / "Makefile").read_text()


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = f"before\n{document.BEGIN}\n\n| old |\n\n{document.END}\nafter\n"
    assert document.with_table(page, ["| new |"]) == page.replace("old", "new")
    with pytest.raises(ValueError, match="no <!--"):
        document.with_table("a page without marks", ["| new |"])


def test_rows_take_the_place_of_those_that_tell_of_the_same() -> None:
    rows = ["| a, the best | 1 |", "| b | 2 |", "| c | 3 |"]
    page = document.with_table(f"{document.BEGIN}{document.END}\n", rows)
    renewed = document.with_rows(page, ["| a | 4 |", "| b, the best | 5 |"])
    assert renewed == document.with_table(page, ["| a | 4 |", "| b, the best | 5 |", "| c | 3 |"])
    with pytest.raises(ValueError, match="no row of"):
        document.with_rows(page, ["| d | 6 |"])


def test_the_page_has_a_place_for_the_table() -> None:
    assert "| new |" in document.with_table(document.PAGE.read_text(), ["| new |"])


class TestTurns:
    def test_everybody_has_a_turn_in_each_round(self) -> None:
        turns: list[str] = []

        def side(name: str) -> Callable[[], Awaitable[Sample]]:
            async def play() -> Sample:
                turns.append(name)
                return Sample(1, 1, 1)

            return play

        asyncio.run(in_turns("who", 2, {"a": side("a"), "b": side("b")}))
        assert turns == ["a", "b", "a", "b"]

    @pytest.mark.parametrize(
        "failure",
        [
            provision.Missing("no redis-server"),
            RuntimeError("no redis-server"),
            subprocess.SubprocessError("no redis-server"),
        ],
    )
    def test_one_who_fails_is_a_row_that_fails_and_stops_nobody(self, failure: Exception) -> None:
        async def play() -> Sample:
            return Sample(10, 1, 1)

        async def fail() -> Sample:
            raise failure

        played = asyncio.run(in_turns("who", 3, {"theirs": fail, "ours": play}))
        assert len(played["ours"].samples) == 3
        row = rate_row("jobs", played["ours"], played["theirs"], unit="jobs", note="", promise=Promise(2, 3))
        assert not row.met
        assert line_of(row) == "| jobs | not run: no redis-server |  |  | >= 2 (3 wished) | NO |"

    def test_medians_count_and_ranges_are_told(self) -> None:
        row = rate_row(
            "jobs", rounds_of(90, 1000, 110, cpu=2), rounds_of(50, 49, 10), unit="jobs", note="solo"
        )
        assert line_of(row) == (
            "| jobs | 110 jobs/s (90 to 1,000), 55 a CPU-second | 49 jobs/s (10 to 50), 49 a CPU-second, solo"
            " | 2.24, by CPU 1.12 |  |  |"
        )

    @pytest.mark.parametrize(("promise", "met"), [(1.9, True), (2, True), (2.1, False)])
    def test_a_promise_of_a_rate_is_the_least_ratio(self, promise: float, met: bool) -> None:
        row = rate_row(
            "jobs", rounds_of(100), rounds_of(50), unit="jobs", note="", promise=Promise(promise, 9)
        )
        assert row.met is met

    @pytest.mark.parametrize(("promise", "met"), [(1.9, False), (2, True), (2.1, True)])
    def test_a_promise_of_a_time_is_the_highest_ratio(self, promise: float, met: bool) -> None:
        row = time_row("line", rounds_of(50), rounds_of(100), note="", promise=Promise(promise, 9))
        assert row.met is met

    def test_times_are_told_of_one(self) -> None:
        row = time_row("line", Rounds([Sample(1, 0.002, 0.004)]), Rounds([Sample(1, 0.001, 0.001)]), note="x")
        assert line_of(row) == (
            "| line | 2.00 ms (2.00 to 2.00), 4.00 ms of CPU | 1.00 ms (1.00 to 1.00), 1.00 ms of CPU, x"
            " | 2.00, by CPU 4.00 |  |  |"
        )


class TestContest:
    def test_every_peer_has_every_kind_of_job_where_it_syncs(self) -> None:
        names = [peer.name for peer in PEERS]
        for kind in contest.KINDS:
            synced = [
                entry.contender.name
                for entry in contest.entries_of(kind)
                if entry.redis_options == provision.ALWAYS_ON_DISK
            ]
            assert synced == [AIRUNNER.name, *names]

    def test_a_peer_that_is_faster_stays_in_the_table_without_a_promise(self) -> None:
        played = {entry.name: rounds_of(100) for entry in contest.entries_of("line")}
        played = {name: rounds_of(10) if "airunner" in name else each for name, each in played.items()}
        rows = contest.rows_of("line", played, {})
        assert len(rows) == len(PEERS)
        assert all(row.ratio == pytest.approx(0.1) for row in rows)

    def test_the_promise_of_enqueues_is_about_the_best_peer(self) -> None:
        played = {"airunner": rounds_of(60), "SAQ": rounds_of(50), "BullMQ": rounds_of(100)}
        played["Celery"] = Rounds(missing="not there")
        saq, bullmq, celery = single_enqueues.rows_of(16, played)
        assert (saq.goal, saq.met) == ("", True)
        assert (bullmq.goal, bullmq.met) == (">= 0.65 (1.2 wished)", False)
        assert not celery.met

    def test_the_numbers_of_the_sweep_are_of_ways_that_there_are(self) -> None:
        ways = {each.name: {way.how for way in each.ways} for each in (AIRUNNER, *PEERS)}
        for name, kinds in tuning.load().items():
            for rates in kinds.values():
                assert set(rates) == ways[name]

    def test_who_was_not_swept_is_told(self) -> None:
        way = AIRUNNER.ways[0]
        assert tuning.how(AIRUNNER, "noop", {"airunner": {"noop": {way.how: [1]}}}) == way.how
        assert tuning.how(AIRUNNER, "noop", {}) == f"{way.how}, not swept"

    def test_the_way_with_the_highest_median_is_taken(self) -> None:
        first, second, *_ = AIRUNNER.ways
        rates = {"airunner": {"noop": {first.how: [1, 2, 900], second.how: [3, 3, 3]}}}
        assert tuning.best_way(AIRUNNER, "noop", rates) is second
        assert tuning.best_way(AIRUNNER, "line", rates) is second
        assert tuning.best_way(AIRUNNER, "noop", {}) is first

    def test_a_sweep_keeps_what_it_did_not_measure(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tuning, "SWEEP", tmp_path / "sweep.json")
        tuning.save({"SAQ": {"noop": {"a": [1.4]}}})
        tuning.save({"SAQ": {"line": {"b": [2]}}, "Huey": {"noop": {"c": [3]}}})
        assert tuning.load() == {
            "SAQ": {"noop": {"a": [1]}, "line": {"b": [2]}},
            "Huey": {"noop": {"c": [3]}},
        }


class TestProcesses:
    def test_a_tally_is_that_of_all_processes_and_threads(self, tmp_path: Path) -> None:
        assert tally.read(tmp_path).jobs == 0
        told = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
        for _ in range(2):
            subprocess.run([sys.executable, "-c", COUNT_TWICE_IN_TWO_THREADS], cwd=ROOT, env=told, check=True)
        noted = tally.read(tmp_path)
        assert noted.jobs == 8
        assert 0 < noted.first < noted.latest

    def test_the_cpu_of_children_counts(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", SPEND_IN_A_CHILD], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            meter = SessionsMeter((), [process.pid])
            assert process.stdout
            assert process.stdout.readline() == b"spent\n"
            assert meter.spent() >= 0.2
        finally:
            os.killpg(process.pid, 9)
            process.communicate()

    @pytest.mark.parametrize("callers", [1, 3, 16])
    def test_every_job_is_enqueued_once_by_threads(self, callers: int) -> None:
        numbers: list[int] = []
        spent = enqueue.in_threads(numbers.append, 50, callers)
        assert Counter(numbers) == Counter(range(50))
        assert spent["calls"] == 25

    @pytest.mark.parametrize("callers", [1, 3, 16])
    def test_every_job_is_enqueued_once_by_tasks(self, callers: int) -> None:
        numbers: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0)
            numbers.append(number)

        spent = asyncio.run(enqueue.in_tasks(note, 50, callers))
        assert Counter(numbers) == Counter(range(50))
        assert spent["calls"] == 25
