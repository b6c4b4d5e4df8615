"""A worker in plain Python, on nothing but the client: dequeue one job, do it, report it.

    python examples/worker.py [QUEUE]

`airunner worker` does all this and more; here is what happens beneath.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from airunner import (
    AsyncClient,
    Batcher,
    CompleteRequest,
    DequeuedJob,
    JobResult,
    Outcome,
    ProcessEnd,
    ProcessStart,
    StreamType,
    UpdateRequest,
)

SERVER = os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080")


async def main(queue: str) -> None:
    """Do one job of a queue."""
    async with AsyncClient(SERVER) as client:
        jobs = await client.dequeue(queue, wait_seconds=20)
        for dequeued in jobs:
            heartbeat = asyncio.create_task(keep_alive(client, dequeued))
            try:
                await do(client, dequeued)
            finally:
                heartbeat.cancel()


async def do(client: AsyncClient, dequeued: DequeuedJob) -> None:
    """Run the command, publish what it prints in batches, and complete the job with the last of them."""
    params = dequeued.job.params
    batcher = Batcher(dequeued.job.execution.batching)
    process = await asyncio.create_subprocess_exec(
        params.command, *params.args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    started_at = now_ms()
    flushes = batcher.add(ProcessStart(pid=process.pid, started_at=started_at), started_at)
    assert process.stdout is not None
    async for line in process.stdout:
        flushes += batcher.add_output([line], StreamType.STDOUT, now_ms())
        while flushes:
            await client.publish_events(dequeued.task_token, flushes.pop(0).events)
    exit_code = await process.wait()
    duration = now_ms() - started_at
    flushes = batcher.add(
        ProcessEnd(pid=process.pid, exit_code=exit_code, run_duration_ms=duration), now_ms()
    )
    result = JobResult(
        success=exit_code == 0,
        outcome=Outcome.SUCCESS if exit_code == 0 else Outcome.FAILURE,
        exit_code=exit_code,
        final_sequence=batcher.next_sequence - 1,
    )
    events = [event for flush in flushes for event in flush.events]
    await client.complete(CompleteRequest(task_token=dequeued.task_token, result=result, events=events))


def now_ms() -> int:
    """Return the time as events have it: in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def keep_alive(client: AsyncClient, dequeued: DequeuedJob) -> None:
    """Extend the visibility of the job as often as the server asks for."""
    while True:
        await asyncio.sleep(dequeued.job.execution.heartbeat_interval_seconds)
        await client.update_job(UpdateRequest(queue=dequeued.job.queue, task_token=dequeued.task_token))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "default"))
