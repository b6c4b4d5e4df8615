"""The JobStore: where jobs and their events are kept.

A store applies the rules of `domain.lifecycle` inside its writes; it knows no tokens, no protobuf messages
and no wall clock. Everything a caller was told is durable. All stores pass the same conformance suite;
where they differ, `Capabilities` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airunner.domain.lifecycle import Lifecycle
from airunner.stores.keys import KeyStore
from airunner.stores.settings import SettingStore

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.domain.answers import Enqueued, QueueStats
    from airunner.domain.errors import AirunnerError
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.stores import abilities, records


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Where stores may differ."""

    # Whether a queue is strictly first in, first out, also after redelivery.
    strict_fifo: bool
    # How long after its visibility lapsed a job may still not be claimable.
    redelivery_slack_seconds: float
    durable: bool
    # Whether queues are those that somebody configured, or any name that is used.
    configured_queues: bool = False


class JobStore(KeyStore, SettingStore, Protocol):
    """Jobs and their events. Opened before use, closed once.

    What only some stores can do is an object of its own behind an attribute, which is None on the others.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Where this store differs from others."""

    @property
    def payload_links(self) -> abilities.PayloadLinking | None:
        """Addresses of large payloads, where these can be read without a server."""

    @property
    def dead_letters(self) -> abilities.DeadLetters | None:
        """The dead-letter queues, where jobs travel as messages."""

    @property
    def shared(self) -> abilities.SharedState | None:
        """What other servers of the same store do, where there may be others."""

    @property
    def changes(self) -> abilities.ChangeStream | None:
        """A stream of what other servers write, where one is configured."""

    @property
    def parts(self) -> abilities.RemoteParts | None:
        """What the store stands on, where that is elsewhere and may be away."""

    async def open(self) -> None:
        """Make ready; running jobs get their whole visibility again: our downtime is not their fault."""

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything. Waiting dequeues answer with nothing."""

    async def check(self) -> None:
        """Raise if the store cannot answer."""

    async def enqueue_jobs(
        self, jobs: Sequence[records.NewJob], *, max_queued: int = 0
    ) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome.

        Per (principal, request_id) there is one job: the same fingerprint returns it, another one is
        `AlreadyExists`; also when the calls race. With `max_queued`, a queue that holds that many scheduled
        jobs refuses more with `ResourceExhausted`.
        """

    async def dequeue_jobs(self, demand: records.Demand) -> Sequence[Job]:
        """Claim the oldest claimable jobs of the first queue that has any, in enqueue order.

        Claimable: not cancelled, tries left, queue not paused, within the demand's abilities, and scheduled
        and due, or running with its visibility lapsed. A patient demand waits until there is one; "found
        nothing" and "now waiting" are one step, and demands are served in the order of arrival, each with
        what it can do. Never cancel this call: `withdraw` the demand, and take what it answers.
        """

    async def withdraw(self, demand: records.Demand) -> None:
        """Make a waiting dequeue answer with nothing, unless it was served already.

        It never fails, whatever the store can write: a demand that stayed would take jobs for nobody.
        """

    async def extend_job(self, key: records.AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time; zero keeps the visibility it has."""

    async def append_events(
        self, key: records.AttemptKey, events: Sequence[EncodedEvent], now: int
    ) -> Lifecycle:
        """Store the events that continue the attempt, all or none; see `lifecycle.append`."""

    async def complete_jobs(
        self, completions: Sequence[records.Completion], now: int
    ) -> Sequence[Lifecycle | AirunnerError]:
        """End jobs, each with its own outcome; its last events become visible together with its end."""

    async def release_job(self, release: records.Release, now: int) -> Lifecycle:
        """Give a job back; its last events are stored in the same step."""

    async def cancel_job(self, job_id: str, now: int, *, by: str = "", queues: Collection[str] = ()) -> Job:
        """Cancel a job for a principal, one of `queues` if given; it is abridged where it cannot be read."""

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        """Return a job, one of `queues` if given, or raise JobNotFound.

        With `abridge` as `list_jobs` shows it: what is large or cannot be read is left out, and it says so.
        """

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        """Return the life of a job without reading its parameters, or raise as `get_job` does.

        A result that is kept apart may be missing: this is for looking often.
        """

    async def list_jobs(self, query: JobQuery, *, queues: Collection[str] = ()) -> JobPage:
        """Return jobs, newest first; where `queues` are given, only jobs of these.

        See `stores.pages` for what is counted and numbered.
        """

    async def running_jobs(self, cursor: str = "") -> records.RunningPage:
        """Return a page of the jobs that run; a walk over all pages is complete, or raises."""

    async def list_queues(self, *, after: str = "", limit: int) -> Sequence[QueueStats]:
        """Return queues that were used, by name: the first so many whose names come after another."""

    async def queue_names(self) -> Collection[str]:
        """Return the names of the queues that were used, or of those that are configured."""

    async def set_paused(self, queue: str, *, paused: bool, by: str = "", now: int = 0) -> None:
        """Stop or allow claims from a queue; who paused it first is shown until somebody resumes it."""

    async def read_events(self, query: records.EventQuery) -> records.EventPage:
        """Return stored events after a position, the one that contains the next sequence first.

        The floor look-up works on stored first sequences, so no later change of a batch size hides events.
        The page is bounded in number and in bytes, and has at least one event if there is any.
        """

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> records.PurgedJobs:
        """Purge up to so many jobs that ended until an instant, as `maintain` does, or count them."""

    async def maintain(self, retention: records.Retention, now: int) -> records.Upkeep:
        """End what nobody may claim any more, and purge what is too old. Bounded; call it again and again."""
