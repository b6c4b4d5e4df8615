"""Runs, audits and pools of a fleet, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from airunner.cli.printing import moment, print_table
from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.fleet import HousekeepingRun, Pool, PoolAudit, PoolReport

_BARS: Final = "▁▂▃▄▅▆▇█"
_NONE: Final = "·"


def print_run(run: HousekeepingRun) -> None:
    """Print what a run did, a line for each thing."""
    rows = [(action.kind.value, action.target, action.why, action.seen) for action in run.actions]
    print_table(("done" if not run.dry_run else "would do", "what", "why", "seen"), rows)
    if run.actions_left_out:
        print(f"and {run.actions_left_out} more")
    would = "would be " if run.dry_run else ""
    print(f"{run.task_type.value}: {run.listed} listed, {run.changed} {would}changed")


def print_runs(runs: Sequence[HousekeepingRun]) -> None:
    """Print a line for each run."""
    rows = [
        (
            run.task_type.value,
            f"{run.outcome.value} (dry run)" if run.dry_run else run.outcome.value,
            moment(run.started_at),
            str(run.listed),
            str(run.changed),
            run.text,
        )
        for run in runs
    ]
    print_table(("task", "outcome", "started", "listed", "changed", "why"), rows)


def print_report(report: PoolReport) -> None:
    """Print the last audit, and for each pool a chart of its use over all of them, the newest at the end."""
    if not report.audits:
        print("no pool was audited yet")
        return
    described = {pool.name: pool for pool in report.pools}
    rows = [_row(audit, described.get(audit.pool), report) for audit in report.audits[0]]
    columns = ("pool", "running", "stopped", "idle", "in use", "cost", "idle cost", "in use over time")
    print_table(columns, rows)
    print(f"audited at {to_iso(report.audits[0][0].audited_at)}")


def run_to_json(run: HousekeepingRun) -> dict[str, object]:
    """Return a run as JSON has it."""
    return {
        **asdict(run),
        "task_type": run.task_type.value,
        "outcome": run.outcome.value,
        "started_at": to_iso(run.started_at),
        "ended_at": to_iso(run.ended_at),
        "actions": [
            {**asdict(action), "kind": action.kind.value, "at": to_iso(action.at)} for action in run.actions
        ],
    }


def audit_to_json(audit: PoolAudit) -> dict[str, object]:
    """Return the audit of a pool as JSON has it; what is not known is null."""
    return {
        **asdict(audit),
        "audited_at": to_iso(audit.audited_at),
        "utilisation_percent": audit.utilisation_percent,
    }


def pool_to_json(pool: Pool) -> dict[str, object]:
    """Return a pool as JSON has it."""
    return asdict(pool)


def chart(shares: Sequence[float | None]) -> str:
    """Return percentages as bars; a dot where there is none."""
    return "".join(
        _NONE if share is None else _BARS[min(int(share / 100 * len(_BARS)), len(_BARS) - 1)]
        for share in shares
    )


def _row(audit: PoolAudit, pool: Pool | None, report: PoolReport) -> tuple[str, ...]:
    use = audit.utilisation_percent
    history = [
        next((entry.utilisation_percent for entry in entries if entry.pool == audit.pool), None)
        for entries in reversed(report.audits)
    ]
    return (
        audit.pool,
        f"{audit.running} of {pool.desired_running}" if pool else str(audit.running),
        f"{audit.stopped} of {pool.desired_stopped}" if pool else str(audit.stopped),
        str(audit.idle),
        "-" if use is None else f"{use:.0f} %",
        _cost(audit.compute_cost_usd),
        _cost(audit.idle_cost_usd),
        chart(history),
    )


def _cost(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.4f}"
