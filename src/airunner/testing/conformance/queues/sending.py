"""Sending: every message has its own outcome, whatever it is sent with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument, MessageTooLarge
from airunner.queues.message_rules import MAX_MESSAGE_BYTES, MAX_SEND_DELAY_SECONDS
from airunner.queues.messages import NewMessage
from airunner.testing.conformance.queues.backend import take_all

if TYPE_CHECKING:
    from airunner.testing.conformance.queues.backend import QueueUnderTest


class SendConformance:
    """What becomes of messages that are sent."""

    async def test_a_message_arrives_as_it_was_sent(self, site: QueueUnderTest) -> None:
        body = 'line\n\ttab "quoted" \\ é 日本 \U0001f600'
        attributes = {"kind": "x", "note": "é"}
        (sent,) = await site.queue.send([NewMessage(body=body, attributes=attributes)])
        message = await site.receive_one()
        assert (message.message_id, message.body, message.attributes) == (sent, body, attributes)
        assert (message.receive_count, message.last_receive) == (1, False)
        assert message.sent_at > 0
        assert message.received_at == site.clock.now()

    async def test_more_than_one_call_takes_are_all_sent(self, site: QueueUnderTest) -> None:
        bodies = [f"{number}" for number in range(25)]
        ids = await site.send(*bodies)
        taken = await take_all(site.queue)
        assert {message.message_id: message.body for message in taken} == dict(zip(ids, bodies, strict=True))

    async def test_more_bytes_than_one_call_takes_are_all_sent(self, site: QueueUnderTest) -> None:
        bodies = [f"{number}{'é' * 60_000}" for number in range(12)]
        await site.send(*bodies)
        assert sorted(message.body for message in await take_all(site.queue)) == sorted(bodies)

    async def test_nothing_is_sent_of_nothing(self, site: QueueUnderTest) -> None:
        assert list(await site.queue.send([])) == []
        assert await site.receive() == []

    @pytest.mark.parametrize(
        ("message", "refusal"),
        [
            (NewMessage(body=""), InvalidArgument),
            (NewMessage(body="bell \a"), InvalidArgument),
            (NewMessage(body="half \ud83d"), InvalidArgument),
            (NewMessage(body="x", attributes={"kind": "\0"}), InvalidArgument),
            (NewMessage(body="x", delay_seconds=-1), InvalidArgument),
            (NewMessage(body="x", delay_seconds=MAX_SEND_DELAY_SECONDS + 1), InvalidArgument),
            (NewMessage(body="x" * (MAX_MESSAGE_BYTES + 1)), MessageTooLarge),
            (NewMessage(body="x", attributes={"kind": "é" * (MAX_MESSAGE_BYTES // 2)}), MessageTooLarge),
        ],
        ids=range(8),
    )
    async def test_one_that_no_queue_takes_fails_alone(
        self, site: QueueUnderTest, message: NewMessage, refusal: type[Exception]
    ) -> None:
        outcomes = await site.queue.send([NewMessage(body="a"), message, NewMessage(body="b")])
        assert [isinstance(outcome, str) for outcome in outcomes] == [True, False, True]
        assert isinstance(outcomes[1], refusal)
        assert sorted(message.body for message in await take_all(site.queue)) == ["a", "b"]

    async def test_a_delayed_message_comes_when_it_is_due(self, site: QueueUnderTest) -> None:
        await site.send("later", delay_seconds=60)
        site.advance(59)
        assert await site.receive() == []
        site.advance(1)
        assert (await site.receive_one()).body == "later"

    async def test_the_depth_tells_messages_apart(self, site: QueueUnderTest) -> None:
        await site.send("a", "b", "c")
        await site.send("later", delay_seconds=60)
        held = await site.receive(1)
        depth = await site.queue.depth()
        assert (depth.visible, depth.in_flight, depth.delayed) == (2, 1, 1)
        await site.queue.delete(held)
        site.advance(60)
        depth = await site.queue.depth()
        assert (depth.visible, depth.in_flight, depth.delayed) == (3, 0, 0)
