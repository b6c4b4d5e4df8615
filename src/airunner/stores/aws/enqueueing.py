"""Enqueueing: a transaction of request id, row and parameters; a message; then a mark that it was sent."""

from __future__ import annotations

import itertools
import secrets
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    JobNotFound,
    ResourceExhausted,
    Unavailable,
)
from airunner.domain.job import JobState
from airunner.stores.aws.connection import ConditionFailed, TransactionCancelled
from airunner.stores.aws.items import (
    blob,
    blob_at,
    execution_value,
    life_changes,
    number,
    row_from_item,
    text,
    text_at,
    update_expression,
)
from airunner.stores.aws.messages import MAX_SEND_DELAY_SECONDS, Wake
from airunner.stores.aws.payloads import goes_beside
from airunner.stores.aws.rows import check_of
from airunner.stores.base import Enqueued

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from airunner.stores.aws.connection import Aws, Reason
    from airunner.stores.aws.follow_ups import FollowUps
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.messages import Messages
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.base import NewJob

SENT_CHECK_MS: Final = 6 * 3600 * 1000
# DynamoDB takes 100 actions and 4 MB in a transaction; a body of over 1 MiB, base64 and all, blocks the loop.
_ACTIONS_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 700 * 1024
_ROW_BYTES: Final = 2 * 1024
_TRANSACTION_TRIES: Final = 10
_REFUSED: Final = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class _Draft:
    """A job on its way into the table; the sentinel is the first of its items."""

    new: NewJob
    items: Sequence[Item]

    @property
    def row(self) -> Item:
        """The row of the job."""
        return self.items[1]


class Enqueuer:
    """Adds jobs. What fails after the transaction is no failure: the reconciler sends what was not sent."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        payloads: Payloads,
        messages: Messages,
        follow_ups: FollowUps,
        count_scheduled: Callable[[str], Awaitable[int]],
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._payloads = payloads
        self._messages = messages
        self._follow_ups = follow_ups
        self._count_scheduled = count_scheduled
        self._order = itertools.count()
        self._used_queues: set[str] = set()

    async def enqueue(self, jobs: Sequence[NewJob], max_queued: int) -> list[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome."""
        outcomes: dict[int, Enqueued | AirunnerError] = {}
        accepted = await self._accepted(jobs, max_queued, outcomes)
        while accepted:
            chunk = _distinct(accepted, jobs)
            await self._enqueue_chunk({index: jobs[index] for index in chunk}, outcomes)
            accepted = [index for index in accepted if index not in outcomes]
        return [outcomes[index] for index in range(len(jobs))]

    async def _accepted(
        self, jobs: Sequence[NewJob], max_queued: int, outcomes: dict[int, Enqueued | AirunnerError]
    ) -> list[int]:
        """Return the places of jobs that may be added; the others have their outcome."""
        scheduled: dict[str, int] = {}
        accepted = []
        for index, new in enumerate(jobs):
            try:
                self._messages.check_queue(new.queue)
            except AirunnerError as error:
                outcomes[index] = error
                continue
            if max_queued:
                if new.queue not in scheduled:
                    scheduled[new.queue] = await self._count_scheduled(new.queue)
                if scheduled[new.queue] >= max_queued and not await self._known(new):
                    text = f"queue {new.queue} holds its limit of {max_queued} scheduled jobs"
                    outcomes[index] = ResourceExhausted(text)
                    continue
                scheduled[new.queue] += 1
            accepted.append(index)
        return accepted

    async def _known(self, new: NewJob) -> bool:
        return bool(await self._rows.read_many([_sentinel_key(new)]))

    async def _enqueue_chunk(
        self, chunk: dict[int, NewJob], outcomes: dict[int, Enqueued | AirunnerError]
    ) -> None:
        for queue in {new.queue for new in chunk.values()}:
            await self._note_used(queue)
        drafts = {}
        for index, new in chunk.items():
            try:
                drafts[index] = await self._draft(new)
            except AirunnerError as error:
                outcomes[index] = error
        added: list[_Draft] = []
        for _ in range(_TRANSACTION_TRIES):
            if not drafts:
                break
            try:
                await self._write(drafts.values())
            except TransactionCancelled as cancelled:
                await self._sort_out(drafts, cancelled.reasons, added, outcomes)
            else:
                added += drafts.values()
                break
        else:
            raise Unavailable("too many others enqueue the same jobs")
        for index, draft in drafts.items():
            outcomes.setdefault(index, _enqueued(draft.new))
        await self._announce(added)

    async def _draft(self, new: NewJob) -> _Draft:
        life = new.first_life()
        params, beside = await self._payloads.keep_params(new.job_id, new.params_bytes)
        shard = zlib.crc32(new.job_id.encode()) % self._layout.listing_shards
        row: Item = {
            "job_id": text(new.job_id),
            "queue": text(new.queue),
            "created_at": number(new.created_at),
            "request_id": text(new.request_id),
            "principal": text(new.principal),
            "retried_from": text(new.retried_from),
            "execution": execution_value(new.execution),
            "shard": number(shard),
            "nonce": text(secrets.token_hex(8)),
            "list_key": text(f"{new.queue}#{shard}"),
            "order_key": text(f"{new.created_at:013d}-{next(self._order) & 0xFFFFFF:06x}-{new.job_id}"),
            **life_changes(None, life),
            **check_of(new.queue, shard, life),
            **params,
        }
        sentinel = {
            "job_id": text(_sentinel_key(new)),
            "target": text(new.job_id),
            "fingerprint": blob(new.fingerprint),
        }
        return _Draft(new, (sentinel, row, *([beside] if beside else [])))

    async def _write(self, drafts: Iterable[_Draft]) -> None:
        actions = [
            {
                "Put": {
                    "TableName": self._layout.jobs_table,
                    "Item": item,
                    "ConditionExpression": "attribute_not_exists(job_id)",
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            }
            for draft in drafts
            for item in draft.items
        ]
        await self._aws.dynamodb("TransactWriteItems", TransactItems=actions)

    async def _sort_out(
        self,
        drafts: dict[int, _Draft],
        reasons: Sequence[Reason],
        added: list[_Draft],
        outcomes: dict[int, Enqueued | AirunnerError],
    ) -> None:
        """Answer the entries that cancelled a transaction, and leave the others to be written again."""
        of_actions = iter(reasons)
        of_drafts = [list(itertools.islice(of_actions, len(draft.items))) for draft in drafts.values()]
        for index, (reason, *_) in zip(list(drafts), of_drafts, strict=True):
            if reason.code != _REFUSED:
                continue
            known, draft = reason.item or {}, drafts[index]
            outcome = await self._outcome(draft.new, known)
            if isinstance(outcome, JobNotFound):
                # Purged between the two calls, and the request with it: it is a new one now.
                continue
            outcomes[index] = outcome
            del drafts[index]
            if text_at(known, "target") == draft.new.job_id:
                added.append(draft)
            else:
                # Nobody will ever name the parameters that were written for this one.
                self._follow_ups.begin("remove", self._payloads.remove_params(row_from_item(draft.row)))

    async def _outcome(self, new: NewJob, known: Item) -> Enqueued | AirunnerError:
        """Say what becomes of a request of which something is known."""
        if text_at(known, "target") == new.job_id:
            # Our own write, whose reply was lost.
            return _enqueued(new)
        if blob_at(known, "fingerprint") != new.fingerprint:
            return AlreadyExists()
        return await self._enqueued_before(text_at(known, "target"))

    async def _enqueued_before(self, job_id: str) -> Enqueued | AirunnerError:
        try:
            row = await self._rows.read_bare(job_id)
        except AirunnerError as error:
            return error
        life = row.life
        if life.state is JobState.SCHEDULED and life.due_at <= life.updated_at:
            # Perhaps the message of the first call was never sent; one too many does no harm.
            await self._messages.send(row.queue, [Wake(job_id, life.attempt + 1)])
        return Enqueued(job_id=job_id, created_at=row.created_at, state=life.state)

    async def _announce(self, drafts: Sequence[_Draft]) -> None:
        by_queue: dict[str, list[_Draft]] = {}
        for draft in drafts:
            by_queue.setdefault(draft.new.queue, []).append(draft)
        for queue, together in by_queue.items():
            prompt = [draft for draft in together if _delay_seconds(draft.new) <= MAX_SEND_DELAY_SECONDS]
            wakes = [Wake(draft.new.job_id, 1, _delay_seconds(draft.new)) for draft in prompt]
            sent = await self._messages.send(queue, wakes)
            for draft, was_sent in zip(prompt, sent, strict=True):
                if was_sent and not _delay_seconds(draft.new):
                    self._follow_ups.begin("mark", self._mark_sent(draft))

    async def _mark_sent(self, draft: _Draft) -> None:
        """Let the reconciler look much later, unless something has happened to the job by now."""
        check = {"check_at": number(draft.new.created_at + SENT_CHECK_MS)}
        with suppress(ConditionFailed):
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": draft.row["job_id"]},
                **update_expression(check, conditions={"nonce": draft.row["nonce"]}),
            )

    async def _note_used(self, queue: str) -> None:
        """Have the queue listed from now on; once for each queue and replica."""
        if queue in self._used_queues:
            return
        arguments: dict[str, Any] = update_expression({"used": {"BOOL": True}})
        await self._aws.dynamodb(
            "UpdateItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(queue_key(queue))},
            **arguments,
        )
        self._used_queues.add(queue)


def queue_key(queue: str) -> str:
    """Return the key of what is known of a queue."""
    return f"queue#{queue}"


def _sentinel_key(new: NewJob) -> str:
    return sentinel_key(new.principal, new.request_id)


def sentinel_key(principal: str, request_id: str) -> str:
    """Return the key of what is known of a request."""
    return f"request#{principal}#{request_id}"


def _distinct(places: Sequence[int], jobs: Sequence[NewJob]) -> list[int]:
    """Return the first places whose requests differ, as many as a transaction takes."""
    chosen: dict[tuple[str, str], int] = {}
    actions, room = _ACTIONS_AT_ONCE, _BYTES_AT_ONCE
    for place in places:
        new = jobs[place]
        if (new.principal, new.request_id) in chosen:
            continue
        beside = goes_beside(new.params_bytes)
        actions -= 3 if beside else 2
        room -= _ROW_BYTES + (len(new.params_bytes) if beside else 0)
        if actions < 0 or room < 0:
            break
        chosen[new.principal, new.request_id] = place
    return list(chosen.values())


def _enqueued(new: NewJob) -> Enqueued:
    return Enqueued(job_id=new.job_id, created_at=new.created_at, state=JobState.SCHEDULED)


def _delay_seconds(new: NewJob) -> int:
    return -(-(new.due_at - new.created_at) // 1000)
