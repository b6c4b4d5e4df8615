"""The dead-letter queues of job queues: each letter is judged by the row of its job."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.aws import sqs
from airunner.aws.dead_letters import DeadLetterBox, letter_of
from airunner.domain.answers import DeadLetterReason, MessageCounts
from airunner.domain.errors import AirunnerError, FailedPrecondition
from airunner.domain.job import JobState
from airunner.domain.requests import Redrive
from airunner.stores.aws.items import number_if_any
from airunner.stores.aws.wakeups import job_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.sqs import RedrivePolicy, SqsMessage
    from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages

_ENDS: Final = frozenset(int(state) for state in JobState if state.terminal)


class DeadLetterQueues:
    """What the store says of dead letters, queue by queue."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        messages: Messages,
        real_clock: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._messages = messages
        self._real_clock = real_clock
        self._short_poll_seconds = short_poll_seconds
        self._urls: dict[str, str] = {}

    async def look(self, queue: str, max_messages: int, *, code: str = "") -> DeadLetterPage:
        """Look at messages and show them again."""
        return await (await self._box(queue)).look(max_messages, code=code)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send what is wanted back to its queue, in tens, and delete what was sent."""
        return await (await self._box(redrive.queue)).redrive(redrive)

    async def redrive_open(self, queue: str, max_messages: int) -> Redriven:
        """Look at so many messages, send those of open jobs back, and show the others again."""
        return await (await self._box(queue)).redrive_some(Redrive(queue=queue, max_messages=max_messages))

    async def purge(
        self, queue: str, max_messages: int, *, dry_run: bool, code: str = ""
    ) -> Sequence[DeadLetter]:
        """Delete messages, those that were received only."""
        return await (await self._box(queue)).purge(max_messages, dry_run=dry_run, code=code)

    async def read_policy(self, queue: str) -> RedrivePolicy | None:
        """Return where a queue puts messages aside and after how many receives, None if nowhere."""
        return await sqs.read_redrive_policy(self._aws, self._messages.url(queue))

    async def count_dead(self, queue: str) -> int:
        """Ask SQS how many messages can be received from a dead-letter queue; 0 where there is none."""
        try:
            return (await sqs.count_messages(self._aws, await self._url(queue)))["visible"]
        except FailedPrecondition:
            return 0

    async def count(self) -> Sequence[MessageCounts | AirunnerError]:
        """Ask SQS for the counts of each queue and its dead-letter queue."""
        return await asyncio.gather(*map(self._count, self._layout.queues))

    async def _count(self, queue: str) -> MessageCounts | AirunnerError:
        try:
            own = await sqs.count_messages(self._aws, self._messages.url(queue))
            return MessageCounts(queue=queue, dead_letters=await self.count_dead(queue), **own)
        except AirunnerError as error:
            return error

    async def _box(self, queue: str) -> DeadLetterBox:
        dead_url = await self._url(queue)
        return DeadLetterBox(
            self._aws,
            queue,
            url=self._messages.url(queue),
            dead_url=dead_url,
            judge=self._judge,
            clock=self._real_clock,
            short_poll_seconds=self._short_poll_seconds,
        )

    async def _judge(self, messages: Sequence[SqsMessage]) -> list[DeadLetter]:
        job_ids = {job_id_of(message.body) for message in messages} - {""}
        rows = await self._rows.read_many(
            sorted(job_ids),
            ProjectionExpression="job_id, #state",
            ExpressionAttributeNames={"#state": "state"},
        )
        return [_letter(message, rows) for message in messages]

    async def _url(self, queue: str) -> str:
        """Return the address of the queue that the redrive policy names, or else of that with our name."""
        self._messages.check_queue(queue)
        if queue not in self._urls:
            policy = await self.read_policy(queue)
            name = policy.dead_letter_name if policy else self._layout.dead_letter_name(queue)
            if not (url := await sqs.find_queue(self._aws, name)):
                raise FailedPrecondition(f"queue {queue} has no dead-letter queue {name}")
            self._urls[queue] = url
        return self._urls[queue]


def _letter(message: SqsMessage, rows: dict[str, Item]) -> DeadLetter:
    job_id = job_id_of(message.body)
    return replace(letter_of(message), job_id=job_id, reason=_reason(job_id, rows.get(job_id)))


def _reason(job_id: str, row: Item | None) -> DeadLetterReason:
    if not job_id:
        return DeadLetterReason.UNREADABLE
    if row is None:
        return DeadLetterReason.JOB_NOT_FOUND
    # A state that nobody here knows is none of the ends: a newer server may go on with the job.
    ended = number_if_any(row, "state") in _ENDS
    return DeadLetterReason.JOB_ENDED if ended else DeadLetterReason.JOB_OPEN
