"""A disk without room gives errors, not corruption."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from airunner.client import AsyncClient
from airunner.domain.errors import Unavailable
from airunner.domain.job import JobParams, JobState
from airunner.domain.retry import RetryPolicy
from tests.support.processes import RunningProcess, Stack, integrity

MEBIBYTE = 1024 * 1024
# A folder of its own for one process, with little room; it is gone with the process.
TINY_DISK = 'mount -t tmpfs -o size=2m none "$1" && shift && exec "$@"'


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    """A client that does not ask twice."""
    async with AsyncClient(stack.url, retry=RetryPolicy(attempts=1)) as quick_client:
        yield quick_client


async def test_files_that_may_not_grow(stack: Stack, client: AsyncClient) -> None:
    server = await stack.start_server()
    limit_file_size(server, MEBIBYTE)
    accepted = await enqueue_until_refused(client)
    await check_reading(stack, client, accepted)

    limit_file_size(server, resource.RLIM_INFINITY)
    accepted.append((await client.enqueue(JobParams(command="true"))).job_id)
    limit_file_size(server, MEBIBYTE)
    accepted += await enqueue_until_refused(client)
    await stack.kill_server()

    await check_restart(stack, accepted)


async def test_a_server_stops_in_good_order_on_a_full_disk(stack: Stack, client: AsyncClient) -> None:
    server = await stack.start_server()
    limit_file_size(server, MEBIBYTE)
    accepted = await enqueue_until_refused(client)

    server.send(signal.SIGTERM)

    assert await server.ended(limit_seconds=10) == 0
    await check_restart(stack, accepted)


async def test_dequeues_that_wait_while_the_disk_is_full_leave_no_ghosts(
    stack: Stack, client: AsyncClient
) -> None:
    server = await stack.start_server()
    limit_file_size(server, MEBIBYTE)
    await enqueue_until_refused(client)
    waiting = [asyncio.create_task(client.dequeue("ghosts", wait_seconds=1, max_jobs=100)) for _ in range(10)]
    # Writes that fail share their commits with the ends of these waits.
    await asyncio.gather(*(enqueue_until(client, waiting) for _ in range(6)))
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(end == [] or isinstance(end, Unavailable) for end in ends)

    limit_file_size(server, resource.RLIM_INFINITY)
    jobs = [(await client.enqueue(JobParams(command="true"), queue="ghosts")).job_id for _ in range(20)]

    assert {(await client.get_job(job_id)).state for job_id in jobs} == {JobState.SCHEDULED}
    taken = await client.dequeue("ghosts", wait_seconds=0, max_jobs=100)
    assert len(taken) == len(jobs)


async def test_a_disk_that_is_full(stack: Stack, client: AsyncClient) -> None:
    stack.data_dir.mkdir()
    through = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", TINY_DISK, "sh")
    if subprocess.run([*through, stack.data_dir, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    server = await stack.start_server(through=(*through, str(stack.data_dir)))
    accepted = await enqueue_until_refused(client)
    await check_reading(stack, client, accepted)

    server.send(signal.SIGSTOP)
    inside = Path(f"/proc/{server.pid}/root") / stack.data_dir.relative_to("/")
    shutil.copytree(inside, stack.folder / "rescued")
    await stack.kill_server()
    shutil.copytree(stack.folder / "rescued", stack.data_dir, dirs_exist_ok=True)

    await check_restart(stack, accepted)


def limit_file_size(server: RunningProcess, limit: int) -> None:
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


async def enqueue_until_refused(client: AsyncClient) -> list[str]:
    """Return the jobs that were accepted before the first of several refusals."""
    accepted: list[str] = []
    refusals: list[str] = []
    params = JobParams(command="true", metadata={"filling": "x" * 20_000})
    while len(refusals) < 3 and len(accepted) < 1000:
        try:
            accepted.append((await client.enqueue(params)).job_id)
        except Unavailable as error:
            refusals.append(error.text)
    assert refusals == ["the store cannot write now"] * 3
    return accepted


async def enqueue_until(client: AsyncClient, waiting: Sequence[asyncio.Task[object]]) -> None:
    """Ask for what cannot be written, again and again, until all others are done."""
    params = JobParams(command="true", metadata={"filling": "x" * 20_000})
    while not all(task.done() for task in waiting):
        with suppress(Unavailable):
            await client.enqueue(params)


async def check_reading(stack: Stack, client: AsyncClient, accepted: list[str]) -> None:
    assert stack.server
    assert stack.server.exit_code is None
    assert accepted
    for job_id in accepted:
        assert (await client.get_job(job_id)).job_id == job_id
    for page in ("healthz", "metrics"):
        with urlopen(f"{stack.url}/{page}") as answer:  # noqa: S310  our own server
            assert answer.status == 200
    with pytest.raises(HTTPError) as unready:
        urlopen(f"{stack.url}/readyz")  # noqa: S310  same
    with unready.value as answer:
        assert (answer.code, b"could not write" in answer.read()) == (503, True)


async def check_restart(stack: Stack, accepted: list[str]) -> None:
    """Everything is there, and everything can be written again."""
    await stack.start_server()
    async with stack.client() as client:
        accepted.append((await client.enqueue(JobParams(command="true"))).job_id)
        for job_id in accepted:
            assert (await client.get_job(job_id)).job_id == job_id
    await stack.kill_server()
    assert integrity(stack.database) == "ok"
