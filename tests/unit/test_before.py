"""This tree beside an earlier commit: what is measured, and what decides."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.before.__main__ import FIGURES, Figure, tell, worktrees
from benchmarks.before.scenarios import SCENARIOS
from benchmarks.harness import ROOT


def test_every_figure_beside_an_earlier_commit_is_measured() -> None:
    assert {figure.scenario for figure in FIGURES} == set(SCENARIOS)
    assert len({figure.key for figure in FIGURES}) == len(FIGURES)


def test_the_median_of_the_ratios_decides(capsys: pytest.CaptureFixture[str]) -> None:
    figure = Figure("drain", "rate", "drain", "jobs/s", at_least=1.5)
    runs = [({"rate": 100.0}, {"rate": rate}) for rate in (100.0, 150.0, 400.0)]
    assert tell(figure, runs)
    assert (
        capsys.readouterr().out
        == "| drain | 100 jobs/s | 150 jobs/s | 1.50 | 1.00 to 4.00 | >= 1.5 | yes |\n"
    )
    assert not tell(figure, runs[:1])


def test_the_worktrees_of_a_repository_are_found() -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT, head.stdout.strip()) in worktrees()
