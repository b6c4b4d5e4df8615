"""Dead letters of the generation queue, by code, on a real database and the double of SQS."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.cli.commands.dlq import _subject
from airunner.config import load_settings
from airunner.domain.answers import DeadLetterReason
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.domain.requests import Redrive
from airunner.generation.dead_letters import GenerationDeadLetters, generation_dead_letters
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import GenerationFailure
from airunner.postgres.pool import Database
from airunner.services.admin import AdminService
from airunner.stores.memory import MemoryStore
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import enqueue

pytest_plugins = ("tests.support.aws",)

V, N = DeadLetterReason.VERDICT, DeadLetterReason.NO_VERDICT


@dataclass(frozen=True, slots=True)
class Desk:
    database: Database
    account: Aws
    url: str
    dead_url: str
    admin: AdminService
    letters: GenerationDeadLetters
    """As a server has them."""

    async def bury(self, body: object, reason: str = "") -> None:
        attributes = {"reason": {"DataType": "String", "StringValue": reason}} if reason else {}
        text = body if isinstance(body, str) else json.dumps(body)
        await self.account.sqs(
            "SendMessage", QueueUrl=self.dead_url, MessageBody=text, MessageAttributes=attributes
        )

    async def bury_one_of_each(self) -> dict[str, str]:
        """Put letters aside, as workers and SQS do; return the ids of their work."""
        ids = {name: await enqueue(self.database, "paint") for name in ("nsfw", "unhandled", "abandoned")}
        failure = GenerationFailure(code="nsfw", reason="no such pictures")
        assert await SessionTable(self.database, "airunner").settle(ids["nsfw"], failure)
        bodies = {name: {"id": work_id, "name": "paint", "payload": {}} for name, work_id in ids.items()}
        # Its attribute is not what counts, and anybody may have written it.
        await self.bury({**bodies["nsfw"], "failure": {"code": "nsfw"}}, "another")
        await self.bury(bodies["unhandled"], "unhandled")
        await self.bury(bodies["abandoned"])
        await self.bury("no JSON", "undecodable")
        await self.bury({"id": str(uuid4()), "name": "paint", "payload": {}}, "unknown_session")
        return ids

    async def codes(self, code: str = "") -> dict[str, DeadLetterReason]:
        page = await self.admin.list_dead_letters("generation", code=code)
        return {letter.code: letter.reason for letter in page.letters}


@pytest.fixture
async def desk(
    database: Database, dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str, tmp_path: Path
) -> AsyncIterator[Desk]:
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        dead_url, url = await make_queues(account, aws_env, 5)
        environment = {"SQS_MAIN_QUEUE_URL": url, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": aws.url}
        keys = {"store.aws.access_key_id": ACCESS_KEY, "store.aws.secret_access_key": SECRET_KEY}
        flags = {"postgres.dsn": dsn, **keys}
        settings = load_settings(environ=environment, flags=flags, cwd=tmp_path).settings
        as_served = generation_dead_letters(settings, SystemClock())
        assert as_served
        admin = AdminService(MemoryStore(SystemClock()))
        letters = GenerationDeadLetters(settings, SystemClock(), short_poll_seconds=0)
        admin.add_dead_letters("generation", letters)
        yield Desk(database, account, url, dead_url, admin, as_served)


async def test_letters_are_listed_by_code_and_judged_by_the_ledger(desk: Desk) -> None:
    ids = await desk.bury_one_of_each()
    found = await desk.codes()
    assert found == {
        "nsfw": V,
        "unhandled": N,
        "abandoned": N,
        "undecodable": DeadLetterReason.UNREADABLE,
        "unknown_session": DeadLetterReason.JOB_NOT_FOUND,
    }
    assert await desk.codes("nsfw") == {"nsfw": V}
    page = await desk.letters.look("generation", 5, code="nsfw")
    assert [(letter.job_id, _subject(letter)) for letter in page.letters] == [
        (ids["nsfw"], "work with a verdict: nsfw")
    ]


async def test_a_letter_with_a_verdict_never_goes_back(desk: Desk) -> None:
    ids = await desk.bury_one_of_each()
    told = await desk.admin.redrive_dead_letters(Redrive(queue="generation", max_messages=9, dry_run=True))
    assert {letter.code for letter in told.redriven} == {"unhandled", "abandoned"}
    one = Redrive(queue="generation", max_messages=9, code="unhandled")
    done = await desk.admin.redrive_dead_letters(replace(one, dry_run=True))
    assert [letter.code for letter in done.redriven] == ["unhandled"]
    done = await desk.admin.redrive_dead_letters(Redrive(queue="generation", max_messages=9, all=True))
    assert [letter.code for letter in done.left] == ["nsfw"]
    assert {ids["unhandled"], ids["abandoned"]} <= set(await _all_ids(desk))


async def _all_ids(desk: Desk) -> set[str]:
    found: set[str] = set()
    answer = await desk.account.sqs("ReceiveMessage", QueueUrl=desk.url, MaxNumberOfMessages=10)
    for message in answer.get("Messages", ()):
        if message["Body"].startswith("{"):
            found.add(json.loads(message["Body"])["id"])
    return found


async def test_letters_of_one_code_are_purged(desk: Desk, emulator: EmulatorProcess) -> None:
    await desk.bury_one_of_each()
    gone = await desk.admin.purge_dead_letters("generation", code="nsfw", dry_run=True)
    assert [letter.code for letter in gone] == ["nsfw"]
    gone = await desk.admin.purge_dead_letters("generation", code="nsfw")
    assert [letter.code for letter in gone] == ["nsfw"]
    emulator.advance(31)
    assert set(await desk.codes()) == {"unhandled", "abandoned", "undecodable", "unknown_session"}


async def test_letters_that_nobody_can_judge_stay_to_be_seen(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.bury_one_of_each()

    async def fail(*_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr("airunner.postgres.pool.Database.fetch", fail)
        with pytest.raises(Unavailable):
            await desk.admin.list_dead_letters("generation")
    # They are not hidden for half a minute by a look that failed.
    assert len(await desk.codes()) == 5


async def test_other_queues_of_a_store_without_dead_letters_are_refused(desk: Desk) -> None:
    with pytest.raises(FailedPrecondition):
        await desk.admin.list_dead_letters("default")


@pytest.mark.parametrize(
    "flags",
    [{}, {"postgres.dsn": "postgresql://h/d"}, {"postgres.dsn": "postgresql://h/d", "outbox.sink": "jobs"}],
)
def test_a_server_without_the_queue_or_the_database_serves_none(
    tmp_path: Path, flags: dict[str, str]
) -> None:
    environment = {"SQS_MAIN_QUEUE_URL": "https://sqs.test/1/g"} if "outbox.sink" in flags else {}
    settings = load_settings(environ=environment, flags=flags, cwd=tmp_path).settings
    assert generation_dead_letters(settings, SystemClock()) is None
