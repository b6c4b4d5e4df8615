"""Dead-letter queues, from a message that nobody can read to its way back, through a server and a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.aws.calls import Aws, Refused
from airunner.client import AsyncClient
from airunner.domain.answers import MAX_REDRIVES, DeadLetterReason
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition, InvalidArgument
from airunner.domain.job import JobParams
from airunner.domain.requests import Redrive
from airunner.services.composition import Services
from airunner.services.queue_metrics import MESSAGES_INTERVAL_MS, QueueMetrics
from airunner.stores.aws.dead_letters.upkeep import LOOK_AGAIN_MS, LOOK_EVERY_MS, DeadLetterUpkeep
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_services
from tests.doubles.aws.emulator import REGION, EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import limit_receives
from tests.support.aws_stores import make_resources, make_store, options_of
from tests.support.scraping import Change, gauge_value
from tests.support.serving import serve

pytest_plugins = ("tests.support.aws",)

QUEUE = "builds"
FEW_RECEIVES = 5
ALL_TRIES = 4
NOBODY = "01a1deef-6ec3-767a-80ab-09316c849922"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server on the emulator, a client of it, and SQS as an operator's console shows it."""

    client: AsyncClient
    services: Services
    aws: Aws
    layout: Layout
    dead_url: str

    @property
    def url(self) -> str:
        return self.layout.queues[QUEUE]

    async def bury(self, *bodies: str, redrives: int = 0) -> None:
        """Put messages into the dead-letter queue."""
        attributes = {"redrives": {"DataType": "Number", "StringValue": str(redrives)}} if redrives else {}
        for body in bodies:
            await self.aws.sqs(
                "SendMessage", QueueUrl=self.dead_url, MessageBody=body, MessageAttributes=attributes
            )

    async def enqueue(self) -> str:
        """Add a job and take its message away; return its id."""
        job_id = (await self.client.enqueue(JobParams(command="true"), queue=QUEUE)).job_id
        assert await self.taken(self.url) == [job_id]
        return job_id

    async def taken(self, url: str) -> list[str]:
        """Receive and delete what is in a queue; return the jobs or bodies."""
        found: list[str] = []
        while messages := (await self.aws.sqs("ReceiveMessage", QueueUrl=url)).get("Messages", []):
            for message in messages:
                receipt = message["ReceiptHandle"]
                await self.aws.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt)
                found.append(job_in(message["Body"]))
        return found

    async def redrive(self, **options: Any) -> tuple[list[str], list[str]]:
        done = await self.client.redrive_dead_letters(Redrive(queue=QUEUE, max_messages=0, **options))
        return [each.body for each in done.redriven], [each.body for each in done.left]


@pytest.fixture
async def site(aws: StrictProxy, aws_env: str) -> AsyncIterator[Site]:
    layout, clock = await make_resources(aws.url, aws_env), SystemClock()
    async with (
        Aws(options_of(aws.url)) as account,
        make_services(make_store(aws.url, replace(layout, queues=named(layout)), clock), clock) as services,
        serve(services) as url,
        AsyncClient(url) as client,
    ):
        made = await account.sqs("CreateQueue", QueueName=layout.dead_letter_name(QUEUE))
        dead_url = made["QueueUrl"]
        yield Site(client=client, services=services, aws=account, layout=layout, dead_url=dead_url)


def named(layout: Layout) -> dict[str, str]:
    return {queue: layout.queues[queue] for queue in (QUEUE, "other")}


async def test_what_nobody_can_read_ends_there_and_is_told_apart(
    site: Site, emulator: EmulatorProcess
) -> None:
    await limit_receives(site.aws, site.url, FEW_RECEIVES)
    for body in ("no JSON", '{"job_id": "queue#builds"}', '{"job_id": ' + f'"{"x" * 3000}"' + "}"):
        await site.aws.sqs("SendMessage", QueueUrl=site.url, MessageBody=body)
    for _ in range(FEW_RECEIVES + 1):
        assert await site.client.dequeue(QUEUE, max_jobs=10, wait_seconds=0) == []
        emulator.advance(31)
    page = await site.client.list_dead_letters(QUEUE)
    assert [each.reason for each in page.letters] == [DeadLetterReason.UNREADABLE] * 3
    assert page.approximate_total == 3


async def test_letters_are_judged_by_the_row_of_their_job(site: Site) -> None:
    scheduled, ended = await site.enqueue(), await site.enqueue()
    await site.client.cancel_job(ended)
    await site.bury("nonsense", letter(NOBODY), letter(ended), letter(scheduled))
    page = await site.client.list_dead_letters(QUEUE)
    assert {each.job_id: each.reason for each in page.letters} == {
        "": DeadLetterReason.UNREADABLE,
        NOBODY: DeadLetterReason.JOB_NOT_FOUND,
        ended: DeadLetterReason.JOB_ENDED,
        scheduled: DeadLetterReason.JOB_OPEN,
    }
    assert all(each.sent_at for each in page.letters)
    # A look leaves everything as it was.
    assert len((await site.client.list_dead_letters(QUEUE)).letters) == 4


async def test_a_long_body_is_cut(site: Site) -> None:
    await site.bury("x" * 5000)
    (found,) = (await site.client.list_dead_letters(QUEUE)).letters
    assert (found.body, found.body_cut) == ("x" * 1024, True)


async def test_open_jobs_are_sent_back_and_can_be_done(site: Site, emulator: EmulatorProcess) -> None:
    job_id = await site.enqueue()
    await site.bury(letter(job_id), letter(NOBODY), "nonsense")
    redriven, left = await site.redrive()
    assert redriven == [letter(job_id)]
    assert sorted(left) == sorted([letter(NOBODY), "nonsense"])
    (held,) = await site.client.dequeue(QUEUE, wait_seconds=0)
    assert held.job.job_id == job_id
    # What was left shows again after a while, what was sent does not.
    emulator.advance(31)
    assert sorted(await site.taken(site.dead_url)) == sorted([NOBODY, "nonsense"])


async def test_all_means_all_but_those_that_come_back_again_and_again(site: Site) -> None:
    await site.bury("nonsense")
    await site.bury("loops", redrives=MAX_REDRIVES)
    assert await site.redrive(all=True) == (["nonsense"], ["loops"])
    (message,) = (
        await site.aws.sqs("ReceiveMessage", QueueUrl=site.url, MessageAttributeNames=["redrives"])
    )["Messages"]
    assert message["MessageAttributes"]["redrives"]["StringValue"] == "1"


async def test_a_dry_run_changes_nothing(site: Site) -> None:
    job_id = await site.enqueue()
    await site.bury(letter(job_id), "nonsense")
    assert await site.redrive(dry_run=True) == ([letter(job_id)], ["nonsense"])
    assert len(await site.client.purge_dead_letters(QUEUE, dry_run=True)) == 2
    assert await site.taken(site.url) == []
    assert sorted(await site.taken(site.dead_url)) == sorted([job_id, "nonsense"])


async def test_the_number_is_bounded(site: Site) -> None:
    await site.bury(*(f"{number}" for number in range(25)))
    assert len((await site.client.list_dead_letters(QUEUE, max_messages=12)).letters) == 12
    done = await site.client.redrive_dead_letters(Redrive(queue=QUEUE, max_messages=11, all=True))
    assert len(done.redriven) == 11
    assert len(await site.client.purge_dead_letters(QUEUE, max_messages=3)) == 3
    assert len(await site.taken(site.dead_url)) == 11
    with pytest.raises(InvalidArgument):
        await site.client.list_dead_letters(QUEUE, max_messages=1001)


async def test_a_message_that_cannot_be_sent_is_not_deleted(site: Site, aws: StrictProxy) -> None:
    job_id = await site.enqueue()
    await site.bury(letter(job_id))
    aws.faults.next("SendMessage", FaultKind.THROTTLE, times=4)
    assert await site.redrive() == ([], [letter(job_id)])
    assert aws.counts.calls["DeleteMessageBatch"] == 0


async def test_purging_leaves_jobs_alone(site: Site) -> None:
    job_id = await site.enqueue()
    await site.bury(letter(job_id), "nonsense")
    assert len(await site.client.purge_dead_letters(QUEUE)) == 2
    assert await site.taken(site.dead_url) == []
    assert not (await site.client.get_job(job_id)).state.terminal


async def test_a_queue_without_one_says_so(site: Site) -> None:
    await site.aws.sqs("DeleteQueue", QueueUrl=f"{site.layout.queues['other']}-dlq")
    with pytest.raises(
        FailedPrecondition, match=f"no dead-letter queue airunner-{site.layout.env}-other-dlq"
    ):
        await site.client.list_dead_letters("other")
    with pytest.raises(InvalidArgument, match="not configured"):
        await site.client.list_dead_letters("unknown")


async def test_messages_are_counted_once_a_minute(site: Site) -> None:
    clock = ManualClock()
    queue_metrics = QueueMetrics(site.services.jobs, clock, site.services.store.dead_letters)
    await site.enqueue()
    await site.client.enqueue(JobParams(command="true"), queue=QUEUE)
    await site.bury("nonsense")
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_messages, QUEUE, "visible") == 1
    assert telemetry.queue_dead_letters.read() == {(QUEUE,): 1, ("other",): 0}
    await site.bury("more")
    clock.advance(MESSAGES_INTERVAL_MS / 1000 - 1)
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_dead_letters, QUEUE) == 1
    clock.advance(1)
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_dead_letters, QUEUE) == 2


async def test_a_queue_that_is_gone_hides_the_numbers_of_no_other(site: Site) -> None:
    queue_metrics = QueueMetrics(site.services.jobs, ManualClock(), site.services.store.dead_letters)
    await site.aws.sqs("DeleteQueue", QueueUrl=site.layout.queues["other"])
    await site.bury("nonsense")
    with pytest.raises(Refused):
        await queue_metrics.run_once()
    assert telemetry.queue_dead_letters.read() == {(QUEUE,): 1}


def upkeep(site: Site, clock: ManualClock) -> DeadLetterUpkeep:
    assert isinstance(site.services.store, AwsStore)
    return DeadLetterUpkeep(site.services.store.dead_letters, (QUEUE,), clock)


async def test_letters_of_open_jobs_go_back_by_themselves(site: Site) -> None:
    open_job, ended = await site.enqueue(), await site.enqueue()
    await site.client.cancel_job(ended)
    await site.bury("nonsense", letter(ended), letter(open_job), letter(NOBODY))
    await site.bury(letter(open_job), redrives=MAX_REDRIVES)
    clock = ManualClock()
    tending = upkeep(site, clock)
    await tending.run_if_due()
    assert await site.taken(site.url) == []
    clock.advance(LOOK_EVERY_MS / 1000)
    await tending.run_if_due()
    assert await site.taken(site.url) == [open_job]
    # The others can be looked at meanwhile, and one that has come back three times is among them.
    assert sorted(await site.taken(site.dead_url)) == sorted(["nonsense", ended, NOBODY, open_job])


async def test_looking_after_dead_letters_costs_one_call_a_minute(site: Site, aws: StrictProxy) -> None:
    clock = ManualClock()
    tending = upkeep(site, clock)
    clock.advance(LOOK_EVERY_MS / 1000)
    await tending.run_if_due()
    aws.counts.reset()
    for _ in range(3):
        await tending.run_if_due()
        clock.advance(LOOK_EVERY_MS / 1000)
        await tending.run_if_due()
    assert aws.counts.calls == {"GetQueueAttributes": 3}


async def test_letters_that_stay_are_looked_at_now_and_then(site: Site, aws: StrictProxy) -> None:
    clock = ManualClock()
    tending = upkeep(site, clock)

    async def receives_after(milliseconds: int) -> int:
        aws.counts.reset()
        clock.advance(milliseconds / 1000)
        await tending.run_if_due()
        return aws.counts.calls["ReceiveMessage"]

    await site.bury("nonsense")
    assert await receives_after(LOOK_EVERY_MS) > 0
    assert await receives_after(LOOK_EVERY_MS) == 0
    await site.bury("another")
    assert await receives_after(LOOK_EVERY_MS) > 0
    assert await receives_after(LOOK_EVERY_MS) == 0
    assert await receives_after(LOOK_AGAIN_MS) > 0


async def test_a_dead_letter_queue_that_fails_hurts_nobody(site: Site, aws: StrictProxy) -> None:
    clock, failed = ManualClock(), Change(telemetry.aws_follow_ups_failed)
    await site.bury(letter(await site.enqueue()))
    tending = upkeep(site, clock)
    clock.advance(LOOK_EVERY_MS / 1000)
    aws.faults.next("GetQueueAttributes", FaultKind.THROTTLE, times=ALL_TRIES)
    await tending.run_if_due()
    assert failed() == 1
    assert await site.taken(site.url) == []


async def test_a_queue_that_puts_messages_aside_too_soon_is_named(site: Site) -> None:
    tending = upkeep(site, ManualClock())
    with structlog.testing.capture_logs() as logs:
        await tending.warn()
        assert logs == []
        await limit_receives(site.aws, site.url, 10)
        await tending.warn()
        await site.aws.sqs("SetQueueAttributes", QueueUrl=site.url, Attributes={"RedrivePolicy": ""})
        await tending.warn()
    found = [(line["event"], line["queue"], line["max_receive_count"], line["needed"]) for line in logs]
    assert found == [("aws.redrive_policy", QUEUE, 10, 1000), ("aws.redrive_policy", QUEUE, None, 1000)]


async def test_a_server_names_such_queues_when_it_opens(site: Site, aws: StrictProxy) -> None:
    layout = replace(site.layout, queues=named(site.layout))
    await limit_receives(site.aws, site.url, 10)
    with structlog.testing.capture_logs() as logs:
        store = make_store(aws.url, layout, SystemClock(), watches_parts=True)
        await store.open()
        await store.close()
        # Where SQS does not say, the server opens as well.
        aws.faults.add(Fault(operation="GetQueueAttributes", kind=FaultKind.RESET))
        store = make_store(aws.url, layout, SystemClock(), watches_parts=True)
        await store.open()
        await store.close()
    named_queues = [line["queue"] for line in logs if line["event"] == "aws.redrive_policy"]
    assert named_queues == [QUEUE]
    assert "aws.follow_up_failed" in {line["event"] for line in logs}


async def test_the_queue_s_policy_says_where_its_dead_letters_are(site: Site) -> None:
    made = await site.aws.sqs("CreateQueue", QueueName=f"{site.layout.env}-elsewhere")
    arn = f"arn:aws:sqs:{REGION}:123456789012:{site.layout.env}-elsewhere"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1000})
    await site.aws.sqs("SetQueueAttributes", QueueUrl=site.url, Attributes={"RedrivePolicy": policy})
    await site.aws.sqs("SendMessage", QueueUrl=made["QueueUrl"], MessageBody="over there")
    (found,) = (await site.client.list_dead_letters(QUEUE)).letters
    assert found.body == "over there"


async def test_other_stores_say_what_to_do_instead() -> None:
    clock = SystemClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services) as url,
        AsyncClient(url) as client,
    ):
        for call in (client.list_dead_letters("q"), client.purge_dead_letters("q")):
            with pytest.raises(FailedPrecondition, match="airunner retry JOB"):
                await call


def letter(job_id: str) -> str:
    return json.dumps({"job_id": job_id, "queue": QUEUE, "attempt": 0})


def job_in(body: str) -> str:
    try:
        return str(json.loads(body)["job_id"])
    except (ValueError, TypeError):
        return body
