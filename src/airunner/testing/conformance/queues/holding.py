"""Holding a message: extending, releasing, deleting, and what an old receipt is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.queues.message_rules import MAX_HOLD_SECONDS
from airunner.testing.conformance.queues.backend import VISIBILITY_SECONDS

if TYPE_CHECKING:
    from airunner.testing.conformance.queues.backend import QueueUnderTest


class HoldConformance:
    """What whoever received a message can do with it, and until when."""

    async def test_an_extended_message_stays_hidden(self, site: QueueUnderTest) -> None:
        message = await site.new_message()
        for _ in range(3):
            site.advance(VISIBILITY_SECONDS - 1)
            assert await site.queue.extend(message, VISIBILITY_SECONDS)
            assert list(await site.receive()) == []
        site.advance(VISIBILITY_SECONDS)
        assert (await site.receive_one()).receive_count == 2

    async def test_what_is_not_held_cannot_be_extended(self, site: QueueUnderTest) -> None:
        lapsed = await site.new_message()
        site.advance(VISIBILITY_SECONDS + 1)
        assert not await site.queue.extend(lapsed, VISIBILITY_SECONDS)
        again = await site.receive_one()
        assert not await site.queue.extend(lapsed, VISIBILITY_SECONDS)
        assert await site.queue.extend(again, VISIBILITY_SECONDS)
        await site.queue.delete([again])
        assert not await site.queue.extend(again, VISIBILITY_SECONDS)

    async def test_no_receive_holds_a_message_for_ever(self, site: QueueUnderTest) -> None:
        message = await site.new_message()
        assert await site.queue.extend(message, MAX_HOLD_SECONDS)
        site.advance(MAX_HOLD_SECONDS - 100)
        assert await site.queue.extend(message, VISIBILITY_SECONDS + 100)
        site.advance(99)
        assert list(await site.receive()) == []
        site.advance(1)
        assert not await site.queue.extend(message, VISIBILITY_SECONDS)
        assert (await site.receive_one()).receive_count == 2

    async def test_a_released_message_is_there_at_once(self, site: QueueUnderTest) -> None:
        await site.queue.release(await site.new_message(), 0)
        assert (await site.receive_one()).receive_count == 2

    async def test_a_released_message_comes_after_its_delay(self, site: QueueUnderTest) -> None:
        message = await site.new_message()
        site.advance(VISIBILITY_SECONDS - 1)
        await site.queue.release(message, 59.5)
        site.advance(59)
        assert list(await site.receive()) == []
        site.advance(1)
        assert (await site.receive_one()).receive_count == 2

    async def test_a_delay_beyond_the_limit_is_cut(self, site: QueueUnderTest) -> None:
        await site.queue.release(await site.new_message(), 10 * MAX_HOLD_SECONDS)
        site.advance(MAX_HOLD_SECONDS - 5)
        assert list(await site.receive()) == []
        site.advance(5)
        assert (await site.receive_one()).receive_count == 2

    async def test_a_release_by_an_old_receipt_changes_nothing(self, site: QueueUnderTest) -> None:
        old = await site.new_message()
        site.advance(VISIBILITY_SECONDS + 1)
        await site.receive_one()
        await site.queue.release(old, 0)
        assert list(await site.receive()) == []

    async def test_a_deleted_message_never_comes_again(self, site: QueueUnderTest) -> None:
        message = await site.new_message()
        assert list(await site.queue.delete([message])) == [None]
        assert list(await site.queue.delete([message])) == [None]
        site.advance(VISIBILITY_SECONDS)
        assert list(await site.receive()) == []

    async def test_many_are_deleted_in_one_call(self, site: QueueUnderTest) -> None:
        await site.send(*(f"{number}" for number in range(25)))
        held = [message for _ in range(3) for message in await site.receive()]
        assert list(await site.queue.delete(held)) == [None] * 25
        site.advance(VISIBILITY_SECONDS)
        assert list(await site.receive()) == []

    async def test_a_message_whose_timeout_is_over_can_still_be_deleted(self, site: QueueUnderTest) -> None:
        message = await site.new_message()
        site.advance(VISIBILITY_SECONDS + 1)
        await site.queue.delete([message])
        assert list(await site.receive()) == []

    async def test_an_old_receipt_deletes_nothing(self, site: QueueUnderTest) -> None:
        old = await site.new_message()
        site.advance(VISIBILITY_SECONDS + 1)
        await site.receive_one()
        assert list(await site.queue.delete([old])) == [None]
        site.advance(VISIBILITY_SECONDS + 1)
        assert (await site.receive_one()).receive_count == 3
