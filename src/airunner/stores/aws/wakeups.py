"""SQS as what it is here: a wake-up. The row decides; a message only says which row is worth a look."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.aws import sqs
from airunner.aws.calls import Refused
from airunner.aws.sqs import SqsEntry
from airunner.domain.errors import AirunnerError, FailedPrecondition, InvalidArgument, Unavailable
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.background import BackgroundTasks
    from airunner.domain.clock import Clock
    from airunner.stores.aws.layout import Layout

_log = get_logger("airunner.aws")

GIVE_BACK_SECONDS: Final = (1, 5)
"""How long what came for nobody stays hidden: drawn anew each time, so that it does not go round at once."""

# What was received and lost on its way to us comes back after this; a claim prolongs it.
_RECEIVED_SECONDS: Final = 30
# How much later than SQS we may have noted a receive: a reply or our loop may be slow.
_LATE_SECONDS: Final = 30
_MOST_REMEMBERED: Final = 10_000
# Other items of the table have a # in their keys.
_JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class ReceivedWake:
    """A message that was received; the job id is empty when nobody can read the body."""

    job_id: str
    receipt: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A message to send: that a job is worth a look, now or after a while."""

    job_id: str
    attempt: int
    delay_seconds: int = 0


class Messages:
    """The queues. Sending and receiving is waited for; extending and deleting follows, best effort.

    A message too many is harmless and one too few is sent again by the reconciler, so nothing here decides
    anything.
    """

    def __init__(
        self, aws: Aws, layout: Layout, background_tasks: BackgroundTasks, *, real_clock: Clock
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._background_tasks = background_tasks
        self._real_clock = real_clock
        self._receipts = _Receipts(real_clock)
        self._urls = {queue: url for queue, url in layout.queues.items() if url}
        self._deletes: dict[str, list[str]] = {}
        self._extending: dict[str, asyncio.Task[None]] = {}

    def check_queue(self, queue: str) -> str:
        """Return the name of a queue if there is one."""
        if queue not in self._layout.queues:
            raise InvalidArgument(f"queue {queue} is not configured on this server: see store.sqs.queues")
        return queue

    async def open(self) -> None:
        """Find the queues that are configured by their names."""
        for queue in self._layout.queues:
            if queue not in self._urls:
                name = self._layout.queue_name(queue)
                if not (url := await sqs.find_queue(self._aws, name)):
                    raise FailedPrecondition(
                        f"queue {queue}: SQS has no queue {name}; 'airunner aws provision' creates it"
                    )
                self._urls[queue] = url

    def url(self, queue: str) -> str:
        """Return the address of a queue."""
        return self._urls[queue]

    async def send(self, queue: str, wakes: Sequence[Wake]) -> list[bool]:
        """Send messages; return for each whether it was sent. A failure is no error: the row is there.

        Nothing is sent to a queue that is not configured any more.
        """
        if queue not in self._urls:
            return [False] * len(wakes)
        entries = [SqsEntry(body=_body(queue, wake), delay_seconds=wake.delay_seconds) for wake in wakes]
        outcomes = await sqs.send(self._aws, self._urls[queue], entries)
        errors = [outcome for outcome in outcomes if isinstance(outcome, AirunnerError)]
        if errors:
            _log.warning("aws.send_failed", queue=queue, messages=len(errors), error=errors[0].text)
        telemetry.aws_sends_failed.add(len(errors))
        return [isinstance(outcome, str) for outcome in outcomes]

    async def receive(self, queue: str, count: int, wait_seconds: int) -> list[ReceivedWake]:
        """Return messages; they stay invisible for half a minute. Unavailable while SQS has no such queue."""
        try:
            received = await sqs.receive(
                self._aws,
                self._urls[queue],
                count,
                wait_seconds=wait_seconds,
                visibility_seconds=_RECEIVED_SECONDS,
            )
        except Refused as refused:
            if not sqs.is_missing_queue(refused):
                raise
            raise Unavailable(
                f"queue {queue} does not exist in SQS; 'airunner aws provision' creates it"
            ) from None
        self._receipts.received(message.receipt for message in received)
        return [ReceivedWake(job_id_of(message.body), message.receipt) for message in received]

    async def give_back(self, queue: str, receipts: Sequence[str]) -> None:
        """Make messages visible again that may not be claimed now, after a moment."""
        await self.show_again(queue, receipts, random.randint(*GIVE_BACK_SECONDS))  # noqa: S311  spreads load

    async def show_again(self, queue: str, receipts: Sequence[str], seconds: int = 0) -> None:
        """Make messages visible after so long; what cannot be done shows by itself later.

        An extension that is still on its way is waited for: after us, it would hide what we show.
        """
        await self._hide(queue, receipts, seconds, self._extensions(receipts))

    def extend_later(self, queue: str, receipts: Sequence[str], seconds: int) -> None:
        """Keep messages invisible for so long from now, or as long as SQS grants, while others go on."""
        receipts = self._receipts.extendable(receipts)
        if not receipts:
            return
        hiding = self._hide(queue, receipts, seconds, self._extensions(receipts))
        extending = self._background_tasks.begin("extend", hiding)
        self._extending.update(dict.fromkeys(receipts, extending))
        extending.add_done_callback(lambda _: self._extended(receipts, extending))

    def delete_later(self, queue: str, receipts: Sequence[str]) -> None:
        """Delete messages, together with those that come meanwhile."""
        gone = [receipt for receipt in receipts if receipt]
        if gone and queue not in self._deletes:
            self._deletes[queue] = []
            self._background_tasks.begin("delete", self._delete_waiting(queue))
        if gone:
            self._deletes[queue] += gone

    def _extended(self, receipts: Sequence[str], extending: asyncio.Task[None]) -> None:
        for receipt in receipts:
            if self._extending.get(receipt) is extending:
                del self._extending[receipt]

    def _extensions(self, receipts: Sequence[str]) -> set[asyncio.Task[None]]:
        """Return the extensions of messages that are on their way."""
        return {self._extending[receipt] for receipt in receipts if receipt in self._extending}

    async def _hide(
        self, queue: str, receipts: Sequence[str], seconds: int, after: set[asyncio.Task[None]]
    ) -> None:
        if after:
            await asyncio.wait(after)
        if queue not in self._urls:
            return  # a holder from before it was taken out of the settings; its row alone counts
        for allowed, some in self._receipts.by_allowance(receipts, seconds).items():
            outcomes = await sqs.change_visibility(self._aws, self._urls[queue], some, allowed)
            self._receipts.note_refusals(some, outcomes)
            failures = [error for error in outcomes if error and not sqs.is_gone(error)]
            self._count_failures("ChangeMessageVisibilityBatch", queue, failures)

    async def _delete_waiting(self, queue: str) -> None:
        # What is deleted in the same turn of the loop goes along.
        await asyncio.sleep(0)
        receipts = self._deletes.pop(queue, [])
        if queue not in self._urls:
            return
        outcomes = await sqs.delete(self._aws, self._urls[queue], receipts)
        self._count_failures("DeleteMessageBatch", queue, outcomes)

    def _count_failures(self, operation: str, queue: str, outcomes: Sequence[AirunnerError | None]) -> None:
        errors = [error for error in outcomes if error]
        if errors:
            _log.warning("aws.follow_up_failed", operation=operation, queue=queue, error=errors[0].text)
        telemetry.aws_follow_ups_failed.add(len(errors))


class _Receipts:
    """What SQS still grants to the receipts of messages.

    It hides a message for 12 hours in all, counted from its receive, and refuses what goes beyond; a receipt
    whose message was deleted or received again it refuses for good. A job may run longer than either: its row
    keeps it then, and the message does not matter any more. Whoever has not received a message itself learns
    its age from the refusal.
    """

    def __init__(self, real_clock: Clock) -> None:
        self._real_clock = real_clock
        # When a message was received; None once its receipt was refused.
        self._received_at: OrderedDict[str, int | None] = OrderedDict()

    def received(self, receipts: Iterable[str]) -> None:
        """Remember that messages were received now."""
        self._remember(dict.fromkeys(receipts, self._real_clock.monotonic()))

    def by_allowance(self, receipts: Sequence[str], seconds: int) -> dict[int, list[str]]:
        """Return receipts by how long they may hide their messages, where so long is wanted."""
        allowed: dict[int, list[str]] = {}
        for receipt in receipts:
            allowed.setdefault(max(0, min(seconds, self._left_seconds(receipt))), []).append(receipt)
        return allowed

    def extendable(self, receipts: Sequence[str]) -> list[str]:
        """Return those receipts that may still hide their message any longer."""
        return [receipt for receipt in receipts if self._left_seconds(receipt) > 0]

    def note_refusals(self, receipts: Sequence[str], outcomes: Sequence[AirunnerError | None]) -> None:
        """Remember which receipts are good for nothing any more."""
        answered = zip(receipts, outcomes, strict=True)
        self._remember({receipt: None for receipt, error in answered if error and sqs.is_gone(error)})

    def _left_seconds(self, receipt: str) -> int:
        now = self._real_clock.monotonic()
        received_at = self._received_at.get(receipt, now)
        if received_at is None:
            return 0
        return MAX_VISIBILITY_SECONDS - (now - received_at) // 1000 - _LATE_SECONDS

    def _remember(self, received_at: Mapping[str, int | None]) -> None:
        self._received_at |= received_at
        while len(self._received_at) > _MOST_REMEMBERED:
            self._received_at.popitem(last=False)


def job_id_of(body: str) -> str:
    """Return the job that a message names; empty where nobody can tell, or what is named is none of our jobs.

    Anybody may send anything: a key that the table refuses must not fail the messages beside it.
    """
    try:
        job_id = json.loads(body)["job_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return job_id if isinstance(job_id, str) and _JOB_ID.fullmatch(job_id) else ""


def _body(queue: str, wake: Wake) -> str:
    return json.dumps({"job_id": wake.job_id, "queue": queue, "attempt": wake.attempt})
