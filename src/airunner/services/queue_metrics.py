"""Metrics of queues and workers, read every 15 s: reading them at each scrape would cost too much."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.errors import AirunnerError
from airunner.services.periodic import READING_SECONDS, Periodic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import MessageCounts, QueueStats
    from airunner.domain.clock import Clock
    from airunner.services.api import JobsApi
    from airunner.stores.abilities import DeadLetters

INTERVAL_SECONDS: Final = 15.0
MESSAGES_INTERVAL_MS: Final = 60_000
"""Messages are counted less often: that takes two calls of AWS for every queue."""
MAX_QUEUES: Final = 100
OTHER_QUEUES: Final = "_other"
STALE_AFTER_MS: Final = 90_000
"""A worker calls every 20 s while it waits for jobs, and at least every 60 s while it holds one."""

# The part of the time that reading may take.
_SHARE: Final = 0.05


class QueueMetrics:
    """Shows depth, age and pause of each queue, and how many workers are alive.

    At most 100 queues have a label of their own, the deepest first; once they have it they keep it while they
    exist. All others are added up under `_other`. Where queues have messages, it also counts these.
    """

    def __init__(self, jobs: JobsApi, clock: Clock, messages: DeadLetters | None = None) -> None:
        self._jobs = jobs
        self._messages = messages
        self._count_messages_at = 0
        self._clock = clock
        self._labelled: set[str] = set()
        self._last_look_seconds = 0.0

    def periodic(self) -> Periodic:
        """Return the loop that looks: at once, then every 15 s, less often where a look takes long."""
        return Periodic(
            "queue_metrics",
            self.run_once,
            clock=self._clock,
            interval_seconds=lambda: max(INTERVAL_SECONDS, self._last_look_seconds / _SHARE),
            failure_event="sampling.failed",
            turn_seconds=READING_SECONDS,
            at_once=True,
        )

    async def run_once(self) -> None:
        """Look once, and take note of how long that took."""
        began = self._clock.now()
        try:
            await self._look()
        finally:
            self._last_look_seconds = (self._clock.now() - began) / 1000

    async def _look(self) -> None:
        self._show_queues(await self._jobs.list_queues())
        workers = await self._jobs.list_workers()
        now = self._clock.now()
        stale = sum(now - worker.last_seen_at > STALE_AFTER_MS for worker in workers)
        telemetry.workers_seen.show({("alive",): len(workers) - stale, ("stale",): stale})
        if self._messages and now >= self._count_messages_at:
            # Set before the look: one that fails is not repeated any sooner.
            self._count_messages_at = now + MESSAGES_INTERVAL_MS
            self._show_messages(await self._messages.count())

    def _show_queues(self, queues: Sequence[QueueStats]) -> None:
        self._choose(queues)
        now = self._clock.now()
        depth: Counter[tuple[str, ...]] = Counter()
        age: dict[tuple[str, ...], float] = {}
        paused: dict[tuple[str, ...], float] = {}
        for queue in queues:
            name = queue.name if queue.name in self._labelled else OTHER_QUEUES
            depth[name, "scheduled"] += queue.scheduled
            depth[name, "running"] += queue.running
            waiting_ms = now - queue.oldest_scheduled_at if queue.scheduled else 0
            age[name,] = max(age.get((name,), 0.0), waiting_ms / 1000)
            paused[name,] = max(paused.get((name,), 0.0), float(queue.paused))
        telemetry.queue_depth.show(depth)
        telemetry.queue_oldest_age.show(age)
        telemetry.queue_paused.show(paused)

    def _show_messages(self, answers: Sequence[MessageCounts | AirunnerError]) -> None:
        """Show what SQS says, and raise what it refuses. Each queue was configured, so each has its label."""
        counts = [answer for answer in answers if not isinstance(answer, AirunnerError)]
        messages: dict[tuple[str, ...], float] = {}
        for count in counts:
            messages[count.queue, "visible"] = count.visible
            messages[count.queue, "in_flight"] = count.in_flight
            messages[count.queue, "delayed"] = count.delayed
        telemetry.queue_messages.show(messages)
        telemetry.queue_dead_letters.show({(count.queue,): count.dead_letters for count in counts})
        for answer in answers:
            if isinstance(answer, AirunnerError):
                raise answer

    def _choose(self, queues: Sequence[QueueStats]) -> None:
        self._labelled &= {queue.name for queue in queues}
        for queue in sorted(queues, key=lambda queue: -queue.scheduled - queue.running):
            if len(self._labelled) == MAX_QUEUES:
                return
            self._labelled.add(queue.name)
