"""`airunner dlq` as an operator uses it, against a server on an emulated AWS."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import GenerationFailure
from airunner.postgres.pool import Database
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from tests.acceptance.command_line import CommandLine, serving
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.aws import client
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import enqueue

pytest_plugins = ("tests.support.aws",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody at a command line, and the queues that they look after."""

    person: CommandLine
    sqs: Any
    dead_url: str

    async def bury(self, *bodies: str) -> None:
        for body in bodies:
            await self.sqs.send_message(QueueUrl=self.dead_url, MessageBody=body)

    def submit(self) -> str:
        return self.person.text("submit", "--", "true")


@pytest.fixture
async def operator(tmp_path: Path, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[Operator]:
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_STORE__TYPE": "aws",
        "AIRUNNER_STORE__AWS__ENV": aws_env,
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"jobs_{aws_env}",
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": f"events_{aws_env}",
        "AIRUNNER_TOKEN_KEYS": "for-this-test-and-long-enough",
    }
    person = CommandLine(folder=tmp_path, variables=variables)
    person.text("aws", "provision")
    async with AsyncExitStack() as stack:
        sqs = await stack.enter_async_context(client("sqs", emulator.url))
        _, url = stack.enter_context(serving(person, "--no-auth"))
        found = await sqs.get_queue_url(QueueName=f"airunner-{aws_env}-default-dlq")
        operator = CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})
        yield Operator(person=operator, sqs=sqs, dead_url=found["QueueUrl"])


@pytest.mark.slow
async def test_an_operator_looks_sends_back_and_cleans_up(operator: Operator) -> None:
    person, job_id = operator.person, operator.submit()
    await operator.bury(letter(job_id), "a\ttab", "again")
    assert [line.split("\t")[:2] for line in person.text("dlq", "list", "default").splitlines()] == [
        ["unreadable body", "2"],
        ["job still open", "1"],
    ]
    groups = person.objects("dlq", "list", "default")
    assert [(each["reason"], each["messages"]) for each in groups] == [("unreadable", 2), ("job_open", 1)]
    shown = [line.split("\t") for line in person.text("dlq", "show", "default").splitlines()]
    assert sorted(row[-1] for row in shown) == sorted([letter(job_id), "a tab", "again"])
    told = person.run("dlq", "redrive", "default", "--dry-run").stderr.decode()
    assert "1 dead letters of queue default would be sent back: 1 job still open\n" in told
    done = person.run("dlq", "redrive", "default", "--rate", "100").stderr.decode()
    assert "1 dead letters of queue default sent back: 1 job still open\n" in done
    assert "2 left: unreadable body\n" in done
    assert await in_queue(operator) == 2


@pytest.mark.slow
async def test_purging_asks_first(operator: Operator) -> None:
    await operator.bury("one", "two")
    refused = operator.person.run("dlq", "purge", "default")
    assert refused.returncode == 2
    assert b"use --yes to delete" in refused.stderr
    told = operator.person.objects("dlq", "purge", "default", "--dry-run")
    assert sorted(each["body"] for each in told) == ["one", "two"]
    assert await in_queue(operator) == 2
    done = operator.person.run("dlq", "purge", "default", "--yes")
    assert b"2 dead letters of queue default deleted: 2 unreadable body\n" in done.stderr
    assert await in_queue(operator) == 0


@pytest.mark.slow
async def test_letters_of_generation_are_looked_at_by_code(
    tmp_path: Path, emulator: EmulatorProcess, aws_env: str, dsn: str, database: Database
) -> None:
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_POSTGRES__DSN": dsn,
    }
    session_id, another = [await enqueue(database, "paint") for _ in range(2)]
    failure = GenerationFailure(code="nsfw", reason="no such pictures")
    assert await SessionTable(database, "airunner").settle(session_id, failure)
    async with Aws(replace(options_of(emulator.url), clients=OF_A_QUEUE)) as account:
        dead_url, url = await make_queues(account, aws_env, 5)
        queue = SqsQueue(account, dead_url)
        body = {"id": session_id, "name": "paint", "payload": {}}
        await queue.send([
            NewMessage(body=json.dumps({**body, "failure": {"code": "nsfw"}})),
            NewMessage(body=json.dumps({**body, "id": another}), attributes={"reason": "unhandled"}),
        ])  # fmt: skip
        person = CommandLine(folder=tmp_path, variables={**variables, "SQS_MAIN_QUEUE_URL": url})
        with serving(person, "--no-auth") as (_, server):
            operator = CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": server})
            groups = operator.objects("dlq", "list", "generation")
            assert [(each["reason"], each["code"]) for each in groups] == [
                ("verdict", "nsfw"),
                ("no_verdict", "unhandled"),
            ]
            (shown,) = operator.objects("dlq", "show", "generation", "--code", "nsfw")
            assert shown["job_id"] == session_id
            done = operator.run("dlq", "redrive", "generation", "--all").stderr.decode()
            assert "1 dead letters of queue generation sent back: 1 work without a verdict: unhandled" in done
            assert "1 left: work with a verdict: nsfw\n" in done
            assert "airunner outbox rerun ID" in done
            emulator.advance(31)
            done = operator.run("dlq", "purge", "generation", "--code", "nsfw", "--yes").stderr.decode()
            assert "1 dead letters of queue generation deleted: 1 work with a verdict: nsfw" in done
        (message,) = await SqsQueue(account, url).receive(10)
        assert json.loads(message.body)["id"] == another


def test_a_store_without_dead_letters_says_so(user: CommandLine) -> None:
    done = user.run("dlq", "list", "default")
    assert done.returncode == 1
    assert b"airunner retry JOB" in done.stderr


def letter(job_id: str) -> str:
    return json.dumps({"job_id": job_id, "queue": "default", "attempt": 0})


async def in_queue(operator: Operator) -> int:
    """How many messages are there, hidden ones included."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = await operator.sqs.get_queue_attributes(QueueUrl=operator.dead_url, AttributeNames=names)
    return sum(int(count) for count in answer["Attributes"].values())
