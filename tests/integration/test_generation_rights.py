"""The rights of infra/generation.yaml are what relays, workers and operators call, as a run of them shows."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from airunner import PermanentFailure
from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.config import Settings, load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.requests import Redrive
from airunner.generation.dead_letters import GenerationDeadLetters
from airunner.generation.start import GenerationWorker
from airunner.outbox.start import OutboxRelay
from airunner.postgres.pool import Database
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import enqueue, registry, until_sessions
from tests.support.outbox import until_states
from tests.support.template import GENERATION_PATH, resources

QUEUE, DEAD_LETTERS = "GenerationQueue.Arn", "GenerationDeadLetters.Arn"


async def test_everybody_has_the_rights_that_they_use_and_no_others(
    database: Database, dsn: str, strict_aws: StrictAws, aws_env: str
) -> None:
    async with AsyncExitStack() as stack:
        of_relay, of_worker, of_operator = [
            await stack.enter_async_context(strict_aws.proxy()) for _ in range(3)
        ]
        async with Aws(replace(options_of(of_relay.url), clients=OF_A_QUEUE)) as account:
            _, url = await make_queues(account, aws_env, 5)
        of_relay.counts.reset()
        names = {aws_env: QUEUE, f"{aws_env}-dlq": DEAD_LETTERS}
        for name in ("good", "poison", "shaky"):
            await enqueue(database, name)
        relay = OutboxRelay(settings_of(dsn, url, of_relay), SystemClock())
        await relay.start()
        await until_states(database, dispatched=3)
        await relay.stop()
        await work(database, settings_of(dsn, url, of_worker), of_worker)
        assert used(of_relay, names) == granted("RelayPolicy")
        assert used(of_worker, names) == granted("WorkerPolicy")
        letters = GenerationDeadLetters(
            settings_of(dsn, url, of_operator), SystemClock(), short_poll_seconds=0
        )
        await look_after(database, letters)
        assert used(of_operator, names) == granted("OperatorPolicy")


async def look_after(database: Database, letters: GenerationDeadLetters) -> None:
    """Look at a letter, and send it back as one that SQS put aside by itself."""
    (letter,) = (await letters.look("generation", 10)).letters
    assert letter.code == "never"
    await database.execute("DELETE FROM airunner.outbox_effects")
    assert (await letters.redrive(Redrive(queue="generation", max_messages=10))).left == []


async def work(database: Database, settings: Settings, aws: StrictProxy) -> None:
    """Let a worker do a piece of work, put one aside and give one back."""

    async def good(payload: object) -> str:
        return "a picture"

    async def poison(payload: object) -> None:
        raise PermanentFailure("never")

    async def shaky(payload: object) -> None:
        raise OSError("not now")

    handlers = registry(good=good, poison=poison, shaky=shaky)
    worker = GenerationWorker(settings, handlers, SystemClock())
    working = asyncio.create_task(worker.run())
    await until_sessions(database, done=1, failed=1, running=1)
    await until(lambda: aws.counts.calls["ChangeMessageVisibilityBatch"] > 0, limit_seconds=60)
    await until(lambda: ("GetQueueAttributes", f"{queue_of(settings)}-dlq") in aws.counts.of_queues)
    worker.stop()
    await working


def settings_of(dsn: str, url: str, aws: StrictProxy) -> Settings:
    flags = {
        "postgres.dsn": dsn,
        "generation.queue_url": url,
        "store.aws.region": REGION,
        "store.aws.endpoint_url": aws.url,
        "store.aws.access_key_id": ACCESS_KEY,
        "store.aws.secret_access_key": SECRET_KEY,
    }
    return load_settings(environ={}, flags=flags).settings


def queue_of(settings: Settings) -> str:
    return str(settings.generation.queue_url).rpartition("/")[2]


def used(aws: StrictProxy, names: dict[str, str]) -> set[tuple[str, str]]:
    """Return the rights that the calls needed: one of many is that of one."""
    return {(operation.removesuffix("Batch"), names[queue]) for operation, queue in aws.counts.of_queues}


def granted(policy: str) -> set[tuple[str, str]]:
    document = resources("AWS::IAM::ManagedPolicy", GENERATION_PATH)[policy]["PolicyDocument"]
    return {
        (action.removeprefix("sqs:"), statement["Resource"]["Fn::GetAtt"])
        for statement in document["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
