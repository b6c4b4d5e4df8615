"""A server that comes back with another key for its task tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, running_stack, until_gone

pytestmark = pytest.mark.slow

SETTINGS = {"AIRUNNER_WORKER__REFUSED_TOKEN_SECONDS": "2"}


async def test_a_worker_lets_go_of_what_a_server_without_its_key_refuses(tmp_path: Path) -> None:
    async with running_stack(tmp_path, SETTINGS) as stack:
        await stack.start_server()
        worker = await stack.start_worker("patient")
        async with stack.client() as client:
            pid_file = tmp_path / "pid"
            script = f"echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; yes"
            enqueued = await client.enqueue(JobParams(command="sh", args=("-c", script)), max_attempts=1)
            await until(pid_file.exists, limit_seconds=LIMIT_SECONDS)
            pid = int(pid_file.read_text())

            await stack.kill_server()
            (stack.data_dir / "token.key").unlink()
            await stack.start_server()
            await until_gone(pid)
            following = await client.enqueue(JobParams(command="true"))
            job = await client.wait_for_end(following.job_id)

            assert (job.state, job.life.worker_id) == (JobState.COMPLETED, "patient")
            assert worker.exit_code is None
            assert "events.dropped" in worker.printed()
            assert (await client.get_job(enqueued.job_id)).state is JobState.RUNNING
