"""Provisioning where AWS answers "not yet": what was made or deleted a moment ago, what is being changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.aws.calls import Aws, Refused
from airunner.aws.provision import Change, Resource, provision
from airunner.aws.table_meta import TableOwnership
from airunner.domain.errors import DeadlineExceeded, FailedPrecondition
from airunner.stores.aws.layout import Layout, owned_table, resources
from airunner.testing.clock import ManualClock
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import options_of

pytest_plugins = ("tests.support.aws",)

# In the order in which AWS may say so on the way to a new environment.
NEW = {
    "CreateQueue": ["QueueDeletedRecently", "", "DeadLetterTargetDoesNotExist"],
    "GetQueueAttributes": ["NonExistentQueue", "", "QueueDoesNotExist"],
    "DescribeTable": ["ResourceNotFoundException"],
    "UpdateTimeToLive": ["ResourceInUseException"],
    "UpdateContinuousBackups": ["ContinuousBackupsUnavailableException"],
    "CreateBucket": ["OperationAborted"],
}


class Hesitant(Aws):
    """An account that answers calls of an operation with these codes first; an empty one is no refusal."""

    def __init__(self, account: Aws, codes: Mapping[str, Sequence[str]]) -> None:
        self._account = account
        self._codes = {operation: list(each) for operation, each in codes.items()}
        self.calls: Counter[str] = Counter()

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self._hesitate(operation, arguments)
        return await self._account.dynamodb(operation, **arguments)

    async def sqs(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self._hesitate(operation, arguments)
        return await self._account.sqs(operation, **arguments)

    async def s3(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self._hesitate(operation, arguments)
        return await self._account.s3(operation, **arguments)

    def _hesitate(self, operation: str, arguments: Mapping[str, Any]) -> None:
        self.calls[operation] += 1
        waiting = self._codes.get(operation)
        if waiting and (code := waiting.pop(0)):
            is_fault = code not in arguments.get("expected", ())
            assert is_fault == (code == "AccessDeniedException"), "what is logged as a fault"
            raise Refused(code)

    @property
    def left(self) -> list[str]:
        return [code for codes in self._codes.values() for code in codes]


class HurriedClock(ManualClock):
    """A clock whose pauses are over at once, and are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
async def account(aws: StrictProxy) -> AsyncIterator[Aws]:
    async with Aws(replace(options_of(aws.url), attempts=1, validate=True)) as opened:
        yield opened


@pytest.fixture
def layout(aws_env: str) -> Layout:
    return Layout(env=aws_env, bucket=f"payloads-{aws_env}")


def insistent(aws: StrictProxy) -> Aws:
    """Return an account whose calls are repeated once."""
    return Aws(replace(options_of(aws.url), attempts=2, validate=True))


async def make(
    account: Aws, layout: Layout, *, clock: ManualClock | None = None, seconds: float = 300
) -> list[Resource]:
    return await provision(account, resources(layout), clock or HurriedClock(), deadline_seconds=seconds)


async def test_everything_is_made_however_often_it_is_not_yet_time(account: Aws, layout: Layout) -> None:
    hesitant, clock = Hesitant(account, NEW), HurriedClock()
    with capture_logs() as logs:
        made = await make(hesitant, layout, clock=clock)
    assert hesitant.left == []
    assert {each.change for each in made} == {Change.CREATED}
    assert all(each.arn for each in made)
    queue = f"airunner-{layout.env}-default"
    assert [(entry["resource"], entry["waits_for"]) for entry in logs] == [
        (f"dead-letter queue {queue}-dlq", "the minute after the deletion of a queue of this name"),
        (f"dead-letter queue {queue}-dlq", "it to be known"),
        (f"queue {queue}", "its dead-letter queue to be known"),
        (f"queue {queue}", "it to be known"),
        (f"table {layout.jobs_table}", "another change of it to end"),
        (f"the backup of table {layout.jobs_table}", "its backups to begin"),
        (f"bucket {layout.bucket}", "another change of it to end"),
    ]
    assert {entry["log_level"] for entry in logs} == {"info"}
    assert set(clock.pauses) == {1.0}


async def test_queues_and_tables_that_take_their_time_on_the_double(
    aws: StrictProxy, emulator: EmulatorProcess, account: Aws, layout: Layout
) -> None:
    """The same as AWS does it: by its clock, in the order of its answers."""

    class PassingClock(HurriedClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            emulator.advance(seconds)

    clock = PassingClock()
    conditions = aws.conditions
    conditions.new_queue_seconds, conditions.deleted_queue_seconds = 1, 60
    conditions.backups_refused = 1
    first = await make(account, layout, clock=clock)
    for queue in first[:2]:
        await account.sqs("DeleteQueue", QueueUrl=queue.url)
    conditions.looks_after_update = ("ACTIVE", "UPDATING")
    again = await make(account, replace(layout, deletion_protection=True, streams=True), clock=clock)
    assert [each.change for each in again[:2]] == [Change.CREATED] * 2
    assert sum(clock.pauses) > 60
    assert [each.details for each in again[2:4]] == [
        ("DeletionProtectionEnabled",),
        ("DeletionProtectionEnabled", "StreamSpecification"),
    ]


async def test_the_url_of_a_new_queue_is_that_of_the_answer(account: Aws, layout: Layout) -> None:
    hesitant = Hesitant(account, {})
    made = await make(hesitant, layout)
    assert hesitant.calls["GetQueueUrl"] == 0
    assert [each.url.rpartition("/")[2] for each in made[:2]] == [each.name for each in made[:2]]


async def test_a_queue_that_is_still_listed_after_its_deletion_is_made_again(
    account: Aws, layout: Layout
) -> None:
    await make(account, layout)
    made = await make(Hesitant(account, {"GetQueueAttributes": ["NonExistentQueue"]}), layout)
    assert made[0].change is Change.CREATED


async def test_a_table_that_is_being_deleted_is_made_once_it_is_gone(account: Aws, layout: Layout) -> None:
    class Deleting(Hesitant):
        looks = 0

        async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
            if operation == "ListTables":
                return {"TableNames": [layout.jobs_table]}
            if operation == "DescribeTable" and arguments["TableName"] == layout.jobs_table:
                self.looks += 1
                if self.looks <= 2:
                    return {"Table": {"TableStatus": "DELETING"}}
            return await super().dynamodb(operation, **arguments)

    clock = HurriedClock()
    deleting = Deleting(account, {"DescribeTable": ["ResourceNotFoundException"]})
    ours = TableOwnership(
        Deleting(account, {"GetItem": ["ResourceNotFoundException"]}), owned_table(layout), ""
    )
    await ours.refuse_others()
    made = {each.name: each.change for each in await make(deleting, layout, clock=clock)}
    assert made[layout.jobs_table] is Change.CREATED
    assert clock.pauses[0] == 1.0


async def test_a_table_that_looks_active_before_it_is_changed_is_changed_all_the_same(
    account: Aws, layout: Layout
) -> None:
    await make(account, layout)
    busy = Hesitant(account, {"UpdateTable": ["ResourceInUseException"] * 3})
    made = await make(busy, replace(layout, deletion_protection=True, streams=True))
    details = {each.name: each.details for each in made}
    assert details[layout.jobs_table] == ("DeletionProtectionEnabled",)
    assert details[layout.events_table] == ("DeletionProtectionEnabled", "StreamSpecification")


async def test_what_is_not_ready_in_time_is_said_with_its_reason(account: Aws, layout: Layout) -> None:
    never = Hesitant(account, {"CreateQueue": ["QueueDeletedRecently"] * 2})
    with pytest.raises(DeadlineExceeded) as late:
        await make(never, layout, seconds=0)
    assert late.value.text == (
        f"dead-letter queue airunner-{layout.env}-default-dlq still waits for the minute after the deletion "
        "of a queue of this name; run the command again"
    )


async def test_a_refusal_that_does_not_pass_is_not_repeated(account: Aws, layout: Layout) -> None:
    clock = HurriedClock()
    with pytest.raises(Refused, match="Internal"):
        await make(Hesitant(account, {"CreateTable": ["AccessDeniedException"]}), layout, clock=clock)
    assert clock.pauses == []


# Answers that are lost


@pytest.mark.parametrize(
    "operation",
    ["CreateQueue", "CreateTable", "UpdateTimeToLive", "UpdateContinuousBackups", "PutBucket"],
)
async def test_what_was_made_by_a_call_whose_answer_is_lost_is_taken_for_made(
    aws: StrictProxy, layout: Layout, operation: str
) -> None:
    aws.faults.next(operation, FaultKind.EXECUTE_THEN_DROP)
    async with insistent(aws) as account:
        made = await make(account, layout)
        assert {each.change for each in made} == {Change.CREATED}
        assert all(each.arn and not each.details for each in made)
        assert {each.change for each in await make(account, layout)} == {Change.UNCHANGED}


async def test_a_stream_that_was_turned_on_by_a_call_whose_answer_is_lost(
    aws: StrictProxy, account: Aws, layout: Layout
) -> None:
    await make(account, layout)
    aws.faults.next("UpdateTable", FaultKind.EXECUTE_THEN_DROP)
    async with insistent(aws) as again:
        made = await make(again, replace(layout, streams=True))
    assert [each.details for each in made if each.details] == [("StreamSpecification",)]


async def test_a_table_that_another_has_made_meanwhile_is_taken_if_it_is_as_wanted(
    aws: StrictProxy, account: Aws, layout: Layout
) -> None:
    """The listing before did not show it yet: that of AWS is a moment behind."""

    class Unlisted(Hesitant):
        async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
            reply = await super().dynamodb(operation, **arguments)
            return {"TableNames": []} if operation == "ListTables" else reply

    await make(account, layout)
    made = await make(Unlisted(account, {}), replace(layout, streams=True))
    assert {each.change for each in made[2:4]} == {Change.CREATED}
    assert {each.change for each in await make(account, replace(layout, streams=True))} == {Change.UNCHANGED}
    others = replace(layout, jobs_table=layout.events_table, events_table=f"more_{layout.env}")
    with pytest.raises(FailedPrecondition, match=f"table {layout.events_table} has the key"):
        await make(Unlisted(account, {}), others)


# What an operator has chosen


async def test_a_key_of_kms_encrypts_a_queue_as_well(account: Aws, layout: Layout) -> None:
    made = await make(account, layout)
    theirs = {"KmsMasterKeyId": "alias/ours"}
    for queue in made[:2]:
        await account.sqs("SetQueueAttributes", QueueUrl=queue.url, Attributes=theirs)
    assert {each.change for each in (await make(account, layout))[:2]} == {Change.UNCHANGED}


@pytest.mark.parametrize(("found", "kept"), [(3, False), (5_000, True)])
async def test_a_small_receive_count_is_raised_and_a_large_one_stays(
    account: Aws, layout: Layout, found: int, kept: bool
) -> None:
    dead_letters, queue = (await make(account, layout))[:2]
    policy = f'{{"deadLetterTargetArn": "{dead_letters.arn}", "maxReceiveCount": "{found}"}}'
    await account.sqs("SetQueueAttributes", QueueUrl=queue.url, Attributes={"RedrivePolicy": policy})
    again = (await make(account, layout))[1]
    assert again.details == (() if kept else ("RedrivePolicy",))


async def test_a_bucket_of_somebody_else_is_refused_in_a_line(account: Aws, layout: Layout) -> None:
    for code in ("403", "301"):
        with pytest.raises(FailedPrecondition, match=f"bucket {layout.bucket} exists, but cannot be used"):
            await make(Hesitant(account, {"HeadBucket": [code]}), layout)
