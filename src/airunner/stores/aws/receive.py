"""Waiting for jobs: one long poll for each queue that somebody waits for, however many do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from airunner.aws.sqs import MAX_ENTRIES
from airunner.domain.clock import wait_until
from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.stores.aws.layout import queue_key
from airunner.stores.waiting import WaitingRoom
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.stores.aws.claim import Candidate, Claimer
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages, ReceivedWake
    from airunner.stores.records import Demand

_log = get_logger("airunner.aws")

_LONG_POLL_SECONDS: Final = 20
_AFTER_FAILURE: Final = RetryPolicy(first_seconds=1.0, factor=1.0, jitter=0.0)
_PAUSE_POLL_MS: Final = 2_000
_MOST_POLLS: Final = 4
# How many receives that bring what it cannot do one call goes through before it waits with the others.
_MOST_REFUSALS: Final = 10


class Receiver:
    """Serves demands from the queues.

    A receive is never cancelled for one of them: what it brings goes to the next that waits, or is shown
    again at once. Nobody is answered before the claim is written, and a demand that is withdrawn meanwhile
    is answered with what it got.
    """

    def __init__(
        self,
        *,
        messages: Messages,
        claimer: Claimer,
        rows: Rows,
        real_clock: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        self._messages = messages
        self._claimer = claimer
        self._rows = rows
        self._real_clock = real_clock
        # How long one who does not want to wait waits: only a long poll asks all the servers of SQS.
        self._short_poll_seconds = short_poll_seconds
        self._room: WaitingRoom[asyncio.Future[Sequence[Job]]] = WaitingRoom()
        # Demands that somebody works for, and whether they were withdrawn meanwhile.
        self._busy: dict[Demand, bool] = {}
        self._polls: dict[str, set[asyncio.Task[None]]] = {}
        # Those polls that have brought messages, and claim what they name.
        self._serving: set[asyncio.Task[None]] = set()
        self._paused: dict[str, asyncio.Event] = {}
        # Queues whose last messages nobody here could do: there may be many more of them before others.
        self._refusing: set[str] = set()
        self._closed = False

    async def dequeue(self, demand: Demand) -> Sequence[Job]:
        """Claim jobs of the first queue that has any, or wait for them."""
        for queue in demand.queues:
            self._messages.check_queue(queue)
        if not demand.waits or len(demand.queues) > 1:
            jobs = await self._sweep(demand)
            if jobs is not None:
                return jobs
        answer: asyncio.Future[Sequence[Job]] = asyncio.get_running_loop().create_future()
        self._park(demand, answer)
        return await answer

    def withdraw(self, demand: Demand) -> None:
        """Make a waiting dequeue answer with nothing, unless it is being served."""
        answer = self._room.leave(demand)
        if answer:
            answer.set_result(())
        elif demand in self._busy:
            self._busy[demand] = True

    def resume(self, queue: str) -> None:
        """Look at a queue again that was paused."""
        resumed = self._paused.pop(queue, None)
        if resumed:
            resumed.set()

    async def close(self) -> None:
        """Let everybody go, and stop receiving."""
        self._closed = True
        for answer in self._room.empty_out():
            answer.set_result(())
        polls = {poll for polls in self._polls.values() for poll in polls}
        # What is being claimed is still answered: cancelled, it would be held by nobody until it lapses.
        for poll in polls - self._serving:
            poll.cancel()
        if polls:
            await asyncio.wait(polls)

    async def _sweep(self, demand: Demand) -> Sequence[Job] | None:
        """Look at each queue once, in order; None says that the demand is to wait."""
        self._busy[demand] = False
        wait_seconds = 0 if demand.waits else self._short_poll_seconds
        try:
            for queue in demand.queues:
                jobs = await self._take(queue, demand, wait_seconds)
                if jobs or self._busy[demand]:
                    return jobs
        finally:
            withdrawn = self._busy.pop(demand)
        return None if demand.waits and not withdrawn and not self._closed else ()

    async def _take(self, queue: str, demand: Demand, wait_seconds: int) -> list[Job]:
        """Claim what is there, in as many receives as it takes."""
        if not await self._is_open(queue):
            return []
        taken: list[Job] = []
        room, refusals = demand.max_bytes, 0
        while len(taken) < demand.max_jobs and room > 0:
            wanted = min(demand.max_jobs - len(taken), MAX_ENTRIES)
            try:
                received = await self._messages.receive(queue, wanted, 0 if taken else wait_seconds)
                found = await self._look(queue, received)
                mine = [candidate for candidate in found if demand.can_do(candidate.handler_key)]
                claimed = await self._claimer.claim(queue, mine, demand, room)
                taken += claimed.jobs
                room = claimed.room
                others = [candidate for candidate in found if candidate not in mine]
                await self._share_out(queue, others, refused=True)
            except AirunnerError as error:
                if not taken:
                    raise
                # What was claimed before must not be lost.
                _log.warning("aws.receive_failed", queue=queue, error=error.text)
                break
            refusals += bool(others)
            if not received or queue in self._paused or refusals == _MOST_REFUSALS:
                break
        return taken

    async def _look(self, queue: str, received: Sequence[ReceivedWake]) -> list[Candidate]:
        if not received:
            return []
        paused, found = await self._claimer.look(queue, received)
        if paused:
            self._paused.setdefault(queue, asyncio.Event())
        return found

    def _park(self, demand: Demand, answer: asyncio.Future[Sequence[Job]], *, first: bool = False) -> None:
        if self._closed:
            answer.set_result(())
            return
        self._room.park(demand, answer, first=first)
        for queue in demand.queues:
            polls = self._polls.setdefault(queue, set())
            if len(polls) < min(_MOST_POLLS, -(-self._wanted(queue) // MAX_ENTRIES)):
                poll = asyncio.create_task(self._poll(queue), name=f"poll {queue}")
                polls.add(poll)
                poll.add_done_callback(polls.discard)

    def _wanted(self, queue: str) -> int:
        return sum(demand.max_jobs for demand in self._room.waiting_for([queue]))

    async def _poll(self, queue: str) -> None:
        poll = cast("asyncio.Task[None]", asyncio.current_task())

        def log(error: Exception, _: int) -> None:
            _log.warning("aws.receive_failed", queue=queue, error=error_text(error))

        while queue in self._room.queues:
            await retry(
                _AFTER_FAILURE,
                self._real_clock,
                lambda: self._poll_once(queue, poll),
                retry_if=lambda error: isinstance(error, AirunnerError),
                on_failure=log,
            )
        # In the same turn of the loop: whoever parks next must not count on this one.
        self._polls[queue].discard(poll)

    async def _poll_once(self, queue: str, poll: asyncio.Task[None]) -> None:
        if not self._wanted(queue):
            return
        if not await self._is_open(queue):
            await self._until_resumed(queue)
        elif wanted := self._wanted(queue):
            count = MAX_ENTRIES if queue in self._refusing else wanted
            received = await self._messages.receive(queue, count, _LONG_POLL_SECONDS)
            self._serving.add(poll)
            try:
                await self._serve(queue, received)
            finally:
                self._serving.discard(poll)

    async def _serve(self, queue: str, received: Sequence[ReceivedWake]) -> None:
        """Claim messages for those who wait, in the order of their arrival."""
        if queue in self._room.queues:
            await self._share_out(queue, await self._look(queue, received))
        else:
            await self._messages.show_again(queue, [message.receipt for message in received])

    async def _share_out(self, queue: str, found: Sequence[Candidate], *, refused: bool = False) -> None:
        """Give each who waits what it can do.

        What nobody here can do rests for a while; what is left because nobody waits is there again at once.
        """
        while found:
            demand = next(self._able(queue, found), None)
            if demand is None:
                break
            able = [candidate for candidate in found if demand.can_do(candidate.handler_key)]
            mine = able[: demand.max_jobs]
            found = [candidate for candidate in found if candidate not in mine]
            await self._serve_one(queue, mine, demand)
        if refused or queue in self._room.queues:
            self._refusing = self._refusing | {queue} if found else self._refusing - {queue}
            await self._claimer.pass_on(queue, found)
        elif queue in self._refusing:
            # More was received than was wanted, and shall not be a receive nearer to the dead letters for it.
            await self._claimer.pass_on(queue, found, at_once=True)
        else:
            await self._messages.show_again(queue, [candidate.message.receipt for candidate in found])

    def _able(self, queue: str, found: Sequence[Candidate]) -> Iterator[Demand]:
        """Yield those who wait and can do one of these jobs."""
        for demand in self._room.waiting_for([queue]):
            if any(demand.can_do(candidate.handler_key) for candidate in found):
                yield demand

    async def _serve_one(self, queue: str, candidates: Sequence[Candidate], demand: Demand) -> None:
        answer = self._room.leave(demand)
        if answer is None:
            return
        jobs: Sequence[Job] = ()
        self._busy[demand] = False
        try:
            jobs = (await self._claimer.claim(queue, candidates, demand, demand.max_bytes)).jobs
        finally:
            withdrawn = self._busy.pop(demand)
            if jobs or withdrawn:
                answer.set_result(jobs)
            else:
                # It was its turn: messages that came to nothing do not put it behind the others.
                self._park(demand, answer, first=True)

    async def _is_open(self, queue: str) -> bool:
        """Return whether a queue may be received from; one that was paused is looked up again."""
        if queue in self._paused:
            items = await self._rows.read_many([queue_key(queue)])
            if not self._rows.is_paused(items.get(queue_key(queue))):
                self.resume(queue)
        return queue not in self._paused

    async def _until_resumed(self, queue: str) -> None:
        """Wait until a queue is resumed here, or for a while: it may be resumed elsewhere."""
        resumed = asyncio.ensure_future(self._paused[queue].wait())
        await wait_until(self._real_clock, self._real_clock.now() + _PAUSE_POLL_MS, resumed)
        resumed.cancel()
