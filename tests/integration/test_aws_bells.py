"""Two servers on one set of tables that ring each other. No clock moves, so nothing comes by looking."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyqwest
import pytest
import trustme

from airunner.domain.answers import DequeuedJob, HeldJob
from airunner.domain.errors import Unavailable
from airunner.domain.event import Event
from airunner.domain.job import JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.domain.token import TokenSigner
from airunner.server.bells import BELL_PATH, CALLS_PER_SECOND, SIGNATURE_HEADER, HttpBellPost
from airunner.server.listening import bind, url_of
from airunner.services.composition import Replica, ServiceRules
from airunner.services.replicas.signed_bells import MAX_BYTES, SignedBells
from airunner.stores.aws.items import Item, number, text, update_expression
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.replicas.shared_marks import MAX_ADDRESSES
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import (
    NEVER_SECONDS,
    TOKEN_KEY,
    make_batch,
    make_line,
    make_services,
    make_success,
)
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store
from tests.support.serving import Certificate, serve
from tests.support.shared_memory import SharedMemoryStore

RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)


@dataclass(slots=True)
class Ringing:
    """A server that others ring at, and what it is asked."""

    api: Api
    url: str

    async def looked(self) -> None:
        """Let it look for news once, and say what is watched there."""
        assert self.api.services.replica_news
        await self.api.services.replica_news.run_once()

    async def watch(self, held: DequeuedJob) -> tuple[asyncio.Task[None], list[Event]]:
        """Begin to watch a job, and let the others know."""
        seen: list[Event] = []
        task = asyncio.create_task(self.api.watch(StreamRequest(job_id=held.job.job_id), seen))
        await until(lambda: held.job.job_id in self.api.services.notifier.jobs)
        await self.looked()
        return task, seen

    async def hold(self, held: DequeuedJob, *, watched: bool = False) -> asyncio.Task[HeldJob]:
        """Begin a heartbeat that waits here."""
        request = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=30, watched=watched)
        return await self.api.started(self.api.jobs.update_job(request))


@asynccontextmanager
async def _ringing(aws: StrictProxy, layout: Layout, *, is_deaf: bool = False) -> AsyncIterator[Ringing]:
    """A server; one that is deaf listens, and never answers."""
    with bind("127.0.0.1", 0) as listener:
        async with _services_at(listener, aws, layout, is_deaf=is_deaf) as ringing:
            yield ringing


@asynccontextmanager
async def _services_at(
    listener: socket.socket, aws: StrictProxy, layout: Layout, *, is_deaf: bool
) -> AsyncIterator[Ringing]:
    url, clock = url_of(listener), ManualClock()
    replica = Replica(address=url, post=HttpBellPost(None))
    store = make_store(aws.url, layout, clock, address=url)
    async with make_services(store, clock, RULES, replica) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        async with nullcontext() if is_deaf else serve(services, listener=listener):
            yield Ringing(api, url)


@pytest.fixture
async def layout(borrow_layout: BorrowLayout) -> Layout:
    return await borrow_layout()


@pytest.fixture
async def a(aws: StrictProxy, layout: Layout) -> AsyncIterator[Ringing]:
    async with _ringing(aws, layout) as ringing:
        yield ringing


@pytest.fixture
async def b(aws: StrictProxy, layout: Layout) -> AsyncIterator[Ringing]:
    async with _ringing(aws, layout) as ringing:
        yield ringing


async def test_lines_and_the_end_reach_a_watcher_without_a_look(a: Ringing, b: Ringing) -> None:
    held = await a.api.new_claim()
    watching, seen = await b.watch(held)
    for last in (3, 6):
        await a.api.publish(held, make_batch(last - 2, last))
        await until(lambda last=last: len(seen) == last)  # type: ignore[misc]  # of this turn
    await a.api.complete(held, make_success(final_sequence=7), make_line(7))
    await watching
    assert [event.sequence for event in seen] == list(range(1, 8))


async def test_a_cancellation_reaches_a_holder_at_another_server_without_a_look(
    a: Ringing, b: Ringing
) -> None:
    held = await a.api.new_claim()
    waiting = await b.hold(held)
    await a.api.jobs.cancel_job(held.job.job_id)
    assert (await waiting).cancel_requested


async def test_a_holder_hears_of_a_watcher_at_another_server_without_a_look(a: Ringing, b: Ringing) -> None:
    held = await a.api.new_claim()
    waiting = await a.hold(held)
    watching, seen = await b.watch(held)
    assert (await waiting).watched
    assert (await a.api.publish(held, make_line(1))).watched
    await until(lambda: len(seen) == 1)
    watching.cancel()


async def test_watchers_at_several_servers_are_all_rung(
    aws: StrictProxy, layout: Layout, a: Ringing, b: Ringing
) -> None:
    async with _ringing(aws, layout) as c:
        held = await a.api.new_claim()
        streams = [await ringing.watch(held) for ringing in (b, c)]
        await a.api.publish(held, make_batch(1, 3))
        await until(lambda: all(len(seen) == 3 for _, seen in streams))
        # Which of them publishes does not matter.
        await b.api.publish(held, make_batch(4, 5))
        await until(lambda: all(len(seen) == 5 for _, seen in streams))
        await c.api.jobs.cancel_job(held.job.job_id)
        assert (await b.api.release(held)) is JobState.CANCELLED
        await asyncio.gather(*(task for task, _ in streams))


async def test_a_publish_that_nobody_watches_rings_nowhere(aws: StrictProxy, a: Ringing, b: Ringing) -> None:
    held = await a.api.new_claim()
    waiting = await b.hold(held)
    rings = b.api.services.notifier._bells[f"holder:{held.job.job_id}"]
    for sequence in range(1, 4):
        await a.api.publish(held, make_line(sequence))
    assert a.api.services.ringer
    assert not a.api.services.ringer._peers
    assert rings.rings == 0
    waiting.cancel()


async def test_what_a_lost_bell_would_have_said_is_found_by_looking(
    aws: StrictProxy, layout: Layout, a: Ringing
) -> None:
    async with _ringing(aws, layout, is_deaf=True) as deaf:
        held = await a.api.new_claim()
        watching, seen = await deaf.watch(held)
        # Nobody waits for the bell: neither this call nor the next one.
        async with asyncio.timeout(10):
            await a.api.publish(held, make_line(1))
            await a.api.publish(held, make_line(2))
        assert not seen
        deaf.api.clock.advance(0.5)
        await until(lambda: len(seen) == 2)
        watching.cancel()


async def test_a_server_that_is_gone_is_left_alone(aws: StrictProxy, layout: Layout, a: Ringing) -> None:
    held = await a.api.new_claim()
    async with _ringing(aws, layout) as gone:
        watching, _ = await gone.watch(held)
        watching.cancel()
    ringer = a.api.services.ringer
    assert ringer
    await a.api.publish(held, make_line(1))
    await until(lambda: ringer._peers[gone.url].failures == 1)
    await a.api.publish(held, make_line(2))
    assert ringer._peers[gone.url].failures == 1


async def test_a_forged_bell_rings_nothing_and_reads_nothing(aws: StrictProxy, a: Ringing) -> None:
    held = await a.api.new_claim()
    watching, _ = await a.watch(held)
    name = f"job:{held.job.job_id}"
    bell = a.api.services.notifier._bells[name]
    await until(lambda: bell.rings == 1)
    await until(lambda: a.api.clock.waiting >= 3)
    aws.counts.reset()
    clock = a.api.clock
    good = SignedBells(TokenSigner([TOKEN_KEY]), clock).seal([name])
    stale = SignedBells(TokenSigner([TOKEN_KEY]), ManualClock(clock.now() - 16_000)).seal([name])
    forged = SignedBells(TokenSigner([b"a key that nobody gave us"]), clock).seal([name])
    answers = [
        await _post(a, body, {SIGNATURE_HEADER: signature})
        for body, signature in [
            stale,
            forged,
            (good[0], ""),
            (good[0] + b"x", good[1]),
            (b"x" * MAX_BYTES * 2, ""),
        ]
    ]
    answers.append(await _post(a, good[0], {}))
    assert answers == [(403, b"")] * 6
    assert (bell.rings, aws.counts.calls) == (1, {})
    # One for a job that nobody listens to costs nothing either.
    nobody = SignedBells(TokenSigner([TOKEN_KEY]), clock).seal(["job:nobody", "nothing", ""])
    assert await _post(a, nobody[0], {SIGNATURE_HEADER: nobody[1]}) == (204, b"")
    assert (bell.rings, aws.counts.calls) == (1, {})
    assert await _post(a, good[0], {SIGNATURE_HEADER: good[1]}) == (204, b"")
    assert bell.rings == 2
    watching.cancel()


async def test_bells_are_taken_at_a_rate(a: Ringing) -> None:
    body, signature = SignedBells(TokenSigner([TOKEN_KEY]), a.api.clock).seal(["job:nobody"])
    async with pyqwest.HTTPTransport() as transport:
        post, headers = pyqwest.Client(transport).post, {SIGNATURE_HEADER: signature}
        answers = await asyncio.gather(
            *(post(f"{a.url}{BELL_PATH}", headers, body) for _ in range(2 * CALLS_PER_SECOND + 10))
        )
    assert Counter(answer.status for answer in answers) == {204: 2 * CALLS_PER_SECOND, 403: 10}


async def test_a_bell_over_tls_needs_the_authority_of_the_server(tmp_path: Path) -> None:
    authority, clock = trustme.CA(), ManualClock()
    issued = authority.issue_cert("127.0.0.1")
    certificate = Certificate(cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(certificate.cert_file)
    issued.private_key_pem.write_to_path(certificate.key_file)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trusting, others = HttpBellPost(tmp_path / "ca.pem"), HttpBellPost(None)
    replica = Replica(address="https://127.0.0.1:1", post=trusting)
    async with (
        make_services(SharedMemoryStore(clock), clock, RULES, replica) as services,
        serve(services, certificate=certificate) as url,
    ):
        sealed = SignedBells(TokenSigner([TOKEN_KEY]), clock).seal(["job:nobody"])
        await trusting.post(url, *sealed)
        with pytest.raises(Unavailable, match="certificate is not trusted"):
            await others.post(url, *sealed)
    await others.aclose()


async def test_where_a_job_is_watched_is_bounded_and_tidied(
    aws: StrictProxy, layout: Layout, a: Ringing
) -> None:
    held = await a.api.new_claim()
    job_id, now = held.job.job_id, a.api.clock.now()
    await _put_watchers(aws, layout, job_id, {"watcher_gone": now - 61_000, "watcher_late": now - 59_000})
    await _update_row(aws, layout, job_id, {"watcher_odd": text("something")})
    shared = a.api.services.store.shared
    assert shared
    await shared.note_watched([job_id], now + 25_000)
    lives = await shared.note_watched([job_id, "nobody"], now + 25_000)
    assert list(lives) == [job_id]
    assert dict(lives[job_id].watchers_at) == {
        "http://watcher_late:80": now - 59_000,
        a.url: now + 25_000,
    }
    # With so many others this one is not named; that the job is watched is said all the same.
    await _put_watchers(aws, layout, job_id, {f"watcher_{n}": now + 90_000 for n in range(MAX_ADDRESSES - 1)})
    await shared.note_watched([job_id], now + 30_000)
    life = (await shared.note_watched([job_id], now + 40_000))[job_id]
    assert life.watched_until == now + 40_000
    assert dict(life.watchers_at)[a.url] == now + 30_000


async def test_without_an_address_there_is_no_such_page(aws: StrictProxy, layout: Layout) -> None:
    clock = ManualClock()
    async with (
        make_services(make_store(aws.url, layout, clock), clock, RULES) as services,
        serve(services) as url,
    ):
        async with pyqwest.HTTPTransport() as transport:
            answer = await pyqwest.Client(transport).post(f"{url}{BELL_PATH}", content=b"")
        assert answer.status == 404


async def _put_watchers(aws: StrictProxy, layout: Layout, job_id: str, watchers: dict[str, int]) -> None:
    changes: Item = {
        name: {"M": {"address": text(f"http://{name}:80"), "until": number(until)}}
        for name, until in watchers.items()
    }
    await _update_row(aws, layout, job_id, changes)


async def _update_row(aws: StrictProxy, layout: Layout, job_id: str, changes: Item) -> None:
    async with client("dynamodb", aws.url) as dynamodb:
        await dynamodb.update_item(
            TableName=layout.jobs_table, Key={"job_id": text(job_id)}, **update_expression(changes)
        )


async def _post(ringing: Ringing, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    async with pyqwest.HTTPTransport() as transport:
        answer = await pyqwest.Client(transport).post(
            f"{ringing.url}{BELL_PATH}", headers=headers, content=body
        )
    return answer.status, bytes(answer.content)
