"""Runs and pools of a fleet to and from the messages of the wire.

What a newer server says in a word that is unknown here is left out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from airunner.codec.building import refusing
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant, set_instant
from airunner.domain.errors import InvalidArgument
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

if TYPE_CHECKING:
    from collections.abc import Sequence

E = TypeVar("E", bound=Enum)


class RunArguments(TypedDict):
    """The arguments of `run_housekeeping`."""

    task: TaskType
    dry_run: bool
    limit: int


@refusing
def list_to_pb(max_runs: int) -> pb.ListHousekeepingRunsRequest:
    """Return the message that asks for the last runs."""
    return pb.ListHousekeepingRunsRequest(max_runs=max_runs)


def list_from_pb(message: pb.ListHousekeepingRunsRequest) -> int:
    """Return how many runs are asked for."""
    return message.max_runs


@refusing
def report_request_to_pb(max_audits: int) -> pb.GetPoolReportRequest:
    """Return the message that asks for the report."""
    return pb.GetPoolReportRequest(max_audits=max_audits)


def report_request_from_pb(message: pb.GetPoolReportRequest) -> int:
    """Return how many audits are asked for."""
    return message.max_audits


@refusing
def run_to_pb(**arguments: Unpack[RunArguments]) -> pb.RunHousekeepingRequest:
    """Return the message that asks for a run."""
    return pb.RunHousekeepingRequest(
        task_type=arguments["task"].value, dry_run=arguments["dry_run"], limit=arguments["limit"]
    )


def run_from_pb(message: pb.RunHousekeepingRequest) -> RunArguments:
    """Return which run is asked for; an unknown task is refused."""
    task = _known(TaskType, message.task_type)
    if task is None:
        allowed = ", ".join(sorted(task.value for task in TaskType))
        raise InvalidArgument(f"task_type must be one of {allowed}")
    return RunArguments(task=task, dry_run=message.dry_run, limit=message.limit)


def run_answer_to_pb(slot: str) -> pb.RunHousekeepingResponse:
    """Return the answer that names the slot of a run."""
    return pb.RunHousekeepingResponse(slot=slot)


def run_answer_from_pb(message: pb.RunHousekeepingResponse) -> str:
    """Return the slot of a run."""
    return message.slot


def runs_to_pb(runs: Sequence[HousekeepingRun]) -> pb.ListHousekeepingRunsResponse:
    """Return the message of the last runs."""
    return pb.ListHousekeepingRunsResponse(runs=map(_run_to_pb, runs))


def runs_from_pb(message: pb.ListHousekeepingRunsResponse) -> list[HousekeepingRun]:
    """Return the last runs."""
    return [run for run in map(_run_from_pb, message.runs) if run]


def report_to_pb(report: PoolReport) -> pb.GetPoolReportResponse:
    """Return the message of a report."""
    return pb.GetPoolReportResponse(
        pools=map(_pool_to_pb, report.pools),
        audits=[pb.FleetAudit(pools=map(_audit_to_pb, audits)) for audits in report.audits],
    )


def report_from_pb(message: pb.GetPoolReportResponse) -> PoolReport:
    """Return a report."""
    return PoolReport(
        pools=list(map(_pool_from_pb, message.pools)),
        audits=[list(map(_audit_from_pb, audit.pools)) for audit in message.audits],
    )


def _run_to_pb(run: HousekeepingRun) -> pb.HousekeepingRun:
    message = pb.HousekeepingRun(
        slot=run.slot,
        task_type=run.task_type.value,
        outcome=run.outcome.value,
        dry_run=run.dry_run,
        text=run.text,
        listed=run.listed,
        changed=run.changed,
        actions=map(_action_to_pb, run.actions),
        actions_left_out=run.actions_left_out,
    )
    set_instant(message.started_at, run.started_at)
    set_instant(message.ended_at, run.ended_at)
    return message


def _run_from_pb(message: pb.HousekeepingRun) -> HousekeepingRun | None:
    task, outcome = _known(TaskType, message.task_type), _known(RunOutcome, message.outcome)
    if task is None or outcome is None:
        return None
    actions = tuple(action for action in map(_action_from_pb, message.actions) if action)
    return HousekeepingRun(
        slot=message.slot,
        task_type=task,
        started_at=instant(message.started_at, "started_at"),
        ended_at=instant(message.ended_at, "ended_at"),
        outcome=outcome,
        dry_run=message.dry_run,
        text=message.text,
        listed=message.listed,
        changed=message.changed,
        actions=actions,
        actions_left_out=message.actions_left_out + len(message.actions) - len(actions),
    )


def _action_to_pb(action: RecordedAction) -> pb.HousekeepingAction:
    message = pb.HousekeepingAction(
        kind=action.kind.value, target=action.target, why=action.why, seen=action.seen
    )
    set_instant(message.at, action.at)
    return message


def _action_from_pb(message: pb.HousekeepingAction) -> RecordedAction | None:
    kind = _known(ActionKind, message.kind)
    if kind is None:
        return None
    return RecordedAction(
        kind=kind,
        target=message.target,
        why=message.why,
        seen=message.seen,
        at=instant(message.at, "at"),
    )


def _pool_to_pb(pool: Pool) -> pb.Pool:
    return pb.Pool(
        name=pool.name,
        instance_type=pool.instance_type,
        desired_running=pool.desired_running,
        desired_stopped=pool.desired_stopped,
    )


def _pool_from_pb(message: pb.Pool) -> Pool:
    return Pool(
        name=message.name,
        instance_type=message.instance_type,
        desired_running=message.desired_running,
        desired_stopped=message.desired_stopped,
    )


def _audit_to_pb(audit: PoolAudit) -> pb.PoolAudit:
    message = pb.PoolAudit(
        pool=audit.pool,
        running=audit.running,
        stopped=audit.stopped,
        idle=audit.idle,
        seconds=audit.seconds,
        compute_cost_usd=audit.compute_cost_usd,
        idle_cost_usd=audit.idle_cost_usd,
    )
    set_instant(message.audited_at, audit.audited_at)
    return message


def _audit_from_pb(message: pb.PoolAudit) -> PoolAudit:
    return PoolAudit(
        pool=message.pool,
        audited_at=instant(message.audited_at, "audited_at"),
        running=message.running,
        stopped=message.stopped,
        idle=message.idle,
        seconds=message.seconds,
        compute_cost_usd=message.compute_cost_usd if message.HasField("compute_cost_usd") else None,
        idle_cost_usd=message.idle_cost_usd if message.HasField("idle_cost_usd") else None,
    )


def _known(kind: type[E], word: str) -> E | None:
    try:
        return kind(word)
    except ValueError:
        return None
