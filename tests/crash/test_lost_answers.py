"""Dequeues whose answer reaches nobody, at a real server: the job comes back soon, and no try is gone."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from contextlib import closing

from airunner.domain.answers import DequeuedJob
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import DequeueRequest
from tests.support.processes import LIMIT_SECONDS, Stack

VISIBILITY_SECONDS = 300
LEASE_SECONDS = 1


def ask_for_a_job(port: int) -> socket.socket:
    """Send a dequeue that waits, and leave its answer unread."""
    request = {
        "queue": "builds",
        "waitSeconds": 20,
        "visibilityTimeoutSeconds": VISIBILITY_SECONDS,
        "firstLeaseSeconds": LEASE_SECONDS,
    }
    body = json.dumps(request).encode()
    head = f"POST /job.v1.JobService/DequeueJobs HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(head.encode() + body)
    return connection


def reset(connection: socket.socket) -> None:
    """Close a connection so that its other end gets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def test_a_reset_right_after_the_claim_costs_no_try_and_not_the_whole_visibility(stack: Stack) -> None:
    await stack.start_server()
    async with stack.client() as client, asyncio.timeout(LIMIT_SECONDS):
        with closing(ask_for_a_job(stack.port)) as connection:
            job_id = (await client.enqueue(JobParams(command="true"), queue="builds", max_attempts=1)).job_id
            while (await client.get_job(job_id)).state is not JobState.RUNNING:
                pass
            reset(connection)
        # Held for its whole visibility, it would outlast the limit of this test.
        taken: Sequence[DequeuedJob] = ()
        while not taken:
            taken = await client.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=20))
        (again,) = taken
        assert (again.job.job_id, again.job.attempt, again.job.life.handed_back) == (job_id, 2, 1)
        assert (await client.get_job(job_id)).state is JobState.RUNNING
