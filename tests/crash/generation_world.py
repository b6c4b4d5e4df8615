"""Rows of each kind, and a process that dies on their way: as relay, worker, or pass over lost work.

It dies at a numbered call to PostgreSQL, to SQS or to the JobService; the next one finds what it left. What a
dead one held comes again by the clocks of queue and database, which the world moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.domain.clock import SystemClock
from airunner.domain.errors import PermanentFailure
from airunner.domain.job import JobResult, Outcome
from airunner.domain.retry import RetryPolicy
from airunner.generation.lost import LostPass
from airunner.generation.sessions import SessionTable
from airunner.generation.source import GenerationSource
from airunner.generation.work import GenerationWork, WorkOptions, WorkTry
from airunner.handlers import Context
from airunner.handlers.images import Image, Images
from airunner.handlers.registry import Registry
from airunner.outbox.jobs_sink import JobsSink
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.sqs_sink import SqsSink
from airunner.outbox.table import OutboxTable
from airunner.outbox.upkeep import OutboxUpkeep
from airunner.postgres.pool import Database, PostgresOptions
from airunner.queues.base import TryAgain
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.services.api import JobsApi
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_services
from airunner.worker.attempt import JobOutcome
from airunner.worker.source import JobSource, Subscription
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import ACCOUNTS, HOOKS, effects, enqueue, registry
from tests.support.mortals import Died, Gate, MortalDatabase, MortalQueue
from tests.support.outbox import QUICK, send_once
from tests.support.postgres import pass_time

LOST, EXHAUSTED = "failed:lost", "failed:exhausted"
ENDS: Mapping[str, set[str]] = {
    "good": {"done"},
    "images": {"done"},
    "refuses": {"failed:refused"},
    # A last try that dies is lost; one that raises is exhausted.
    "hopeless": {EXHAUSTED, LOST},
    "lost": {LOST},
    "resent": {"done"},
    "copied": {"done"},
}
"""How a row of each kind may end."""
LETTERED = {"refuses"}
"""Those whose end is always a letter too."""
MAX_RECEIVES = 2
_VISIBILITY_SECONDS = 60
_ROUND_SECONDS = 150
_MAX_ROUNDS = 6
_WORK = WorkOptions(
    deadline_seconds=10, visibility_seconds=10, verdict_policy=RetryPolicy(first_seconds=0, attempts=1)
)


class Silent:
    """Takes the output of handlers, and keeps none."""

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output."""

    def flush(self) -> None:
        """Have nothing to show."""

    def progress(self, done: int, total: int, message: str) -> None:
        """Take how far it is."""

    def room(self) -> None:
        """Hold nobody back."""

    def seal(self) -> None:
        """Take no more."""


class Side(Protocol):
    """One of the two sinks, with what works behind it."""

    def pass_seconds(self, seconds: int) -> None:
        """Let what was delivered and not settled come again."""

    async def lose(self, database: Database, session_id: str) -> None:
        """Bring a row, which is enqueued, to where only the pass over lost work can end it."""

    async def copy(self, database: Database, session_id: str) -> None:
        """Deliver a row once more than the relay does."""

    async def live(self, database: Database, gate: Gate, handlers: Registry) -> int:
        """Do all that relay, worker and the pass do, once; return how many deliveries there were."""


@dataclass(slots=True)
class World:
    database: Database
    mortal: MortalDatabase
    side: Side
    handlers: Registry
    seconds: int = 0
    sends_again: bool = False
    """Whether there are rows that wait for the upkeep."""

    async def enqueue(self, kind: str) -> str:
        """Enqueue a row of a kind, and bring it to where its story begins."""
        session_id = await enqueue(self.database, kind)
        if kind == "resent":
            self.sends_again = True
            await self.database.execute(
                "UPDATE airunner.outbox SET state = 'dispatched', "
                "dispatched_at = airunner.instant() - interval '73 h' WHERE id = $1::text::uuid",
                session_id,
            )
        elif kind == "lost":
            await self.side.lose(self.database, session_id)
        elif kind == "copied":
            await self.side.copy(self.database, session_id)
        return session_id

    async def die_at(self, number: int, *, executed: bool) -> bool:
        """Do everything until the numbered call; return whether there was one."""
        gate = self.mortal.gate = Gate(number, executed=executed)
        await self._send_again()
        try:
            await self.side.live(self.mortal, gate, self.handlers)
        except Died:
            assert gate.happened
        return gate.happened

    async def survive(self, ids: set[str]) -> None:
        """Do what is left, while time passes, until all have ended and nothing is delivered any more."""
        for number in range(_MAX_ROUNDS):
            if number == 2:
                # SQS puts a message aside whose last receive died before its try began: it is sent anew.
                self.seconds, self.sends_again = self.seconds + 73 * 3600, True
            self.seconds += _ROUND_SECONDS
            self.side.pass_seconds(_ROUND_SECONDS)
            await pass_time(self.database, seconds=self.seconds)
            await self._send_again()
            never = Gate(1_000_000, executed=False)
            deliveries = await self.side.live(self.database, never, self.handlers)
            if not deliveries and await self._open(ids) == 0:
                return
        raise AssertionError(f"not all of them end: {await self.ends(ids)}")

    async def ends(self, ids: set[str]) -> dict[str, list[str]]:
        """Return the effects that each had."""
        found: dict[str, list[str]] = {session_id: [] for session_id in ids}
        for session_id, what in await effects(self.database):
            if session_id in found:
                found[session_id].append(what)
        return found

    async def images(self, session_id: str) -> int:
        counting = "SELECT count(*) FROM airunner.images WHERE session_id = $1::text::uuid"
        return int(await self.database.fetch_value(counting, session_id))

    async def _send_again(self) -> None:
        """Do what the upkeep of a relay does; tests of relays let it die."""
        if self.sends_again:
            await OutboxUpkeep(self.database, "airunner").run_once()

    async def _open(self, ids: set[str]) -> int:
        counting = (
            "SELECT count(*) FROM airunner.generation_sessions "
            "WHERE id = ANY($1::text[]::uuid[]) AND finished_at IS NULL"
        )
        return int(await self.database.fetch_value(counting, sorted(ids)))


@dataclass(slots=True)
class SqsSide:
    """Sink `sqs` and a generation worker."""

    account: Aws
    emulator: EmulatorProcess
    url: str
    dead_url: str

    def pass_seconds(self, seconds: int) -> None:
        self.emulator.advance(seconds)

    async def lose(self, database: Database, session_id: str) -> None:
        """Have its last try begin and its message be gone."""
        await _mark_sent(database, session_id)
        sessions = SessionTable(database, "airunner")
        await sessions.begin(session_id, MAX_RECEIVES, last_try=True, lost_seconds=0)

    async def copy(self, database: Database, session_id: str) -> None:
        body = await database.fetch_value(
            "SELECT payload::text FROM airunner.outbox WHERE id = $1::text::uuid", session_id
        )
        await SqsQueue(self.account, self.url).send([NewMessage(body=body)])

    async def live(self, database: Database, gate: Gate, handlers: Registry) -> int:
        queue = MortalQueue(self.account, self.url)
        queue.gate = gate
        await _relay(database, SqsSink({"generation": queue}))
        sessions, count = SessionTable(database, "airunner"), 0
        source = GenerationSource(
            queue, sessions, handlers, clock=SystemClock(), visibility_seconds=120, wait_seconds=0
        )
        work = GenerationWork(sessions, SystemClock(), _WORK)
        try:
            while deliveries := await source.receive(10):
                for delivery in deliveries:
                    count += 1
                    value, message = delivery.body.value, delivery.body.message
                    attempt = WorkTry(
                        id=value.id,
                        handler=value.handler,
                        payload_json=value.payload_json,
                        attempt=message.receive_count,
                        last_try=message.last_receive,
                    )
                    await _process(work, attempt, source, delivery, lambda result: result)
        finally:
            work.close()
        await LostPass(database, "airunner", handlers).run_once()
        return count

    async def letters(self) -> Counter[str]:
        """Take the dead letters; return how many there were of each session."""
        queue, found = SqsQueue(self.account, self.dead_url), Counter[str]()
        while messages := await queue.receive(10):
            # A message that SQS put aside says nothing of a failure.
            found.update(message.body[8:44] for message in messages if '"failure"' in message.body)
            await queue.delete(messages)
        return found


@dataclass(slots=True)
class JobsSide:
    """Sink `jobs` and a worker of jobs."""

    services: Services
    clock: ManualClock

    def pass_seconds(self, seconds: int) -> None:
        self.clock.advance(seconds)

    async def lose(self, database: Database, session_id: str) -> None:
        """Have its job end without a verdict."""
        await _relay(database, JobsSink(self.services.jobs))
        job_id = await database.fetch_value(
            "SELECT sink_ref FROM airunner.outbox WHERE id = $1::text::uuid", session_id
        )
        await self.services.jobs.cancel_job(job_id)
        # A job that was made a moment ago is not asked for yet.
        await database.execute(
            "UPDATE airunner.outbox SET dispatched_at = dispatched_at - interval '2 minutes' "
            "WHERE id = $1::text::uuid",
            session_id,
        )

    async def copy(self, database: Database, session_id: str) -> None:
        """Have it sent, and forget that: it is sent once more."""
        await _relay(database, JobsSink(self.services.jobs))
        await database.execute(
            "UPDATE airunner.outbox SET state = 'pending' WHERE id = $1::text::uuid", session_id
        )

    async def live(self, database: Database, gate: Gate, handlers: Registry) -> int:
        jobs = cast("JobsApi", MortalJobs(self.services.jobs, gate))
        await _relay(database, JobsSink(jobs))
        work, count = GenerationWork(SessionTable(database, "airunner"), SystemClock(), _WORK), 0
        subscription = Subscription(
            queues=("generation",), visibility_timeout_seconds=_VISIBILITY_SECONDS, wait_seconds=0
        )
        source = JobSource(jobs, subscription, clock=self.clock)
        try:
            while deliveries := await source.receive(10):
                for delivery in deliveries:
                    count += 1
                    delivery.body.begun = True
                    job = delivery.body.job
                    attempt = WorkTry(
                        id=job.request_id,
                        handler=handlers[job.params.handler],
                        payload_json=job.params.payload_json,
                        attempt=job.attempt,
                        last_try=job.life.tries_left <= 0,
                    )
                    await _process(work, attempt, source, delivery, _succeeded)
        finally:
            work.close()
        await self.services.maintenance.run_once()
        await LostPass(database, "airunner", handlers, jobs=jobs).run_once()
        return count


@dataclass(frozen=True, slots=True)
class MortalJobs:
    """The JobService as the mortal sees it: each call is one."""

    jobs: Any
    gate: Gate

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.jobs, name)

        async def call(*values: Any, **options: Any) -> Any:
            return await self.gate.pass_through(lambda: inner(*values, **options))

        return call


@asynccontextmanager
async def sqs_world(dsn: str, url: str, emulator: EmulatorProcess, name: str) -> AsyncIterator[World]:
    async with Aws(replace(options_of(url), clients=OF_A_QUEUE)) as account, _databases(dsn) as both:
        dead_url, queue_url = await make_queues(account, name, MAX_RECEIVES)
        yield World(*both, SqsSide(account, emulator, queue_url, dead_url), HANDLERS)


@asynccontextmanager
async def jobs_world(dsn: str) -> AsyncIterator[World]:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services, _databases(dsn) as both:
        yield World(*both, JobsSide(services, clock), HANDLERS)


@asynccontextmanager
async def _databases(dsn: str) -> AsyncIterator[tuple[Database, MortalDatabase]]:
    options = PostgresOptions(dsn=dsn)
    async with Database(options) as database, MortalDatabase(options) as mortal:
        await database.execute(ACCOUNTS)
        await database.execute("DELETE FROM public.effects")
        yield database, mortal


async def _relay(database: Database, sink: Any) -> None:
    options = RelayOptions(relay_id="one", database_policy=QUICK)
    await send_once(Relay(OutboxTable(database, "airunner"), sink, SystemClock(), options))


async def _process(work: GenerationWork, attempt: WorkTry, source: Any, delivery: Any, outcome: Any) -> None:
    """Do what a consumer does with a delivery."""
    try:
        result = await work.run(attempt, lambda _session: _context(attempt))
    except PermanentFailure as failure:
        await source.dead_letter(delivery, failure)
    except TryAgain as error:
        await source.release(delivery, 0, str(error))
    else:
        await source.ack([(delivery, outcome(result))])


async def _mark_sent(database: Database, session_id: str) -> None:
    await database.execute(
        "UPDATE airunner.outbox SET state = 'dispatched', dispatched_at = airunner.instant() "
        "WHERE id = $1::text::uuid",
        session_id,
    )


def _succeeded(result: str) -> JobOutcome:
    return JobOutcome(result=JobResult(success=True, outcome=Outcome.SUCCESS, output_json=result))


def _context(work: WorkTry) -> tuple[Silent, Context]:
    output = Silent()
    context = Context(
        job_id=work.id,
        queue="generation",
        attempt=work.attempt,
        request_id=work.id,
        last_try=work.last_try,
        output=output,
    )
    return output, context


def _paint() -> Images:
    return Images([Image.of("pictures/a.png", "image/png", b"a picture")])


def _refuse() -> None:
    raise PermanentFailure("refused")


def _fail() -> None:
    raise OSError("the provider is gone")


HANDLERS = registry(
    refuses=(_refuse, HOOKS),
    hopeless=(_fail, HOOKS),
    images=(_paint, HOOKS),
    **{name: (lambda: "done", HOOKS) for name in ("good", "lost", "resent", "copied")},
)
