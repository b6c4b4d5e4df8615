"""Counts what each pool has, and what it costs.

A pool is what a tag of instances names, or an operator has described. Idle is an instance that runs and has
no running job. Costs are instances x price x time since the audit before, at most two intervals: nobody knows
what was there in a longer silence, and the first audit has no time at all. A price that is not listed makes
the cost unknown, never zero.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from airunner.fleet.records import InstanceState, PoolAudit
from airunner.fleet.running_instances import busy_instances
from airunner.telemetry import fleet_metrics
from airunner.telemetry.logs import get_logger, log_together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.fleet.ports import FleetRecords, Instances, Prices, RunningJobs
    from airunner.fleet.records import Instance
    from airunner.fleet.task_run import TaskRun
    from airunner.telemetry.instruments import Gauge

_log = get_logger("airunner.fleet")

INTERVAL_MS: Final = 3_600_000
_STATES: Final = frozenset(
    {InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED}
)
_STOPPED: Final = frozenset({InstanceState.STOPPING, InstanceState.STOPPED})
_MAX_LABELS: Final = 100


class PoolAudits:
    """Implements HousekeepingTask."""

    def __init__(
        self, instances: Instances, records: FleetRecords, jobs: RunningJobs, prices: Prices
    ) -> None:
        self._instances = instances
        self._records = records
        self._jobs = jobs
        self._prices = prices

    async def run(self, run: TaskRun) -> None:
        """Audit all pools, keep what was found, and show it as metrics and in the log."""
        pools = await self._pools(run)
        busy = await busy_instances(self._jobs, run)
        seconds = await self._seconds(run)
        audits = [self._audit(run, pool, pools[pool], busy, seconds) for pool in sorted(pools)]
        await run.keep()
        if not run.dry_run:
            await self._records.put_audits(audits)
            _show(audits)
        _report(run, audits)

    async def _pools(self, run: TaskRun) -> Mapping[str, list[Instance]]:
        pools: defaultdict[str, list[Instance]] = defaultdict(list)
        for pool in await self._records.list_pools():
            pools[pool.name] = []
        async for page in self._instances.managed(_STATES):
            await run.keep()
            run.listed += len(page)
            for instance in page:
                if instance.pool:
                    pools[instance.pool].append(instance)
        return pools

    async def _seconds(self, run: TaskRun) -> float:
        """Return the time that the costs are for."""
        audits = await self._records.last_audits(1)
        last = max((audit.audited_at for audit in audits[0]), default=0) if audits else 0
        return min(max(0, run.now - last), 2 * INTERVAL_MS) / 1000 if last else 0.0

    def _audit(
        self,
        run: TaskRun,
        pool: str,
        instances: Sequence[Instance],
        busy: Mapping[str, str],
        seconds: float,
    ) -> PoolAudit:
        running = [instance for instance in instances if instance.state not in _STOPPED]
        idle = [instance for instance in running if instance.instance_id not in busy]
        return PoolAudit(
            pool=pool,
            audited_at=run.now,
            running=len(running),
            stopped=len(instances) - len(running),
            idle=len(idle),
            seconds=seconds,
            compute_cost_usd=self._cost(running, seconds),
            idle_cost_usd=self._cost(idle, seconds),
        )

    def _cost(self, instances: Sequence[Instance], seconds: float) -> float | None:
        if not seconds:
            return None
        total = 0.0
        for instance in instances:
            price = self._prices.hourly_usd(instance.instance_type)
            if price is None:
                return None
            total += price * seconds / 3600
        return total


def _show(audits: Sequence[PoolAudit]) -> None:
    """Show the audits as metrics; what is not known, and the use of nothing, is not shown."""
    shown = audits[:_MAX_LABELS]
    _set(fleet_metrics.pool_idle_cost, {audit.pool: audit.idle_cost_usd for audit in shown})
    _set(fleet_metrics.pool_compute_cost, {audit.pool: audit.compute_cost_usd for audit in shown})
    _set(fleet_metrics.pool_utilisation, {audit.pool: audit.utilisation_percent for audit in shown})


def _report(run: TaskRun, audits: Sequence[PoolAudit]) -> None:
    """Log a line for each pool, as many as metrics show. No log line ends a run."""
    lines = [(logging.INFO, "housekeeping.pool", _fields(run, audit)) for audit in audits[:_MAX_LABELS]]
    if left_out := len(audits) - len(lines):
        lines.append((logging.WARNING, "housekeeping.pools_left_out", {"pools": left_out}))
    log_together(_log, lines)


def _fields(run: TaskRun, audit: PoolAudit) -> dict[str, object]:
    """Return what a line says of a pool; what is not known is null, as in a report."""
    return {**asdict(audit), "utilisation_percent": audit.utilisation_percent, "dry_run": run.dry_run}


def _set(gauge: Gauge, values: Mapping[str, float | None]) -> None:
    gauge.show({(pool,): value for pool, value in values.items() if value is not None})
