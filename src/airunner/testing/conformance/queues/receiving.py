"""Receiving: who gets a message, how often, and how long one waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from airunner.testing.conformance.queues.backend import (
    MAX_RECEIVE_COUNT,
    SHORT_WAIT_SECONDS,
    VISIBILITY_SECONDS,
)

if TYPE_CHECKING:
    from airunner.testing.conformance.queues.backend import QueueUnderTest


class ReceiveConformance:
    """What a receive returns."""

    async def test_an_empty_queue_has_nothing(self, site: QueueUnderTest) -> None:
        assert list(await site.receive()) == []

    async def test_no_more_than_were_wanted(self, site: QueueUnderTest) -> None:
        await site.send("a", "b", "c")
        assert len(await site.receive(2)) == 2
        assert len(await site.receive(2)) == 1

    async def test_a_message_is_hidden_until_its_visibility_timeout_is_over(
        self, site: QueueUnderTest
    ) -> None:
        first = await site.new_message("a")
        site.advance(VISIBILITY_SECONDS - 1)
        assert list(await site.receive()) == []
        site.advance(1)
        second = await site.receive_one()
        assert (second.message_id, second.body, second.sent_at) == (first.message_id, "a", first.sent_at)
        assert (first.receive_count, second.receive_count) == (1, 2)
        assert second.receipt != first.receipt

    async def test_the_last_receive_is_known_and_no_other_follows(self, site: QueueUnderTest) -> None:
        await site.send("a")
        seen: list[bool] = []
        for _ in range(MAX_RECEIVE_COUNT):
            seen.append((await site.receive_one()).last_receive)
            site.advance(VISIBILITY_SECONDS)
        assert seen == [False, False, True]
        assert list(await site.receive()) == []
        assert await site.letters() == [("a", "", "")]

    async def test_a_send_ends_a_waiting_receive(self, site: QueueUnderTest) -> None:
        waiting = await site.waiting_receive()
        await site.send("a")
        assert [message.body for message in await waiting] == ["a"]

    async def test_one_message_ends_one_of_two_waiting_receives(self, site: QueueUnderTest) -> None:
        waiting = [await site.waiting_receive(wait_seconds=SHORT_WAIT_SECONDS) for _ in range(2)]
        await site.send("a")
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        site.advance(SHORT_WAIT_SECONDS)
        assert [message.body for task in waiting for message in await task] == ["a"]

    async def test_a_waiting_receive_gets_what_is_released_or_due(self, site: QueueUnderTest) -> None:
        held = await site.new_message("released")
        await site.send("later", delay_seconds=10)
        waiting = await site.waiting_receive(1)
        await site.queue.release(held, 0)
        assert [message.body for message in await waiting] == ["released"]
        waiting = await site.waiting_receive(1)
        site.advance(10)
        assert [message.body for message in await waiting] == ["later"]

    async def test_a_wait_ends(self, site: QueueUnderTest) -> None:
        waiting = await site.waiting_receive(wait_seconds=SHORT_WAIT_SECONDS)
        assert not waiting.done()
        site.advance(SHORT_WAIT_SECONDS)
        assert list(await waiting) == []

    async def test_a_cancelled_receive_loses_nothing(self, site: QueueUnderTest) -> None:
        waiting = await site.waiting_receive()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await site.send("a")
        assert (await site.receive_at_last()).body == "a"
