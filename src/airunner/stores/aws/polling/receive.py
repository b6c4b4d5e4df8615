"""Waiting for jobs: one long poll for each queue that somebody waits for, however many do."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from airunner.aws.sqs import MAX_ENTRIES
from airunner.domain.background import WakeUp
from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.stores.aws.polling.at_hand import AtHand
from airunner.stores.aws.polling.sweep import Sweeper, look
from airunner.stores.aws.wakeups import GIVE_BACK_SECONDS
from airunner.stores.waiting import WaitingRoom
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.stores.aws.claim import Candidate, Claimer
    from airunner.stores.aws.polling.gate import QueueGate
    from airunner.stores.aws.wakeups import Messages, ReceivedWake
    from airunner.stores.records import Demand

_log = get_logger("airunner.aws")

_LONG_POLL_SECONDS: Final = 20
# Spread, so that the polls of all queues and servers do not come back together.
_AFTER_FAILURE: Final = RetryPolicy(first_seconds=1.0, max_seconds=5.0, jitter=0.5)
_MOST_POLLS: Final = 4
# SQS answers a long poll at once if it has anything: a queue that did not within this has nothing.
_ANSWERS_WITHIN_MS: Final = 500


class Receiver:
    """Serves demands from the queues.

    Nothing is received unless the gate of its queue is open, and no receive is cancelled because a demand
    left: what it brings goes to the next that waits. What comes for nobody stays at hand for a few seconds,
    and then goes back. Nobody is answered before the claim is written, and a demand that is withdrawn
    meanwhile is answered with what it got.
    """

    def __init__(
        self,
        *,
        messages: Messages,
        claimer: Claimer,
        gate: QueueGate,
        real_clock: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        self._messages = messages
        self._claimer = claimer
        self._gate = gate
        self._real_clock = real_clock
        self._room: WaitingRoom[asyncio.Future[Sequence[Job]]] = WaitingRoom()
        # Demands that somebody works for, and whether they were withdrawn meanwhile.
        self._busy: dict[Demand, bool] = {}
        # The polls of a queue, and when each of them last asked for messages.
        self._polls: dict[str, dict[asyncio.Task[None], int]] = {}
        # Those polls that have brought messages, and claim what they name or have it at hand.
        self._serving: set[asyncio.Task[None]] = set()
        self._at_hand = AtHand()
        # Somebody came, or a poll had its answer.
        self._news = WakeUp(real_clock)
        # Queues whose last messages nobody here could do: there may be many more of them before others.
        self._refusing: set[str] = set()
        self._closed = False
        self._sweeper = Sweeper(
            messages=messages,
            claimer=claimer,
            gate=gate,
            at_hand=self._at_hand,
            short_poll_seconds=short_poll_seconds,
        )

    async def dequeue(self, demand: Demand) -> Sequence[Job]:
        """Claim jobs of the first queue that has any, or wait for them.

        Of the queues of one who waits all are asked at the same time, and preferred as far as SQS lets us.
        """
        for queue in demand.queues:
            self._messages.check_queue(queue)
        if not demand.waits:
            return await self._sweep(demand)
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

    async def close(self) -> None:
        """Let everybody go, and stop receiving."""
        self._closed = True
        for answer in self._room.empty_out():
            answer.set_result(())
        self._news.notify()
        polls = {poll for polls in self._polls.values() for poll in polls}
        # What is being claimed is still answered: cancelled, it would be held by nobody until it lapses.
        for poll in polls - self._serving:
            poll.cancel()
        if polls:
            await asyncio.wait(polls)
        await self._gate.close()

    async def _sweep(self, demand: Demand) -> Sequence[Job]:
        """Look at each queue once, in order."""
        self._busy[demand] = False
        try:
            for queue in demand.queues:
                jobs = await self._sweeper.take(queue, demand, self._share_out_refused)
                if jobs or self._busy[demand]:
                    return jobs
        finally:
            del self._busy[demand]
        return ()

    def _park(self, demand: Demand, answer: asyncio.Future[Sequence[Job]], *, first: bool = False) -> None:
        if self._closed:
            answer.set_result(())
            return
        self._room.park(demand, answer, first=first)
        self._news.notify()
        for queue in demand.queues:
            polls = self._polls.setdefault(queue, {})
            if len(polls) < min(_MOST_POLLS, -(-self._wanted(queue) // MAX_ENTRIES)):
                poll = asyncio.create_task(self._poll(queue), name=f"poll {queue}")
                polls[poll] = self._real_clock.now()
                poll.add_done_callback(partial(self._forget_poll, queue))

    def _forget_poll(self, queue: str, poll: asyncio.Task[None]) -> None:
        self._polls[queue].pop(poll, None)

    def _wanted(self, queue: str) -> int:
        return sum(demand.max_jobs for demand in self._room.waiting_for([queue]))

    async def _poll(self, queue: str) -> None:
        """Receive as long as somebody waits. A failure is followed by a pause, and by a look at the table."""
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
        self._forget_poll(queue, poll)

    async def _poll_once(self, queue: str, poll: asyncio.Task[None]) -> None:
        if not self._wanted(queue):
            return
        if not await self._gate.is_open(queue):
            await self._gate.wait(queue)
        elif wanted := self._wanted(queue):
            self._polls[queue][poll] = self._real_clock.now()
            count = MAX_ENTRIES if queue in self._refusing else wanted
            received = await self._messages.receive(queue, count, _LONG_POLL_SECONDS)
            self._serving.add(poll)
            try:
                await self._serve(queue, received)
            except AirunnerError:
                self._gate.distrust(queue)
                raise
            finally:
                self._serving.discard(poll)
                self._news.notify()

    async def _serve(self, queue: str, received: Sequence[ReceivedWake]) -> None:
        """Claim messages for those who wait, in the order of their arrival.

        Those that come for nobody are at hand for one to five seconds, and are shown again after that: at
        once, they would go from poll to poll of all servers, and each receive counts.
        """
        give_back_at = self._real_clock.now() + int(1000 * random.uniform(*GIVE_BACK_SECONDS))  # noqa: S311  spreads load, guards nothing
        while received:
            if queue in self._room.queues:
                await self._let_preferred_first(queue)
                received = await self._share_out(
                    queue, await look(self._claimer, self._gate, queue, received)
                )
            else:
                received = await self._keep_at_hand(queue, received, give_back_at)

    async def _keep_at_hand(
        self, queue: str, received: Sequence[ReceivedWake], until: int
    ) -> Sequence[ReceivedWake]:
        """Return those messages for which somebody has come; nothing once they went back."""
        self._at_hand.put(queue, received)
        while not self._closed and queue not in self._room.queues and await self._news.wait(until):
            pass
        mine = self._at_hand.take_back(queue, received)
        if queue in self._room.queues:
            return mine
        left_seconds = max(0, -(-(until - self._real_clock.now()) // 1000))
        await self._messages.show_again(queue, [message.receipt for message in mine], left_seconds)
        return ()

    async def _let_preferred_first(self, queue: str) -> None:
        """Give the queues that somebody prefers to this one the time to answer, where they were just asked.

        Otherwise the quickest of the answers would decide which queue comes first.
        """
        latest = self._real_clock.now() + _ANSWERS_WITHIN_MS
        while (until := min(latest, self._preferred_until(queue))) > self._real_clock.now():
            await self._news.wait(until)

    def _preferred_until(self, queue: str) -> int:
        """Return when the queues have had their time that those who wait for this one prefer to it."""
        waiting = self._room.waiting_for([queue])
        preferred = {other for demand in waiting for other in demand.queues[: demand.queues.index(queue)]}
        asked_at = [min(polls.values()) for other in preferred if (polls := self._polls.get(other))]
        return max(asked_at, default=0) + _ANSWERS_WITHIN_MS

    async def _share_out(self, queue: str, found: Sequence[Candidate]) -> Sequence[ReceivedWake]:
        """Give each who waits what it can do; return what is left because nobody waits."""
        found = await self._serve_able(queue, found)
        if queue not in self._room.queues:
            return [candidate.message for candidate in found]
        await self._pass_on(queue, found)
        return ()

    async def _share_out_refused(self, queue: str, found: Sequence[Candidate]) -> None:
        """Give each who waits what it can do, of what somebody could not do."""
        await self._pass_on(queue, await self._serve_able(queue, found))

    async def _pass_on(self, queue: str, refused: Sequence[Candidate]) -> None:
        """Let rest for a while what nobody here can do."""
        self._refusing = self._refusing | {queue} if refused else self._refusing - {queue}
        await self._claimer.pass_on(queue, refused)

    async def _serve_able(self, queue: str, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Give each who waits what it can do; return the rest."""
        while demand := next(self._able(queue, found), None):
            able = [candidate for candidate in found if demand.can_do(candidate.handler_key)]
            mine = able[: demand.max_jobs]
            found = [candidate for candidate in found if candidate not in mine]
            await self._serve_one(queue, mine, demand)
        return found

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
