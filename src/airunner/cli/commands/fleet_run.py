"""`airunner fleet run`: a task of housekeeping, here and now."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.fleet_text import print_run, run_to_json
from airunner.cli.options import AsJson, ConfigFile, load
from airunner.cli.printing import print_json, say
from airunner.domain.fleet import RunOutcome, TaskType

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(
    task: Annotated[str, Parameter(help="orphaned_instances, stale_ssm, old_jobs or pool_audit.")],
    /,
    *,
    dry_run: Annotated[bool, Parameter(help="Print what would be done, and change nothing.")] = False,
    limit: Annotated[int, Parameter(help="Maximum number of changes. Default: the task's limit")] = 0,
    force: Annotated[
        bool, Parameter(help="Run even if more than a quarter of what is listed would be removed.")
    ] = False,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> int:
    """Run a housekeeping task in this process, with your permissions, and print what was done and why.

    The run is recorded like any other. If another process runs the task, this command names it and exits.
    """
    from airunner import telemetry
    from airunner.app import run_fleet_task
    from airunner.domain.errors import InvalidArgument
    from airunner.services.fleet import MAX_CHANGES

    names = [known.value for known in TaskType]
    if task not in names:
        raise InvalidArgument(f"there is no task {task!r}; the tasks are {', '.join(names)}")
    if not 0 <= limit <= MAX_CHANGES:
        raise InvalidArgument(f"--limit must be from 0 to {MAX_CHANGES}")
    settings = load(config_file, {}).settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    with _sent_metrics():
        wished = run_fleet_task(settings, TaskType(task), dry_run=dry_run, limit=limit, force=force)
        done = asyncio.run(wished)
    if as_json:
        print_json("housekeeping_run", run_to_json(done))
    else:
        print_run(done)
    if done.outcome is not RunOutcome.DONE:
        say(f"{done.outcome.value}: {done.text}")
        return ExitCode.FAILED
    return ExitCode.OK


@contextmanager
def _sent_metrics() -> Iterator[None]:
    """Send what was counted by OTLP at the end, in 5 s at most, where the environment names a receiver."""
    from airunner import telemetry
    from airunner.cli.metrics import collected_metrics
    from airunner.config import process_environment
    from airunner.telemetry.fleet_metrics import FLEET_METRICS

    with ExitStack() as stack:
        if telemetry.otlp_is_wanted(process_environment()):
            try:
                stack.enter_context(collected_metrics("airunner-fleet-run", FLEET_METRICS))
            except Exception as error:  # noqa: BLE001  whatever it is, the work does not need it
                say(f"warning: no metrics are sent: {error}")
        yield
