"""Dead letters: a message is put aside with its reason, and is never lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import FailedPrecondition, PermanentFailure
from airunner.queues.messages import NewMessage
from airunner.testing.conformance.queues.backend import VISIBILITY_SECONDS, take_all

if TYPE_CHECKING:
    from airunner.testing.conformance.queues.backend import QueueUnderTest


class DeadLetterConformance:
    """What `dead_letter` leaves behind."""

    async def test_a_dead_letter_has_body_and_reason(self, site: QueueUnderTest) -> None:
        message = await site.new_message('{"job": 1}')
        await site.queue.dead_letter(message, PermanentFailure("user_not_found", "no user 7"))
        assert await site.letters() == [('{"job": 1}', "user_not_found", "no user 7")]
        site.advance(VISIBILITY_SECONDS)
        assert list(await site.receive()) == []

    async def test_a_dead_letter_keeps_its_attributes(self, site: QueueUnderTest) -> None:
        await site.queue.send([NewMessage(body="a", attributes={"trace": "t1"})])
        await site.queue.dead_letter(await site.receive_one(), PermanentFailure("broken"))
        (letter,) = await take_all(site.dead_letters)
        assert letter.attributes == {"trace": "t1", "reason": "broken", "error": "broken"}

    @pytest.mark.parametrize(
        ("code", "text", "told"),
        [
            ("", "", ("-", "-")),
            ("\0", "half \ud83d", ("\ufffd", "half \ufffd")),
            ("long", "é" * 2_000, ("long", "é" * 1_000)),
        ],
        ids=range(3),
    )
    async def test_any_reason_can_be_told(
        self, site: QueueUnderTest, code: str, text: str, told: tuple[str, str]
    ) -> None:
        await site.queue.dead_letter(await site.new_message("a"), PermanentFailure(code, text))
        assert await site.letters() == [("a", *told)]

    async def test_a_repeated_dead_letter_is_there_twice(self, site: QueueUnderTest) -> None:
        message = await site.new_message("a")
        for _ in range(2):
            await site.queue.dead_letter(message, PermanentFailure("broken"))
        assert [body for body, _, _ in await site.letters()] == ["a", "a"]

    async def test_one_that_was_received_again_stays(self, site: QueueUnderTest) -> None:
        old = await site.new_message("a")
        site.advance(VISIBILITY_SECONDS + 1)
        again = await site.receive_one()
        await site.queue.dead_letter(old, PermanentFailure("broken"))
        assert await site.queue.extend(again, VISIBILITY_SECONDS)

    async def test_a_queue_without_a_dead_letter_queue_keeps_the_message(self, site: QueueUnderTest) -> None:
        await site.dead_letters.send([NewMessage(body="a")])
        (message,) = await site.dead_letters.receive(1)
        with pytest.raises(FailedPrecondition, match="no dead-letter queue"):
            await site.dead_letters.dead_letter(message, PermanentFailure("broken"))
        assert await site.dead_letters.extend(message, VISIBILITY_SECONDS)
        assert not message.last_receive
