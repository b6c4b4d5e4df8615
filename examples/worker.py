"""A worker in plain Python, on nothing but the client: dequeue a job, do it, report it, take the next one.

    python examples/worker.py [QUEUE]

`airunner worker` does all this and more; here is what happens beneath.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Sequence
from contextlib import suppress

from airunner import (
    Abilities,
    AsyncClient,
    Batcher,
    CompleteRequest,
    DequeuedJob,
    Event,
    JobResult,
    Outcome,
    ProcessEnd,
    ProcessStart,
    StreamType,
    UpdateRequest,
)

SERVER = os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080")
# Jobs of Python handlers are left to workers that have these.
COMMANDS = Abilities(commands=True)


async def main(queue: str) -> None:
    """Do the jobs of a queue, one after the other, until interrupted."""
    async with AsyncClient(SERVER) as client:
        while True:
            for dequeued in await client.dequeue(queue, wait_seconds=20, abilities=COMMANDS):
                heartbeat = asyncio.create_task(keep_alive(client, dequeued))
                try:
                    await do(client, dequeued)
                finally:
                    heartbeat.cancel()


async def do(client: AsyncClient, dequeued: DequeuedJob) -> None:
    """Run the command, publish its lines as they come, and complete the job with the last of them."""
    batcher = Batcher(dequeued.job.execution.batching)
    try:
        pid, exit_code, duration = await run(client, dequeued, batcher)
    except OSError:  # there is no such command
        pid, exit_code, duration = 0, 127, 0
    end = ProcessEnd(pid=pid, exit_code=exit_code, run_duration_ms=duration)
    events = [event for flush in batcher.add(end, now_ms()) for event in flush.events]
    result = JobResult(
        success=exit_code == 0,
        outcome=Outcome.SUCCESS if exit_code == 0 else Outcome.FAILURE,
        exit_code=exit_code,
        final_sequence=batcher.next_sequence - 1,
    )
    await client.complete(CompleteRequest(task_token=dequeued.task_token, result=result, events=events))


async def run(client: AsyncClient, dequeued: DequeuedJob, batcher: Batcher) -> tuple[int, int, int]:
    """Run the command and publish what it prints; return its process id, exit code and duration."""
    params = dequeued.job.params
    process = await asyncio.create_subprocess_exec(params.command, *params.args, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None
    started_at = now_ms()
    flushes = batcher.add(ProcessStart(pid=process.pid, started_at=started_at), started_at)
    reading = asyncio.create_task(process.stdout.readline())
    while True:
        await publish(client, dequeued, batcher, [flush.events for flush in flushes])
        # Whichever comes first: another line, or the time at which the batcher wants no more of them.
        due_at = batcher.due_at
        await asyncio.wait({reading}, timeout=None if due_at is None else max(0, due_at - now_ms()) / 1000)
        if not reading.done():
            flushes = batcher.tick(now_ms())
        elif line := reading.result():
            flushes = batcher.add_output([line], StreamType.STDOUT, now_ms())
            reading = asyncio.create_task(process.stdout.readline())
        else:
            break
    return process.pid, await process.wait(), now_ms() - started_at


async def publish(
    client: AsyncClient, dequeued: DequeuedJob, batcher: Batcher, batches: Sequence[Sequence[Event]]
) -> None:
    """Publish batches in their order. While somebody watches the job, the next lines go at once."""
    for events in batches:
        answer = await client.publish_events(dequeued.task_token, events)
        batcher.watched = answer.watched


def now_ms() -> int:
    """Return the time as events have it: in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def keep_alive(client: AsyncClient, dequeued: DequeuedJob) -> None:
    """Extend the visibility of the job as often as the server asks for."""
    while True:
        await asyncio.sleep(dequeued.job.execution.heartbeat_interval_seconds)
        await client.update_job(UpdateRequest(queue=dequeued.job.queue, task_token=dequeued.task_token))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "default"))
