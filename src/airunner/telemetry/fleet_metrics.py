"""What the processors of a fleet measure. docs/operations.md says what each number means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.telemetry.instruments import LONG_SECONDS, Counter, ExactHistogram, ForeignName, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.telemetry.instruments import Instrument

job_duration = ExactHistogram(
    "airunner.fleet.job_duration",
    "How long attempts ran on instances, as their runners report it",
    LONG_SECONDS,
    "status",
    unit="s",
)
job_successes = Counter("airunner.fleet.job_success", "Attempts on instances that succeeded")
job_failures = Counter("airunner.fleet.job_failure", "Attempts on instances that did not", "error")
orphans_terminated = Counter(
    "airunner.fleet.orphaned_instances_terminated", "Instances that were terminated since nobody used them"
)
parameters_deleted = Counter(
    "airunner.fleet.ssm_parameters_deleted", "Parameters that were deleted after their instance"
)
jobs_archived = Counter("airunner.fleet.job_records_archived", "Old jobs that housekeeping purged")
pool_idle_cost = Gauge(
    "airunner.fleet.pool_idle_cost", "What the idle instances cost since the audit before, in USD", "pool"
)
pool_compute_cost = Gauge(
    "airunner.fleet.pool_compute_cost",
    "What the running instances cost since the audit before, in USD",
    "pool",
)
pool_utilisation = Gauge(
    "airunner.fleet.pool_utilization", "Percentage of the running instances that have a job", "pool"
)
unknown_fields = Counter(
    "airunner.fleet.unknown_fields", "Fields of messages that mean nothing to this version", "queue"
)

FLEET_METRICS: Final[tuple[Instrument, ...]] = (
    job_duration,
    job_successes,
    job_failures,
    orphans_terminated,
    parameters_deleted,
    jobs_archived,
    pool_idle_cost,
    pool_compute_cost,
    pool_utilisation,
    unknown_fields,
)

CLOUDWATCH_NAMES: Final[Mapping[Instrument, ForeignName]] = {
    job_duration: ForeignName("JobDuration", "Seconds", ("Status",)),
    job_successes: ForeignName("JobSuccess", "Count"),
    job_failures: ForeignName("JobFailure", "Count", ("Error",)),
    orphans_terminated: ForeignName("OrphanedInstancesTerminated", "Count"),
    parameters_deleted: ForeignName("SSMParametersDeleted", "Count"),
    jobs_archived: ForeignName("JobRecordsArchived", "Count"),
    pool_idle_cost: ForeignName("PoolIdleCost", "None", ("PoolName",)),
    pool_compute_cost: ForeignName("PoolComputeCost", "None", ("PoolName",)),
    pool_utilisation: ForeignName("PoolUtilization", "Percent", ("PoolName",)),
}
"""What CloudWatch is told of, under these names."""
