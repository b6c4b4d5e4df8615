"""Servers on AWS are upgraded one after the other: one of the release before works beside one of today."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from airunner.client import AsyncClient
from airunner.domain.answers import DequeuedJob
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.reading.proof import LogProof, VerdictKind, final_position
from airunner.services.composition import Services
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import make_batch, make_request, make_success
from tests.crash.replica_processes import ReplicaStack, running_replicas
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.processes import LIMIT_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
# The last that knows neither `meta#` nor the other forms of rows.
OLDER_COMMIT = "8b326b0"
OLDER, NEWER = 0, 1
QUEUE = "default"
LARGE = "x" * 6_000


@pytest.fixture
def older_source(tmp_path: Path) -> Path:
    """The code of the release before, from the history of this repository."""
    exported = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", OLDER_COMMIT, "src"],
        capture_output=True,
        check=False,
    )
    if exported.returncode:
        pytest.skip(f"the older server is commit {OLDER_COMMIT}, which this copy's git history does not have")
    with tarfile.open(fileobj=io.BytesIO(exported.stdout)) as archive:
        archive.extractall(tmp_path / "older", filter="data")
    return tmp_path / "older" / "src"


@pytest.fixture
async def replicas(
    tmp_path: Path, older_source: Path, emulator: EmulatorProcess, aws_env: str
) -> AsyncIterator[ReplicaStack]:
    through = ("env", f"PYTHONPATH={older_source}")
    check = [*through, sys.executable, "-c", "import airunner; print(airunner.__file__)"]
    found = subprocess.run(check, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(older_source))
    async with running_replicas(tmp_path, emulator.url, aws_env, through={OLDER: through}) as running:
        yield running


@pytest.fixture
async def servers(replicas: ReplicaStack) -> AsyncIterator[list[Api]]:
    """The older and the newer one, each with its own client."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(AsyncClient(url, timeout_seconds=LIMIT_SECONDS))
            for url in replicas.urls
        ]
        # Their services are in other processes.
        services = cast("Services", None)
        yield [Api(jobs=client, events=client, clock=ManualClock(), services=services) for client in clients]


async def test_servers_of_two_versions_do_each_others_work(
    servers: list[Api], replicas: ReplicaStack
) -> None:
    for first, second in (servers, servers[::-1]):
        await lives_across(first, second, JobParams(command="make"))
        await lives_across(first, second, JobParams(command="make", args=(LARGE,)))
        await is_released_and_cancelled_across(first, second)
        await is_paused_across(first, second)
    await is_watched_while_both_are_replaced(replicas)


async def lives_across(first: Api, second: Api, params: JobParams) -> None:
    """Enqueue, claim, publish, heartbeat and complete at one and the other; both tell the same."""
    request = make_request(QUEUE, params=params)
    job_id = await first.enqueue(request)
    assert await second.enqueue(request) == job_id
    held = await claimed(second)
    assert (held.job.job_id, held.job.params) == (job_id, params)
    await first.publish(held, make_batch(1, 3))
    await second.publish(held, make_batch(4, 6))
    await first.beat(held, 120)
    await second.publish(held, make_batch(7, 9))
    result = make_success(final_sequence=9, output_json=f'{{"text":"{LARGE}"}}')
    assert await first.complete(held, result) is JobState.COMPLETED
    assert await second.complete(held, result) is JobState.COMPLETED
    seen = [await server.jobs.get_job(job_id) for server in (first, second)]
    assert seen[0] == seen[1]
    assert (seen[0].state, seen[0].attempt, seen[0].params) == (JobState.COMPLETED, 1, params)
    assert seen[0].result
    assert seen[0].result.output_json == result.output_json
    read = [await server.read(StreamRequest(job_id=job_id)) for server in (first, second)]
    assert read[0] == read[1]
    assert len(read[0]) == 9
    for server in (first, second):
        page = await server.jobs.list_jobs(JobQuery(queue=QUEUE, state=JobState.COMPLETED))
        assert job_id in [job.job_id for job in page.jobs]


async def is_released_and_cancelled_across(first: Api, second: Api) -> None:
    job_id = await first.enqueue(make_request(QUEUE))
    held = await claimed(first)
    await second.release(held)
    again = await claimed(second)
    assert (again.job.job_id, again.job.attempt) == (job_id, 2)
    await first.jobs.cancel_job(job_id)
    assert (await second.beat(again)).cancel_requested
    assert await first.release(again) is JobState.CANCELLED
    assert (await second.jobs.get_job(job_id)).state is JobState.CANCELLED


async def is_paused_across(first: Api, second: Api) -> None:
    await first.jobs.set_paused(QUEUE, paused=True)
    assert [(queue.name, queue.paused) for queue in await second.jobs.list_queues()] == [(QUEUE, True)]
    await second.jobs.set_paused(QUEUE, paused=False)
    assert [(queue.name, queue.paused) for queue in await first.jobs.list_queues()] == [(QUEUE, False)]


async def is_watched_while_both_are_replaced(replicas: ReplicaStack) -> None:
    """Replace the older by the newer and the newer by the older, while somebody watches a job."""
    await replicas.start_worker("worker")
    enough = replicas.folder / "enough"
    script = f"until test -e {enough}; do echo line; sleep 0.2; done; echo last"
    async with replicas.client() as client:
        job_id = (await client.enqueue(JobParams(command="sh", args=("-c", script)))).job_id
        watching, proof = client.monitor(job_id), LogProof()
        proof.see(await anext(watching))
        older = replicas.through.pop(OLDER)
        await replicas.stop_replica(OLDER)
        await replicas.start_replica(OLDER)
        replicas.through[NEWER] = older
        await replicas.stop_replica(NEWER)
        await replicas.start_replica(NEWER)
        enough.touch()
        async for event in watching:
            proof.see(event)
        job = await client.wait_for_end(job_id, timeout_seconds=LIMIT_SECONDS)
    assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
    assert proof.verdict(final_position(job, StreamRequest(job_id=job_id))).kind is VerdictKind.COMPLETE


async def claimed(server: Api) -> DequeuedJob:
    (held,) = await server.dequeue(QUEUE, wait_seconds=10, visibility_seconds=60)
    return held
