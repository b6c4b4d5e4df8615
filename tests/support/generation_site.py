"""A place where real relays and generation workers run as processes, and are killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.postgres.pool import Database
from airunner.queues.sqs import SqsQueue
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.forking import ForkedProcess, ForkServer
from tests.support.generation import ACCOUNTS
from tests.support.processes import RunningProcess

HANDLERS = """
import time
from pathlib import Path

from airunner import Context, PermanentFailure, handler

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
    if payload.get("refuses"):
        raise PermanentFailure("refused")
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
    fork: Callable[..., ForkedProcess]
    """Does the same in a fraction of the time; what it starts can only be killed."""

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
    started: list[RunningProcess | ForkedProcess] = []
    forks = ForkServer()
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        _, url = await make_queues(account, aws_env, 5)
        usual = {
            "AIRUNNER_POSTGRES__DSN": dsn,
            "SQS_MAIN_QUEUE_URL": url,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": aws.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

        def launch(how: Callable[..., Any], *command: str, **environment: str) -> Any:
            worker = ("generation", "worker", "--handlers", str(tmp_path / "handlers.py"))
            log = tmp_path / f"worker-{len(started)}.log"
            process = how(*(command or worker), log=log, environment={**usual, **environment})
            started.append(process)
            return process

        start, fork = partial(launch, RunningProcess), partial(launch, forks.start)
        try:
            yield Site(database, SqsQueue(account, url), tmp_path, start, fork)
        finally:
            for process in started:
                process.abandon()
            forks.close()
