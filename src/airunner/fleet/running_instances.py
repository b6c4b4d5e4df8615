"""Which instances have a job that runs: one complete walk, for all who want to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airunner.fleet.ports import RunningJobs
    from airunner.fleet.task_run import TaskRun


async def busy_instances(jobs: RunningJobs, run: TaskRun) -> dict[str, str]:
    """Return a running job of each instance that has any. An error means that nobody knows."""
    page = await jobs.running_jobs()
    busy = {job.instance_id: job.job_id for job in page.jobs if job.instance_id}
    while page.next_cursor:
        await run.keep()
        page = await jobs.running_jobs(page.next_cursor)
        busy |= {job.instance_id: job.job_id for job in page.jobs if job.instance_id}
    return busy
