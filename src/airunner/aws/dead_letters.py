"""A dead-letter queue on SQS: what is in it, sending it back and deleting it.

SQS has a task that moves messages, but it moves all of them and knows nothing of what they are about. Here
each message is received, judged, sent, and only then deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.aws import sqs
from airunner.aws.sqs import SqsEntry
from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
from airunner.domain.errors import AirunnerError
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.sqs import SqsMessage
    from airunner.domain.clock import Clock
    from airunner.domain.requests import Redrive

    Judge: TypeAlias = Callable[[Sequence[SqsMessage]], Awaitable[Sequence[DeadLetter]]]

_log = get_logger("airunner.aws")

_HIDDEN_SECONDS: Final = 30
_BUDGET_MS: Final = 10_000
_SHOWN_CHARACTERS: Final = 1024
_REDRIVES: Final = "redrives"


class DeadLetterBox:
    """The dead letters of one queue; a call ends after so many, after seconds, or when none comes."""

    def __init__(
        self,
        aws: Aws,
        queue: str,
        *,
        url: str,
        dead_url: str,
        judge: Judge,
        clock: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        """`judge` returns a letter for each message, best with `letter_of`; what it raises ends the call."""
        self._aws = aws
        self._queue = queue
        self._url = url
        self._dead_url = dead_url
        self._judge = judge
        self._clock = clock
        # Only a long poll asks all the servers of SQS.
        self._short_poll_seconds = short_poll_seconds

    async def look(self, max_messages: int, *, code: str = "") -> DeadLetterPage:
        """Look at messages and show them again; return those with a code, if one is given."""
        received = await self._receive(max_messages)
        await self._show_again(received)
        counts = await sqs.count_messages(self._aws, self._dead_url)
        total = max(len(received), counts["visible"] + counts["in_flight"])
        letters = [each.letter for each in received if code in ("", each.letter.code)]
        return DeadLetterPage(letters=letters, approximate_total=total)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send what is wanted back to its queue, in tens, and delete what was sent."""
        give_up_at = self._clock.now() + _BUDGET_MS
        chosen: dict[str, _ReceivedLetter] = {}
        left: dict[str, DeadLetter] = {}
        seen: list[_ReceivedLetter] = []
        while len(chosen) < redrive.max_messages and self._clock.now() < give_up_at:
            received = await self._receive_some(redrive.max_messages - len(chosen))
            if not received:
                break
            seen += received
            wanted = [each for each in received if redrive.wants(each.letter)]
            if not redrive.dry_run:
                wanted = await self._send_back(wanted)
            chosen |= {each.letter.message_id: each for each in wanted}
            left |= {each.letter.message_id: each.letter for each in received if each not in wanted}
        if redrive.dry_run:
            await self._show_again(seen)
        kept = [letter for message_id, letter in left.items() if message_id not in chosen]
        return Redriven(redriven=[each.letter for each in chosen.values()], left=kept)

    async def redrive_some(self, redrive: Redrive) -> Redriven:
        """Look at so many messages, send those that are wanted back, and show the others again."""
        received = await self._receive(redrive.max_messages)
        sent = await self._send_back([each for each in received if redrive.wants(each.letter)])
        gone = {each.letter.message_id for each in sent}
        left = [each for each in received if each.letter.message_id not in gone]
        await self._show_again(left)
        return Redriven(redriven=[each.letter for each in sent], left=[each.letter for each in left])

    async def purge(self, max_messages: int, *, dry_run: bool, code: str = "") -> Sequence[DeadLetter]:
        """Delete messages, those that were received only, and of a code if one is given.

        Others stay out of sight for half a minute, so that calls in a row come to an end.
        """
        received = await self._receive(max_messages, code)
        wanted = [each for each in received if code in ("", each.letter.code)]
        if dry_run:
            await self._show_again(received)
            return [each.letter for each in wanted]
        gone, errors = await self._delete(wanted)
        if errors and not gone:
            raise errors[0]
        return [each.letter for each in gone]

    async def _receive(self, max_messages: int, code: str = "") -> list[_ReceivedLetter]:
        """Receive until there is nothing more, or so many of a code; one that comes twice counts once."""
        found: dict[str, _ReceivedLetter] = {}
        give_up_at, count = self._clock.now() + _BUDGET_MS, 0
        while count < max_messages and self._clock.now() < give_up_at:
            received = await self._receive_some(max_messages - count)
            if not received:
                break
            found |= {each.letter.message_id: each for each in received}
            count = sum(code in ("", each.letter.code) for each in found.values())
        return list(found.values())

    async def _receive_some(self, count: int) -> list[_ReceivedLetter]:
        messages = await sqs.receive(
            self._aws,
            self._dead_url,
            count,
            wait_seconds=self._short_poll_seconds,
            visibility_seconds=_HIDDEN_SECONDS,
            system_attributes=["SentTimestamp"],
            attributes=["All"],
        )
        try:
            letters = await self._judge(messages) if messages else ()
        except BaseException:
            receipts = [message.receipt for message in messages]
            await sqs.change_visibility(self._aws, self._dead_url, receipts, 0)
            raise
        return [_ReceivedLetter(*pair) for pair in zip(letters, messages, strict=True)]

    async def _send_back(self, received: Sequence[_ReceivedLetter]) -> list[_ReceivedLetter]:
        """Send messages to their queue, one more redrive noted on each; return those that were sent.

        What was sent and could not be deleted comes here once more at most, and a second message is harmless.
        """
        again = [each.redriven() for each in received]
        entries = [
            SqsEntry(body=each.message.body, attributes={_REDRIVES: each.letter.redrives}) for each in again
        ]
        outcomes = await sqs.send(self._aws, self._url, entries)
        for outcome in outcomes:
            if isinstance(outcome, AirunnerError):
                _log.warning("aws.redrive_failed", queue=self._queue, error=outcome.text)
        sent = [each for each, outcome in zip(again, outcomes, strict=True) if isinstance(outcome, str)]
        await self._delete(sent)
        return sent

    async def _delete(
        self, received: Sequence[_ReceivedLetter]
    ) -> tuple[list[_ReceivedLetter], list[AirunnerError]]:
        """Delete messages; return those that are gone, and why others are not."""
        outcomes = await sqs.delete(self._aws, self._dead_url, [each.message.receipt for each in received])
        gone = [each for each, error in zip(received, outcomes, strict=True) if error is None]
        return gone, [error for error in outcomes if error]

    async def _show_again(self, received: Sequence[_ReceivedLetter]) -> None:
        """Make messages visible; one that cannot be is so in half a minute."""
        receipts = [each.message.receipt for each in received]
        await sqs.change_visibility(self._aws, self._dead_url, receipts, 0)


def letter_of(message: SqsMessage) -> DeadLetter:
    """Return what a message itself says of a letter; what it is about is for a judge to add."""
    return DeadLetter(
        message_id=message.message_id,
        sent_at=message.sent_at,
        redrives=_redrives(message),
        body=message.body[:_SHOWN_CHARACTERS],
        body_cut=len(message.body) > _SHOWN_CHARACTERS,
    )


@dataclass(frozen=True, slots=True)
class _ReceivedLetter:
    letter: DeadLetter
    message: SqsMessage

    def redriven(self) -> _ReceivedLetter:
        """Return the same with one more redrive."""
        return replace(self, letter=replace(self.letter, redrives=self.letter.redrives + 1))


def _redrives(message: SqsMessage) -> int:
    value = message.attributes.get(_REDRIVES, "")
    return int(value) if value.isascii() and value.isdigit() else 0
