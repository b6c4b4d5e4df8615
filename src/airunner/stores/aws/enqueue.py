"""Enqueueing: a transaction of request id, row and parameters; a message; then a mark that it was sent."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.calls import ConditionFailed, Refused, TransactionCancelled
from airunner.aws.sqs import MAX_SEND_DELAY_SECONDS
from airunner.domain.answers import Enqueued
from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    JobNotFound,
    ResourceExhausted,
    Unavailable,
)
from airunner.domain.job import JobState
from airunner.stores.aws.items import (
    blob_at,
    number,
    row_from_item,
    text,
    text_at,
    update_expression,
)
from airunner.stores.aws.known_queues import index_entry
from airunner.stores.aws.layout import queue_key, sentinel_key
from airunner.stores.aws.transactions import EnqueueTransactions, fill_transaction
from airunner.stores.aws.upkeep.expiry import is_forgotten
from airunner.stores.aws.wakeups import Wake
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws, CancellationReason
    from airunner.domain.background import BackgroundTasks
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.transactions import NewJobItems
    from airunner.stores.aws.upkeep.open_jobs import OpenJobs
    from airunner.stores.aws.wakeups import Messages
    from airunner.stores.records import NewJob

_log = get_logger("airunner.aws")

SENT_CHECK_MS: Final = 6 * 3600 * 1000
_TRANSACTION_TRIES: Final = 10
_REFUSED: Final = "ConditionalCheckFailed"


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
        background_tasks: BackgroundTasks,
        open_jobs: OpenJobs,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._payloads = payloads
        self._messages = messages
        self._background_tasks = background_tasks
        self._open_jobs = open_jobs
        self._transactions = EnqueueTransactions(aws, layout, payloads)
        self._used_queues: set[str] = set()

    async def enqueue(self, jobs: Sequence[NewJob], max_queued: int) -> list[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome."""
        outcomes: dict[int, Enqueued | AirunnerError] = {}
        accepted = await self._accepted(jobs, max_queued, outcomes)
        while accepted:
            together = fill_transaction(accepted, jobs, self._payloads.form)
            await self._enqueue_together({index: jobs[index] for index in together}, outcomes)
            accepted = [index for index in accepted if index not in outcomes]
        return [outcomes[index] for index in range(len(jobs))]

    async def _accepted(
        self, jobs: Sequence[NewJob], max_queued: int, outcomes: dict[int, Enqueued | AirunnerError]
    ) -> list[int]:
        """Return the indexes of jobs that may be added; the others have their outcome."""
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
                    scheduled[new.queue] = await self._open_jobs.scheduled(new.queue, max_queued)
                if scheduled[new.queue] >= max_queued and not await self._known(new):
                    text = f"queue {new.queue} holds its limit of {max_queued} scheduled jobs"
                    outcomes[index] = ResourceExhausted(text)
                    continue
                scheduled[new.queue] += 1
            accepted.append(index)
        return accepted

    async def _known(self, new: NewJob) -> bool:
        key = sentinel_key(new.principal, new.request_id)
        known = (await self._rows.read_many([key])).get(key)
        return known is not None and not is_forgotten(known, new.created_at)

    async def _enqueue_together(
        self, jobs: dict[int, NewJob], outcomes: dict[int, Enqueued | AirunnerError]
    ) -> None:
        """Add jobs that fit into one transaction; those that cancel it have outcomes of their own."""
        for queue in {new.queue for new in jobs.values()}:
            await self._note_used(queue)
        pending: dict[int, NewJobItems] = {}
        for index, new in jobs.items():
            try:
                pending[index] = await self._transactions.prepare(new)
            except AirunnerError as error:
                outcomes[index] = error
        added: list[NewJobItems] = []
        for _ in range(_TRANSACTION_TRIES):
            if not pending:
                break
            try:
                await self._transactions.write(pending.values())
            except TransactionCancelled as cancelled:
                await self._sort_out(pending, cancelled.reasons, added, outcomes)
            else:
                added += pending.values()
                break
        else:
            raise Unavailable("too many others enqueue the same jobs at the same time")
        for index, job in pending.items():
            outcomes.setdefault(index, _enqueued(job.new))
        for job in added:
            self._open_jobs.moved(job.new.queue, None, JobState.SCHEDULED)
        await self._announce(added)

    async def _sort_out(
        self,
        pending: dict[int, NewJobItems],
        reasons: Sequence[CancellationReason],
        added: list[NewJobItems],
        outcomes: dict[int, Enqueued | AirunnerError],
    ) -> None:
        """Answer the entries that cancelled a transaction, and leave the others to be written again."""
        of_items = iter(reasons)
        of_jobs = [list(itertools.islice(of_items, len(job.items))) for job in pending.values()]
        for index, (reason, *others) in zip(list(pending), of_jobs, strict=True):
            if fault := next((one.code for one in (reason, *others) if one.is_fault), ""):
                # It would cancel every other transaction, too.
                _log.error("aws.enqueue_refused", job_id=pending[index].new.job_id, code=fault)
                outcomes[index] = Refused(fault)
                del pending[index]
                continue
            if reason.code != _REFUSED:
                continue
            known, job = reason.item or {}, pending[index]
            outcome = await self._outcome(job.new, known)
            if isinstance(outcome, JobNotFound):
                # Purged, while its request is still there: it is a new one now.
                pending[index] = replace(job, gone=text_at(known, "target"))
                continue
            outcomes[index] = outcome
            del pending[index]
            if text_at(known, "target") == job.new.job_id:
                added.append(job)
            else:
                # Nobody will ever name the parameters that were written for this one.
                self._background_tasks.begin("remove", self._payloads.remove_params(row_from_item(job.row)))

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

    async def _announce(self, jobs: Sequence[NewJobItems]) -> None:
        by_queue: dict[str, list[NewJobItems]] = {}
        for job in jobs:
            by_queue.setdefault(job.new.queue, []).append(job)
        for queue, together in by_queue.items():
            prompt = [job for job in together if _delay_seconds(job.new) <= MAX_SEND_DELAY_SECONDS]
            wakes = [Wake(job.new.job_id, 1, _delay_seconds(job.new)) for job in prompt]
            sent = await self._messages.send(queue, wakes)
            for job, was_sent in zip(prompt, sent, strict=True):
                if was_sent and not _delay_seconds(job.new):
                    self._background_tasks.begin("mark", self._mark_sent(job))

    async def _mark_sent(self, job: NewJobItems) -> None:
        """Let the reconciler look much later, unless something has happened to the job by now."""
        check = {"check_at": number(job.new.created_at + SENT_CHECK_MS)}
        with suppress(ConditionFailed):
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": job.row["job_id"]},
                **update_expression(check, conditions={"nonce": job.row["nonce"]}),
            )

    async def _note_used(self, queue: str) -> None:
        """Have the queue listed from now on; once for each queue and replica."""
        if queue in self._used_queues:
            return
        arguments: dict[str, Any] = update_expression({"used": {"BOOL": True}, **index_entry(queue)})
        await self._aws.dynamodb(
            "UpdateItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(queue_key(queue))},
            **arguments,
        )
        self._used_queues.add(queue)


def _enqueued(new: NewJob) -> Enqueued:
    return Enqueued(job_id=new.job_id, created_at=new.created_at, state=JobState.SCHEDULED)


def _delay_seconds(new: NewJob) -> int:
    return -(-(new.due_at - new.created_at) // 1000)
