"""The last lines of a job are found without reading all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing

import pytest

from airunner.cli.exit_codes import ExitCode
from airunner.cli.main import execute
from airunner.client import AsyncClient, ReleaseRequest, WireClient
from airunner.domain.errors import NotFound, Unavailable
from airunner.domain.event import Event, Gap, Output, StreamType
from airunner.domain.job import Job, JobParams
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import StreamRequest
from airunner.reading.log_lines import LineFilter, LogLine
from airunner.reading.log_tail import output_request, read_last_lines, read_lines
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventPage, EventQuery
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NOON, make_batch, make_line, make_services
from tests.support.processes import unused_port
from tests.support.serving import serve, serve_in_thread

ALL = LineFilter().wants
UNKNOWN = "01a1e313-3bfd-7fa3-a892-a3a1ad8b37ee"
BATCHES = [make_batch(first, first + 49) for first in range(1, 1000, 50)]


class CountingStore(MemoryStore):
    """Counts the events that were read, and how often a job was looked at beside them."""

    read = 0
    lives = 0
    jobs = 0

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        self.lives += 1
        return await super().get_life(job_id, queues=queues)

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        self.jobs += 1
        return await super().get_job(job_id, queues=queues, abridge=abridge)

    async def read_events(self, query: EventQuery) -> EventPage:
        page = await super().read_events(query)
        self.read += sum(event.last_sequence - event.first_sequence + 1 for event in page.events)
        return page


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(ManualClock())


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[AsyncClient]:
    services: Services = make_services(store, ManualClock())
    async with services, serve(services) as url, AsyncClient(url) as client:
        yield client


async def attempt(
    client: AsyncClient, events: Sequence[Event], *, job_id: str = "", last: bool = True
) -> str:
    """Publish the events of the next attempt of a job; give it back unless it is the last."""
    if not job_id:
        job_id = (await client.enqueue(JobParams(command="make"), queue="builds")).job_id
    (held,) = await client.dequeue("builds")
    await client.publish_events(held.task_token, events)
    if not last:
        await client.release_job(ReleaseRequest(task_token=held.task_token))
    return job_id


async def last(
    client: AsyncClient, job_id: str, count: int, wants: Callable[[LogLine], bool] = ALL, attempt: int = 0
) -> list[tuple[int, bytes]]:
    found = await read_last_lines(
        client, await client.get_job(job_id), count, attempt=attempt, wants=wants, on_gap=no_gap
    )
    return [(line.attempt, line.content) for line in found]


def no_gap(gap: Gap) -> None:
    pytest.fail(f"nothing is lost, but this is: {gap}")


async def test_the_tail_reads_little(client: AsyncClient, store: CountingStore) -> None:
    job_id = await attempt(client, BATCHES)
    assert await last(client, job_id, 3) == [(1, b"line %d\n" % number) for number in (998, 999, 1000)]
    assert store.read <= 100


async def test_the_tail_reads_more_where_lines_are_long(client: AsyncClient, store: CountingStore) -> None:
    pieces = [
        Event(sequence=number, timestamp=NOON, data=Output(b"x" if number % 200 else b"x\n"))
        for number in range(1, 801)
    ]
    job_id = await attempt(client, pieces)
    assert await last(client, job_id, 3) == [(1, b"x" * 200 + b"\n")] * 3


async def test_a_wanted_line_that_is_far_back_is_found(client: AsyncClient) -> None:
    job_id = await attempt(client, BATCHES)
    found = await last(client, job_id, 2, LineFilter("^line (5|700)$").wants)
    assert found == [(1, b"line 5\n"), (1, b"line 700\n")]
    assert await last(client, job_id, 2, LineFilter("nothing").wants) == []


async def test_a_single_line_of_the_other_stream_is_in_the_tail(client: AsyncClient) -> None:
    job_id = await attempt(client, [*BATCHES, make_line(1001, stream=StreamType.STDERR), make_line(1002)])
    assert await last(client, job_id, 3) == [(1, b"line %d\n" % number) for number in (1000, 1001, 1002)]


async def test_the_tail_goes_back_into_earlier_attempts(client: AsyncClient) -> None:
    job_id = await attempt(client, BATCHES[:2], last=False)
    await attempt(client, [make_line(1)], job_id=job_id)
    assert await last(client, job_id, 3) == [(1, b"line 99\n"), (1, b"line 100\n"), (2, b"line 1\n")]
    assert await last(client, job_id, 3, attempt=2) == [(2, b"line 1\n")]
    assert await last(client, job_id, 1, attempt=1) == [(1, b"line 100\n")]


async def test_all_lines_are_read_and_losses_are_told_once(client: AsyncClient) -> None:
    gap = Gap(first_sequence=190, last_sequence=195, reason="disk died")
    lost = Event(sequence=190, timestamp=NOON, data=gap)
    before, after = (
        [make_line(number) for number in numbers] for numbers in (range(1, 190), range(196, 200))
    )
    job_id = await attempt(client, [*before, lost, *after])
    told: list[Gap] = []
    events = client.stream_events(output_request(job_id))
    async with aclosing(read_lines(events, on_gap=told.append)) as lines:
        assert [line.sequence async for line in lines] == [*range(1, 190), *range(196, 200)]
    assert told == [gap]
    told.clear()
    # The loss is near the end, and is read again as the search goes further back.
    job, wants = await client.get_job(job_id), LineFilter("^line 1$").wants
    found = await read_last_lines(client, job, 1, wants=wants, on_gap=told.append)
    assert [line.sequence for line in found] == [1]
    assert told == [gap]


async def test_the_services_can_be_read_in_process(store: CountingStore) -> None:
    services: Services = make_services(store, ManualClock())
    async with services, serve(services) as url, AsyncClient(url) as client:
        job_id = await attempt(client, BATCHES)
        job = await services.jobs.get_job(job_id)
        found = await read_last_lines(services.events, job, 2, wants=ALL, on_gap=no_gap)
        assert [line.content for line in found] == [b"line 999\n", b"line 1000\n"]


async def test_a_replay_asks_for_its_job_once(client: AsyncClient, store: CountingStore) -> None:
    job_id = await attempt(client, BATCHES)
    store.lives = store.jobs = 0
    events = client.stream_events(output_request(job_id))
    assert [line.sequence async for line in read_lines(events, on_gap=no_gap)] == [*range(1, 1001)]
    assert (store.lives, store.jobs) == (0, 0)


async def test_so_does_one_of_the_current_attempt_from_a_sequence(
    client: AsyncClient, store: CountingStore
) -> None:
    job_id = await attempt(client, BATCHES)
    store.lives = store.jobs = 0
    request = StreamRequest(job_id=job_id, from_sequence=980, follow=False)
    assert [event.sequence async for event in client.stream_events(request)] == [*range(980, 1001)]
    assert (store.lives, store.jobs) == (1, 0)


def test_lines_are_chosen_without_asking_for_their_job_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_in_thread() as (url, _):
        monkeypatch.setenv("AIRUNNER_SERVER", url)
        assert execute(["submit", "--", "true"]) == 0
        job_id = capsys.readouterr().out.strip()
        # Whoever called it would fail.
        monkeypatch.setattr(WireClient, "get_job", pytest.fail)
        assert execute(["logs", job_id, "--json"]) == 0
        assert execute(["logs", job_id, "--grep", "."]) == ExitCode.FAILED
        assert execute(["logs", UNKNOWN, "--json"]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().err == "airunner: There is no such job.\n"


async def test_output_comes_as_it_is_stored(client: AsyncClient) -> None:
    job_id = await attempt(client, [*BATCHES, Event(1001, NOON, Output(b"end", StreamType.STDERR))])
    pieces = [piece async for piece in client.stream_output(output_request(job_id))]
    copied = [piece for piece in pieces if isinstance(piece, bytes)]
    assert (len(copied), b"".join(copied).count(b"\n")) == (len(BATCHES), 1000)
    assert [event.data for piece in pieces if isinstance(piece, list) for event in piece] == [
        Output(b"end", StreamType.STDERR)
    ]


async def test_output_of_no_server_is_given_up_after_some_rounds() -> None:
    clock = ManualClock()
    async with AsyncClient(f"http://127.0.0.1:{unused_port()}", clock=clock) as client:
        stream = client.stream_output(output_request(UNKNOWN), first_rounds=1)
        with pytest.raises(Unavailable):
            await anext(stream)


async def test_output_of_an_unknown_job_is_refused(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await anext(client.stream_output(output_request(UNKNOWN)))
