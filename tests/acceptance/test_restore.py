"""`airunner backup` and `airunner restore` around real servers and workers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from airunner.domain.event import Output
from airunner.domain.job import Job, JobParams, JobState
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack, running_stack

# It ends when it is told to, so that it surely runs while the copy is made and put back.
SCRIPT = 'echo begun; while [ ! -e "$1" ]; do sleep 0.05; done; echo done'


async def test_a_job_that_ran_at_the_backup_is_finished_by_its_worker_after_the_restore(
    tmp_path: Path,
) -> None:
    go, backup = tmp_path / "go", tmp_path / "monday.db"
    async with running_stack(tmp_path) as stack:
        await stack.start_server()
        await stack.start_worker("holder")
        async with stack.client() as client:
            params = JobParams(command="sh", args=("-c", SCRIPT, "sh", str(go)))
            job_id = (await client.enqueue(params)).job_id
            await until(lambda: _has_begun(stack), limit_seconds=LIMIT_SECONDS)
            assert await _run(stack, "backup", str(backup)) == 0
            assert await _run(stack, "restore", str(backup), "--force") == 1, "the server lives"
            await stack.kill_server()
            shutil.rmtree(stack.data_dir)
            assert await _run(stack, "restore", str(backup), "--json") == 0
            await stack.start_server()
            go.touch()
            job = await client.wait_for_end(job_id, timeout_seconds=LIMIT_SECONDS)
            events = [event async for event in client.monitor(job_id)]
    assert _how_it_ended(job) == (JobState.COMPLETED, 1, 0)
    lines = [event.data.output for event in events if isinstance(event.data, Output)]
    assert lines == [b"begun\n", b"done\n"]
    printed = (tmp_path / "restore.log").read_text()
    assert "another server uses" in printed
    [restored] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert (restored["path"], restored["token_key"]) == (str(stack.database), True)


def _has_begun(stack: Stack) -> bool:
    """Return whether what the job printed is stored, in the file or in its log."""
    return any(b"begun\n" in path.read_bytes() for path in stack.data_dir.glob("airunner.db*"))


async def _run(stack: Stack, command: str, *options: str) -> int:
    log = stack.folder / f"{command}.log"
    process = RunningProcess(command, *options, "--data-dir", str(stack.data_dir), log=log)
    try:
        return await process.ended()
    finally:
        process.abandon()


def _how_it_ended(job: Job) -> tuple[JobState, int, int]:
    assert job.result
    return job.state, job.attempt, job.result.exit_code
