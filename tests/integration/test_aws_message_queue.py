"""The message queue on SQS where SQS, or the way to it, fails; the rest is in the conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.domain.errors import (
    InternalError,
    InvalidArgument,
    PermanentFailure,
    ResourceExhausted,
    Unavailable,
)
from airunner.queues.messages import Message, MessageSource, NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.queues.backend import MAX_RECEIVE_COUNT
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of

pytest_plugins = ("tests.support.aws",)

BROKEN = PermanentFailure("broken", "it is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    account: Aws
    queue: SqsQueue
    dead_letters: SqsQueue
    clock: ManualClock
    url: str
    dead_url: str

    async def new_message(self, body: str = "a") -> Message:
        await self.queue.send([NewMessage(body=body)])
        (message,) = await self.queue.receive(1)
        return message

    async def letters(self) -> list[tuple[str, str]]:
        found = await self.dead_letters.receive(10)
        return [(message.body, message.attributes.get("reason", "")) for message in found]


@pytest.fixture
async def site(aws: StrictProxy, aws_env: str) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        dead_url, url = await make_queues(account, aws_env, MAX_RECEIVE_COUNT)
        aws.counts.reset()
        yield Site(
            account=account,
            queue=SqsQueue(account, url, clock=clock),
            dead_letters=SqsQueue(account, dead_url, clock=clock),
            clock=clock,
            url=url,
            dead_url=dead_url,
        )


async def test_the_redrive_policy_is_read_once(site: Site, aws: StrictProxy) -> None:
    for _ in range(3):
        await site.queue.receive(1)
    await site.queue.dead_letter(await site.new_message(), BROKEN)
    assert aws.counts.calls["GetQueueAttributes"] == 1


async def test_a_redrive_policy_that_cannot_be_read_is_asked_for_again(site: Site, aws: StrictProxy) -> None:
    aws.faults.next("GetQueueAttributes", FaultKind.THROTTLE, times=4)
    with pytest.raises(ResourceExhausted):
        await site.queue.receive(1)
    await site.queue.send([NewMessage(body="a")])
    assert len(await site.queue.receive(1)) == 1


async def test_a_hundred_messages_are_ten_sends_and_ten_deletes(site: Site, aws: StrictProxy) -> None:
    await site.queue.send([NewMessage(body=f"{number}") for number in range(100)])
    held = [message for _ in range(10) for message in await site.queue.receive(100)]
    assert await site.queue.delete(held) == [None] * 100
    assert aws.counts.calls["SendMessageBatch"] == aws.counts.calls["DeleteMessageBatch"] == 10


async def test_entries_that_sqs_fails_have_their_error_and_others_are_sent(
    site: Site, aws: StrictProxy
) -> None:
    aws.faults.next("SendMessageBatch", FaultKind.UNPROCESSED)
    outcomes = await site.queue.send([NewMessage(body=f"{number}") for number in range(10)])
    failed = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert 1 <= len(failed) < 10
    assert len(await site.queue.receive(10)) == 10 - len(failed)


async def test_a_send_that_fails_is_the_outcome_of_its_messages(site: Site, aws: StrictProxy) -> None:
    aws.faults.next("SendMessageBatch", FaultKind.THROTTLE, times=4)
    outcomes = await site.queue.send([NewMessage(body=f"{number}") for number in range(12)])
    assert [isinstance(outcome, ResourceExhausted) for outcome in outcomes] == [True] * 10 + [False] * 2


async def test_a_send_whose_reply_is_lost_is_there_twice(site: Site, aws: StrictProxy) -> None:
    aws.faults.next("SendMessage", FaultKind.EXECUTE_THEN_DROP)
    await site.queue.send([NewMessage(body="a")])
    assert [message.body for message in await site.queue.receive(10)] == ["a", "a"]


async def test_a_message_that_the_queue_itself_does_not_take_is_told_apart(site: Site) -> None:
    attributes = {str(number): "x" for number in range(11)}
    first, second = await site.queue.send([NewMessage(body="a", attributes=attributes), NewMessage(body="b")])
    assert isinstance(first, InvalidArgument)
    assert isinstance(second, str)


async def test_an_extension_that_fails_raises_and_does_not_mean_lost(site: Site, aws: StrictProxy) -> None:
    message = await site.new_message()
    aws.faults.next("ChangeMessageVisibilityBatch", FaultKind.RESET, times=4)
    with pytest.raises(Unavailable):
        await site.queue.extend(message, 30)
    assert await site.queue.extend(message, 30)


async def test_what_could_not_be_sent_to_the_dead_letter_queue_stays(site: Site, aws: StrictProxy) -> None:
    message = await site.new_message()
    aws.faults.next("SendMessage", FaultKind.THROTTLE, times=4)
    with pytest.raises(ResourceExhausted):
        await site.queue.dead_letter(message, BROKEN)
    assert aws.counts.calls["DeleteMessageBatch"] == 0
    assert await site.queue.extend(message, 30)
    assert await site.letters() == []


async def test_what_could_not_be_deleted_is_put_aside_twice_and_never_lost(
    site: Site, aws: StrictProxy, emulator: EmulatorProcess
) -> None:
    message = await site.new_message()
    aws.faults.next("DeleteMessageBatch", FaultKind.THROTTLE, times=4)
    with capture_logs() as logs:
        await site.queue.dead_letter(message, BROKEN)
    assert [line["key"] for line in logs if line["event"] == "dlq.delete_failed"] == [message.message_id]
    emulator.advance(31)
    (again,) = await site.queue.receive(1)
    await site.queue.dead_letter(again, BROKEN)
    assert await site.letters() == [("a", "broken")] * 2


async def test_a_message_without_room_for_a_reason_is_put_aside_without(site: Site) -> None:
    attributes = {str(number): "x" for number in range(10)}
    await site.queue.send([NewMessage(body="a", attributes=attributes)])
    (message,) = await site.queue.receive(1)
    await site.queue.dead_letter(message, BROKEN)
    (letter,) = await site.dead_letters.receive(1)
    assert (letter.body, letter.attributes) == ("a", attributes)


async def test_a_dead_letter_queue_that_is_gone_leaves_the_message(site: Site) -> None:
    message = await site.new_message()
    await site.account.sqs("DeleteQueue", QueueUrl=site.dead_url)
    with pytest.raises(InternalError):
        await site.queue.dead_letter(message, BROKEN)
    assert await site.queue.extend(message, 30)


async def test_a_dead_letter_queue_may_be_named_where_no_policy_does(site: Site) -> None:
    other = SqsQueue(site.account, site.dead_url, clock=site.clock, dead_letter_url=site.url)
    await other.send([NewMessage(body="a")])
    (message,) = await other.receive(1)
    assert not message.last_receive
    await other.dead_letter(message, BROKEN)
    (letter,) = await site.queue.receive(1)
    assert letter.attributes["reason"] == "broken"


async def test_an_ack_goes_on_until_everything_is_deleted(
    site: Site, aws: StrictProxy, emulator: EmulatorProcess
) -> None:
    source: MessageSource[int] = MessageSource(site.queue, int, clock=Hurried())
    await site.queue.send([NewMessage(body=f"{number}") for number in range(10)])
    deliveries = await source.receive(10)
    for _ in range(3):
        aws.faults.next("DeleteMessageBatch", FaultKind.UNPROCESSED)
    await source.ack([(delivery, None) for delivery in deliveries])
    assert aws.counts.calls["DeleteMessageBatch"] > 1
    emulator.advance(61)
    assert await site.queue.receive(10) == []


class Hurried(ManualClock):
    """A clock whose pauses are over at once."""

    async def sleep(self, seconds: float) -> None:
        pass
