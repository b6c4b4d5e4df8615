"""What the benchmarks say when something is missing, and how a drain is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import line_of
from benchmarks.harness import ROOT, Row
from benchmarks.peers import provision
from benchmarks.peers.contenders import PEERS
from benchmarks.peers.drain import Contest, row_of
from benchmarks.peers.tally import FILE_VARIABLE, JOBS_VARIABLE

COUNT_TO = "from benchmarks.peers.tally import count; [count() for _ in range({})]"


def test_a_missing_redis_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(provision.Missing, match="apt-get install redis-server"), provision.redis():
        pass


def test_a_peer_that_is_missing_is_a_row_that_fails() -> None:
    row = row_of(Contest(PEERS[0], "Redis", missing="no redis-server"), ours=1000)
    assert not row.met
    assert "| not run: no redis-server |  |  | >= 4 | NO |" in line_of(row)


@pytest.mark.parametrize(("theirs", "met"), [(250, True), (251, False)])
def test_a_python_peer_is_beaten_by_a_factor_of_four(theirs: float, met: bool) -> None:
    celery = next(peer for peer in PEERS if peer.name == "Celery")
    assert row_of(Contest(celery, "Redis", rates=[100, theirs]), ours=1000).met is met


@pytest.mark.parametrize(("theirs", "met"), [(999, True), (1000, False)])
def test_bullmq_is_only_to_be_beaten(theirs: float, met: bool) -> None:
    bullmq = next(peer for peer in PEERS if peer.name == "BullMQ")
    assert row_of(Contest(bullmq, "Redis", rates=[theirs, 100]), ours=1000).met is met


def test_a_row_without_a_goal_is_only_told() -> None:
    assert line_of(Row(name="lines", measured="5 s")) == "| lines | 5 s |  |  |  |  |"


@pytest.mark.parametrize(("jobs", "counted", "written"), [(3, 2, False), (3, 3, True), (3, 4, True)])
def test_the_last_job_writes_the_tally(tmp_path: Path, jobs: int, counted: int, written: bool) -> None:
    file = tmp_path / "tally.json"
    told = {**os.environ, FILE_VARIABLE: str(file), JOBS_VARIABLE: str(jobs)}
    subprocess.run([sys.executable, "-c", COUNT_TO.format(counted)], cwd=ROOT, env=told, check=True)
    assert file.exists() is written
    if written:
        first, last = json.loads(file.read_text())
        assert first < last
