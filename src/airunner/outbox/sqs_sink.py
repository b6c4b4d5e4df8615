"""The sink of message queues on SQS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.aws.errors import Refused
from airunner.aws.sqs import is_missing_queue
from airunner.domain.errors import AirunnerError, InternalError, InvalidArgument, MessageTooLarge, error_text
from airunner.domain.outcomes import prepare_entries
from airunner.domain.splitting import split_by_size
from airunner.outbox.rows import NotTried, Rejected, Sent
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.queues.message_rules import check_message
from airunner.queues.messages import NewMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.outbox.rows import ClaimedRow, SendOutcome
    from airunner.queues.messages import MessageQueue

MESSAGE_PREFIX: Final = "sqs:"
"""What the reference of a message begins with: nobody is to take it for a job if the sink changes."""
# No more than one call of SQS takes, so that each call has its own outcome.
_CALL_BYTES: Final = 250 * 1024
_NO_ADDRESS: Final = NotTried("the queue has no address: set generation.queue_url", queue_missing=True)


class SqsSink:
    """Sends rows to message queues, by the names that rows have for them."""

    max_rows = 10

    def __init__(self, queues: Mapping[str, MessageQueue]) -> None:
        self._queues = queues

    def knows(self, queue: str) -> bool:
        """Return whether a queue has an address, or is the one that may get it later."""
        return queue in self._queues or queue == GENERATION_QUEUE

    async def send(self, queue: str, rows: Sequence[ClaimedRow]) -> Sequence[SendOutcome]:
        """Send rows in one call, or in a few where they are large."""
        target = self._queues.get(queue)
        if target is None:
            return [_NO_ADDRESS] * len(rows)
        checked = prepare_entries(rows, lambda row: check_message(NewMessage(body=row.body)))
        messages = [entry for entry in checked if isinstance(entry, NewMessage)]
        outcomes: list[SendOutcome] = []
        for together in split_by_size(messages, lambda message: len(message.body.encode()), _CALL_BYTES):
            outcomes += await self._send(target, together)
        # What no queue ever takes is not in a call: how that ends is told by the others alone.
        sent = iter(outcomes)
        return [
            next(sent) if isinstance(entry, NewMessage) else _judge_message(entry, is_whole=False)
            for entry in checked
        ]

    async def _send(self, target: MessageQueue, messages: Sequence[NewMessage]) -> list[SendOutcome]:
        """Make one call. Where it is refused as a whole for what it holds, each message goes by itself."""
        answers = await target.send(messages)
        if len(messages) > 1 and _is_shared(answers) and isinstance(answers[0], InvalidArgument):
            return [outcome for message in messages for outcome in await self._send(target, [message])]
        is_whole = len(messages) == 1 or _is_shared(answers)
        return [_judge_message(answer, is_whole=is_whole) for answer in answers]


def _judge_message(answer: str | AirunnerError, *, is_whole: bool) -> SendOutcome:
    if isinstance(answer, str):
        return Sent(f"{MESSAGE_PREFIX}{answer}")
    if isinstance(answer, InvalidArgument | MessageTooLarge):
        return Rejected(answer.text, for_good=True)
    refused = answer if isinstance(answer, Refused) else None
    reason = f"SQS refuses it: {refused.code}" if refused else error_text(answer)
    if is_whole:
        return NotTried(reason, queue_missing=refused is not None and is_missing_queue(refused))
    # An entry that is the sender's fault is no better the next time.
    return Rejected(reason, for_good=isinstance(answer, InternalError))


def _is_shared(answers: Sequence[str | AirunnerError]) -> bool:
    """Return whether a call failed as a whole: all of its entries have one and the same error then."""
    return isinstance(answers[0], AirunnerError) and all(answer is answers[0] for answer in answers)
