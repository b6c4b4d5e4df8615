"""Client: the same methods from programs without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from airunner.client import AsyncClient, Client, CompleteRequest, StreamRequest
from airunner.domain.errors import InvalidArgument, NotFound
from airunner.domain.job import JobParams, JobState
from airunner.services.composition import Services
from airunner.testing.factories import make_batch, make_end, make_success
from tests.support.serving import serve_in_thread

QUEUE = "builds"
MAKE = JobParams(command="make")
# Leaves an iterator and a client open when it ends.
CARELESS = """
import sys
from airunner import Client
client = Client(sys.argv[1])
events = client.monitor(sys.argv[2])
print(next(events).sequence)
"""


@pytest.fixture
def server() -> Iterator[tuple[str, Services]]:
    with serve_in_thread() as server:
        yield server


@pytest.fixture
def client(server: tuple[str, Services]) -> Iterator[Client]:
    with Client(server[0]) as client:
        yield client


def wait_until_still(done: threading.Event, client: Client, worker_id: str) -> None:
    while not any(worker.worker_id == worker_id for worker in client.list_workers()):
        assert not done.is_set()


def test_every_method_of_the_async_client_is_there() -> None:
    own = {"aclose", "stream_output"}
    wanted = {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if name[0] != "_"}
    assert wanted - own <= set(dir(Client))


def test_the_whole_life_of_a_job(client: Client) -> None:
    made = client.enqueue(MAKE, queue=QUEUE)
    (held,) = client.dequeue(QUEUE)
    client.publish_events(held.task_token, [make_batch(1, 50), make_batch(51, 99)])
    result = make_success(final_sequence=100)
    done = CompleteRequest(task_token=held.task_token, result=result, events=[make_end(100)])
    assert client.complete(done) is JobState.COMPLETED
    assert client.wait_for_end(made.job_id).state is JobState.COMPLETED
    assert [event.sequence for event in client.monitor(made.job_id)] == list(range(1, 101))
    request = StreamRequest(job_id=made.job_id, from_sequence=60)
    assert [event.sequence for event in client.stream_events(request)] == list(range(60, 101))
    batches = list(client.stream_batches(made.job_id, from_sequence=60))
    assert [(batch.first_sequence, batch.last_sequence) for batch in batches] == [(51, 99), (100, 100)]
    assert [len(events) for events in client.monitor_batches(request)] == [40, 1]


def test_errors_are_raised_to_the_caller(client: Client) -> None:
    with pytest.raises(NotFound):
        client.get_job("0" * 32)
    with pytest.raises(NotFound):
        next(client.monitor("0" * 32))
    with pytest.raises(InvalidArgument):
        Client("nowhere")


def test_an_iterator_that_is_closed_lets_go_of_its_stream(
    server: tuple[str, Services], client: Client
) -> None:
    made = client.enqueue(MAKE, queue=QUEUE)
    (held,) = client.dequeue(QUEUE)
    client.publish_events(held.task_token, [make_batch(1, 50)])
    with (
        closing(client.monitor(made.job_id)) as events,
        closing(client.stream_batches(made.job_id)) as batches,
    ):
        assert next(events).sequence == next(batches).first_sequence == 1
        assert server[1].watchers.streams == 2
    # The answer to a later call comes after the server has seen the end of the stream, or soon after.
    while server[1].watchers.streams:
        client.list_queues()


def test_what_is_fetched_ahead_is_given_up_with_its_iterator(client: Client) -> None:
    job_id = client.enqueue(MAKE, queue=QUEUE).job_id
    (held,) = client.dequeue(QUEUE)
    client.publish_events(held.task_token, [make_batch(first, first + 49) for first in range(1, 5000, 50)])
    with closing(client.monitor(job_id)) as events:
        assert [next(events).sequence for _ in range(120)] == list(range(1, 121))
        assert asyncio.all_tasks(client.loop_thread._loop)
    assert not asyncio.all_tasks(client.loop_thread._loop)


def test_many_threads_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: client.enqueue(MAKE, queue=QUEUE), range(40)))
    assert len({job.job_id for job in made}) == 40


def test_a_call_in_another_thread_ends_when_the_client_is_closed(server: tuple[str, Services]) -> None:
    client = Client(server[0])
    done = threading.Event()
    failures: list[BaseException] = []

    def wait_for_a_job() -> None:
        try:
            client.dequeue(QUEUE, wait_seconds=20, worker_id="waiting")
        except Exception as error:  # noqa: BLE001  looked at below
            failures.append(error)
        done.set()

    threading.Thread(target=wait_for_a_job).start()
    with Client(server[0]) as other:
        wait_until_still(done, other, "waiting")
    client.close()
    client.close()
    assert done.wait(10)
    assert len(failures) == 1
    with pytest.raises(RuntimeError, match="closed"):
        client.list_queues()


def test_an_interrupt_cancels_the_call_and_leaves_the_client_usable(
    server: tuple[str, Services], client: Client
) -> None:
    done = threading.Event()

    def interrupt() -> None:
        with Client(server[0]) as other:
            wait_until_still(done, other, "interrupted")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            client.dequeue(QUEUE, wait_seconds=20, worker_id="interrupted")
    finally:
        done.set()
        signal.signal(signal.SIGINT, before)
    made = client.enqueue(MAKE, queue=QUEUE)
    (held,) = client.dequeue(QUEUE)
    assert held.job.job_id == made.job_id


def test_an_interrupted_iterator_can_be_closed(server: tuple[str, Services], client: Client) -> None:
    made = client.enqueue(MAKE, queue=QUEUE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watchers = server[1].watchers

    def interrupt() -> None:
        with Client(server[0]) as other:
            while not watchers.streams:
                other.list_queues()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with closing(client.monitor(made.job_id)) as events, pytest.raises(KeyboardInterrupt):
            next(events)
    finally:
        signal.signal(signal.SIGINT, before)
    while watchers.streams:
        client.list_queues()


def test_a_program_that_closes_nothing_still_ends(server: tuple[str, Services], client: Client) -> None:
    made = client.enqueue(MAKE, queue=QUEUE)
    (held,) = client.dequeue(QUEUE)
    client.publish_events(held.task_token, [make_batch(1, 50)])
    ended = subprocess.run(
        [sys.executable, "-c", CARELESS, server[0], made.job_id],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
