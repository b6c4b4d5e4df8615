"""This tree and an earlier commit in turns: `python -m benchmarks.before COMMIT [NAME ...]`.

A NAME is that of a scenario; without one, all are measured. The commit is measured in a worktree, with the
environment of that tree; one that is there already is used. Machines are noisy, so only ratios count: each
run measures both trees, one right after the other, and each goes first in every other run. RUNS and SCALE in
the environment say how often (3 times) and how much of it (1, all). The table is Markdown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT

_LIMIT_SECONDS = 1_800
_HEADER = "| what | before | now | ratio | range | goal | met |\n|---|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a scenario, and the ratio to the earlier one that is wanted; without, it is only told."""

    scenario: str
    key: str
    name: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    wished: float | None = None

    @property
    def goal(self) -> str:
        """The goal, as the table shows it; what is wished does not bind."""
        wished = "" if self.wished is None else f" ({self.wished:g} wished)"
        if self.at_most is not None:
            return f"<= {self.at_most:g}{wished}"
        return "" if self.at_least is None else f">= {self.at_least:g}{wished}"

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return (self.at_most is None or ratio <= self.at_most) and (
            self.at_least is None or ratio >= self.at_least
        )


FIGURES = (
    Figure(
        "replay",
        "line_cpu_us",
        "replay of 1,000 lines, 50 a batch: CPU of the client a line",
        "us",
        0.3,
        wished=0.2,
    ),
    Figure("replay", "lines_ms", "the same, p50", "ms"),
    Figure("replay", "singles_ms", "replay of 1,000 single events, p50", "ms", 0.1),
    Figure("logs", "logs_s", "`logs` of 1,000,000 lines, median of three", "s", 0.3, wished=0.15),
    Figure("fan_out", "fan_out_ms", "a line to 10 watchers, the last of them, p50", "ms", 0.5),
    Figure("fan_out", "fan_out_cpu_ms", "the same, CPU of all processes, a line", "ms", 0.45),
    Figure("drain", "equal_cpu_us", "drain, equal results: CPU of server and worker, a job", "us", 0.8),
    Figure("drain", "equal_rate", "the same", "jobs/s", at_least=0.95),
    Figure("drain", "distinct_cpu_us", "drain, distinct results: CPU of server and worker, a job", "us"),
    Figure("drain", "distinct_rate", "the same", "jobs/s", at_least=1.5, wished=2),
    Figure("drain", "printed_cpu_us", "drain, a printed line: CPU of server and worker, a job", "us"),
    Figure("drain", "printed_rate", "the same", "jobs/s", at_least=2),
    Figure("dispatch", "dispatch_ms", "dispatch, a job every 30 ms, p50", "ms", 1.05),
    Figure("dispatch", "dispatch_p99_ms", "the same, p99", "ms", 1.05),
    Figure(
        "calls", "batch_enqueue_cpu_us", "enqueues, 100 a call: CPU of server and client, a job", "us", 1.05
    ),
    Figure("calls", "batch_enqueue_rate", "the same", "jobs/s", at_least=0.95),
    Figure("calls", "single_enqueue_rate", "single enqueues, 16 callers", "jobs/s", at_least=0.95),
    Figure("calls", "published_rate", "lines published by 8, 50 a batch", "lines/s", at_least=0.95),
)


def main(arguments: Sequence[str]) -> int:
    """Measure both trees in turns and print the table; fail when a goal is not met."""
    names = arguments[1:] or list(dict.fromkeys(figure.scenario for figure in FIGURES))
    earlier = tree_of(arguments[0])
    runs = int(os.environ.get("RUNS", "3"))
    measured: list[tuple[Mapping[str, float], Mapping[str, float]]] = []
    for number in range(runs):
        warn_of_others()
        pair = measure_pair(earlier, names, earlier_first=bool(number % 2))
        print(f"run {number + 1} of {runs}, before: {pair[0]}, now: {pair[1]}", file=sys.stderr, flush=True)
        measured.append(pair)
    shown = [figure for figure in FIGURES if figure.scenario in names]
    print(_HEADER)
    met = [tell(figure, measured) for figure in shown]
    return 0 if all(met) else 1


def warn_of_others() -> None:
    """Say that other programs want the CPU: what is measured in seconds then tells about them."""
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy > cores / 2:
        print(
            f"the load is {busy:.1f} on {cores} cores: rates and times of this run say nothing, CPU little",
            file=sys.stderr,
            flush=True,
        )


def measure_pair(
    earlier: Path, names: Sequence[str], *, earlier_first: bool
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Measure the earlier tree and this one; return the figures of each, in this order."""
    figures: dict[Path, dict[str, float]] = {earlier: {}, ROOT: {}}
    for name in names:
        for tree in (earlier, ROOT) if earlier_first else (ROOT, earlier):
            figures[tree].update(measure(tree, name))
    return figures[earlier], figures[ROOT]


def measure(tree: Path, name: str) -> dict[str, float]:
    """Run a scenario with the environment of a tree."""
    python = str(tree / ".venv" / "bin" / "python")
    command = [python, "-m", "benchmarks.before.scenarios", name, os.environ.get("SCALE", "1")]
    # All of it lies in this tree but for the package itself, which the environment names.
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=_LIMIT_SECONDS)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def tell(figure: Figure, measured: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> bool:
    """Print a row of the table; return whether its goal is met by the median of the ratios of all runs."""
    before, now = ([side[figure.key] for side in sides] for sides in zip(*measured, strict=True))
    ratios = sorted(ours / theirs for theirs, ours in zip(before, now, strict=True))
    ratio = statistics.median(ratios)
    met = figure.is_met(ratio)
    cells = [
        figure.name,
        *(f"{statistics.median(side):,.4g} {figure.unit}" for side in (before, now)),
        f"{ratio:.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        figure.goal,
        ("yes" if met else "NO") if figure.goal else "",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return met


def tree_of(commit: str) -> Path:
    """Return a worktree of a commit, with its environment: one that is there, or a new one."""
    wanted = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    tree = next((path for path, head in worktrees() if head == wanted and path != ROOT), None)
    if tree is None:
        tree = ROOT / ".bench" / f"before-{wanted[:12]}"
        _git("worktree", "add", "--detach", str(tree), wanted)
    if not (tree / ".venv" / ".ready").exists():
        subprocess.run(["make", "setup"], cwd=tree, stdout=sys.stderr, check=True)
    return tree


def worktrees() -> list[tuple[Path, str]]:
    """Return the worktrees of this repository that are there, each with the commit that it shows."""
    found = []
    for entry in _git("worktree", "list", "--porcelain").split("\n\n"):
        fields = dict(line.partition(" ")[::2] for line in entry.splitlines())
        path = Path(fields.get("worktree", ""))
        if "HEAD" in fields and path.is_dir():
            found.append((path, fields["HEAD"]))
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
