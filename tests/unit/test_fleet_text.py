"""What people read of a fleet: runs, pools, and a chart of their use."""

from __future__ import annotations

import pytest

from airunner.cli.fleet_text import chart, print_report, print_run, run_to_json
from airunner.domain.fleet import (
    ActionKind,
    HousekeepingRun,
    Pool,
    PoolAudit,
    PoolReport,
    RecordedAction,
    RunOutcome,
    TaskType,
)

HOUR_MS = 3_600_000


def audit(pool: str, hour: int, *, running: int, idle: int, cost: float | None = None) -> PoolAudit:
    return PoolAudit(
        pool=pool,
        audited_at=hour * HOUR_MS,
        running=running,
        stopped=1,
        idle=idle,
        seconds=3600,
        compute_cost_usd=cost,
        idle_cost_usd=cost,
    )


def test_a_chart_has_a_bar_for_each_share_and_a_dot_for_none() -> None:
    assert chart([0, 12.4, 12.5, 50, 99.9, 100, None]) == "▁▁▂▅██·"


def test_a_report_shows_the_last_audit_and_the_use_over_all(capsys: pytest.CaptureFixture[str]) -> None:
    audits = [
        [audit("a", 3, running=4, idle=1, cost=0.25), audit("b", 3, running=0, idle=0)],
        [audit("a", 2, running=2, idle=2)],
        [audit("a", 1, running=1, idle=0)],
    ]
    print_report(PoolReport(pools=[Pool(name="a", desired_running=5)], audits=audits))
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split("\t") == ["a", "4 of 5", "1 of 0", "1", "75 %", "$0.2500", "$0.2500", "█▁▇"]
    # A price that nobody listed is unknown, and the use of nothing is not told.
    assert second.split("\t") == ["b", "0", "1", "0", "-", "unknown", "unknown", "··" + "·"]
    assert last == "audited at 1970-01-01T03:00:00.000Z"
    print_report(PoolReport())
    assert capsys.readouterr().out == "no pool was audited yet\n"


def test_a_run_says_what_was_done_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    action = RecordedAction(kind=ActionKind.DELETED, target="/r/i-1/config", why="gone", seen="old", at=5)
    run = HousekeepingRun(
        slot="stale_ssm#1",
        task_type=TaskType.STALE_SSM,
        started_at=1,
        ended_at=2,
        outcome=RunOutcome.DONE,
        listed=9,
        changed=1,
        actions=(action,),
        actions_left_out=3,
    )
    print_run(run)
    assert capsys.readouterr().out.splitlines() == [
        "deleted\t/r/i-1/config\tgone\told",
        "and 3 more",
        "stale_ssm: 9 listed, 1 changed",
    ]
    shown = run_to_json(run)
    assert (shown["task_type"], shown["outcome"], shown["started_at"]) == (
        "stale_ssm",
        "done",
        "1970-01-01T00:00:00.001Z",
    )
