"""`airunner generation worker` as a process: it works, drains, is killed, and refuses what cannot work."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.postgres.pool import Database
from airunner.queues.sqs import SqsQueue
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import ACCOUNTS, effects, enqueue, send_all, until_sessions
from tests.support.processes import RunningProcess

HANDLERS = """
import time
from pathlib import Path

from airunner import Context, handler

FOLDER = Path(__file__).parent


async def on_success(connection, session, result):
    await connection.execute("INSERT INTO public.effects (id, what) VALUES ($1, 'done')", session.id)


async def compensate(connection, session, failure):
    text = "INSERT INTO public.effects (id, what) VALUES ($1, $2)"
    await connection.execute(text, session.id, failure.code)


@handler("paint")
def paint(payload: dict, ctx: Context) -> str:
    print("painting")
    with (FOLDER / "calls").open("a") as calls:
        calls.write(ctx.request_id + chr(10))
    while payload.get("waits") and ctx.attempt == 1 and not (FOLDER / "go").exists():
        time.sleep(0.01)
    return "a picture"
"""


@dataclass(slots=True)
class Site:
    database: Database
    queue: SqsQueue
    folder: Path
    start: Callable[..., RunningProcess]

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
async def site(
    database: Database, dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str, tmp_path: Path
) -> AsyncIterator[Site]:
    await database.execute(ACCOUNTS)
    await database.execute("DELETE FROM public.effects")
    (tmp_path / "handlers.py").write_text(HANDLERS)
    started: list[RunningProcess] = []
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        _, url = await make_queues(account, aws_env, 5)

        def start(**environment: str) -> RunningProcess:
            process = RunningProcess(
                *("generation", "worker", "--handlers", str(tmp_path / "handlers.py")),
                log=tmp_path / f"worker-{len(started)}.log",
                environment={
                    "DATABASE_URL": dsn,
                    "SQS_MAIN_QUEUE_URL": url,
                    "AWS_REGION": REGION,
                    "AWS_ENDPOINT_URL": aws.url,
                    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                    **environment,
                },
            )
            started.append(process)
            return process

        try:
            yield Site(database, SqsQueue(account, url), tmp_path, start)
        finally:
            for process in started:
                process.abandon()


async def test_a_worker_that_is_killed_leaves_its_work_to_the_next(site: Site) -> None:
    session_id = await enqueue(site.database, "paint", {"waits": True})
    await send_all(site.database, site.queue)
    # With one slot, which is taken, no poll of it is left that would receive what is sent below.
    worker = site.start(GEN_WORKER_CONCURRENCY="1")
    await until(lambda: site.calls == [session_id], limit_seconds=60)
    await worker.kill()
    # SQS delivers it again after two minutes; a copy stands for that.
    await site.database.execute("UPDATE airunner.outbox SET state = 'pending'")
    await send_all(site.database, site.queue)
    (site.folder / "go").touch()
    other = site.start()
    await until_sessions(site.database, done=1)
    assert site.calls == [session_id, session_id]
    assert await effects(site.database) == [(session_id, "done")]
    other.send(signal.SIGTERM)
    assert await other.ended() == 0
    log = (site.folder / "worker-1.log").read_text()
    for event in ("worker.init", "handler.registered", "job.start", "job.completed", "job.output"):
        assert event in log


async def test_a_worker_that_is_told_to_stop_finishes_what_it_has(site: Site) -> None:
    session_id = await enqueue(site.database, "paint", {"waits": True})
    await send_all(site.database, site.queue)
    worker = site.start()
    await until(lambda: site.calls == [session_id], limit_seconds=60)
    worker.send(signal.SIGTERM)
    (site.folder / "go").touch()
    assert await worker.ended() == 0
    await until_sessions(site.database, done=1)
    assert (await site.queue.depth()).in_flight == 0


async def test_a_queue_without_a_redrive_policy_is_refused(
    site: Site, aws: StrictProxy, aws_env: str
) -> None:
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        url = (await account.sqs("CreateQueue", QueueName=f"{aws_env}-bare"))["QueueUrl"]
    worker = site.start(SQS_MAIN_QUEUE_URL=url)
    assert await worker.ended() == 2
    assert "has no redrive policy" in worker.printed()
