"""What only some stores can do: attributes of a JobStore, which are None where it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airunner.domain.answers import DeadLetter, DeadLetterPage, MessageCounts, PayloadLinks, Redriven
    from airunner.domain.errors import AirunnerError
    from airunner.domain.lifecycle import Lifecycle
    from airunner.domain.requests import Redrive
    from airunner.stores.records import JobMark


class PayloadLinking(Protocol):
    """Large payloads, kept where they can be read without a server."""

    async def link_payloads(self, job_id: str, seconds: int) -> PayloadLinks:
        """Return addresses that are good for so long. Who may have them is for the caller to know."""


class SharedState(Protocol):
    """What servers of one store tell each other through it; their news have to be asked for."""

    async def read_marks(self, job_ids: Sequence[str]) -> Mapping[str, JobMark]:
        """Return the marks of the jobs that exist, as they were a moment ago."""

    async def note_watched(self, job_ids: Sequence[str], until: int) -> Mapping[str, Lifecycle]:
        """Let every server know that somebody looks at these jobs here; see `Lifecycle.watched_until`.

        Return the lives of those that exist.
        """


class RemoteParts(Protocol):
    """What a store stands on elsewhere, each part of which may be away by itself. Nothing here raises for it.

    One part decides about jobs: while it is away nobody who holds a job can say so, and nobody loses one.
    """

    @property
    def well_seconds(self) -> float:
        """For how long the part that decides has answered without a pause; 0 while it does not."""

    @property
    def troubles(self) -> Mapping[str, str]:
        """What was wrong with each other part when it was last asked, by name; empty if nothing was."""

    async def keep_well(self) -> None:
        """Ask the part that decides, unless it has just answered. To be called every second."""

    async def ask_next(self) -> None:
        """Ask one of the other parts whether it is there, with each call the next of them."""


class ChangeStream(Protocol):
    """Tells of changes sooner than the marks of jobs are asked for."""

    async def read(self) -> Collection[str]:
        """Return jobs that got events since the last call; some may be missing. One reader at a time."""


class DeadLetterCalls(Protocol):
    """Messages that ended in a dead-letter queue. Rows decide; no message is a job."""

    async def look(self, queue: str, max_messages: int, *, code: str = "") -> DeadLetterPage:
        """Look at messages; they can be received again at once. A code leaves out letters of others."""

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send messages back, each before it is deleted: one may come twice, which is harmless, none is lost.

        A call is bounded in messages and in time. What was looked at and left stays out of sight for half a
        minute, so that calls in a row come to an end.
        """

    async def purge(
        self, queue: str, max_messages: int, *, dry_run: bool, code: str = ""
    ) -> Sequence[DeadLetter]:
        """Delete messages and return them. A job that is open gets a new message in time."""


class DeadLetters(DeadLetterCalls, Protocol):
    """The dead letters of a store's queues."""

    async def count(self) -> Sequence[MessageCounts | AirunnerError]:
        """Return the counts of every queue, or why one could not be counted."""
