"""Headers, envelopes and bodies that no HTTP client would send: the server is never at a loss."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airunner.client import Client
from airunner.domain.job import JobParams, JobState
from tests.integration.raw_requests import RawMischief, is_at_a_loss, send_raw
from tests.support.processes import Stack
from tests.support.scraping import health

THREADS = 4


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("target"))
    try:
        asyncio.run(stack.start_server())
        yield stack
    finally:
        stack.close()


@pytest.mark.parametrize(
    "requests",
    [
        500,
        pytest.param(4000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_nothing_that_is_sent_makes_the_server_fail(stack: Stack, requests: int) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")  # noqa: T201  pytest shows it with a failure
    with Client(stack.url) as client:
        jobs = [client.enqueue(JobParams(command="true"), queue="fuzz").job_id for _ in range(20)]
        tokens = [held.task_token for held in client.dequeue("fuzz", max_jobs=20)]

    def send(number: int) -> list[tuple[bytes, bytes]]:
        mischief = RawMischief(random.Random(seed + number), jobs, tokens)
        sent = [mischief.request() for _ in range(requests // THREADS)]
        return [(request, send_raw(stack.port, request)) for request in sent]

    with ThreadPoolExecutor(THREADS) as threads:
        answers = [answer for part in threads.map(send, range(THREADS)) for answer in part]

    assert [pair for pair in answers if is_at_a_loss(pair[1])] == []
    # Not all of it was turned away at the door.
    statuses = {answer.split(b" ", 2)[1] for _, answer in answers if answer}
    assert statuses >= {b"200", b"400", b"404", b"415"}
    assert_unharmed(stack)


def assert_unharmed(stack: Stack) -> None:
    assert health(stack.url)["status"] == "ok"
    assert stack.server
    for word in ("Traceback", "rpc.failed"):
        assert word not in stack.server.printed()
    asyncio.run(stack.start_worker("honest", "--queue", "honest"))
    with Client(stack.url) as client:
        assert client.run("echo", "still here", queue="honest").state is JobState.COMPLETED
