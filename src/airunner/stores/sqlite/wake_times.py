"""What the writer knows of its queues, and of jobs it gave out, without asking the database again.

Of each queue that somebody asked for: whether it is paused, and an instant before which nothing of it falls
due or lapses. That instant may be too early, which costs one look, and never too late, which would leave a
job to nobody. It is right as long as everything that writes tells, and nothing is undone: so all is forgotten
with each rollback, and when another process has written to the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.stores.sqlite.held_lives import HeldLives

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

_MAX_QUEUES: Final = 10_000


class WakeTimes:
    """Belongs to the thread that writes; the connection is always that thread's."""

    def __init__(self) -> None:
        self._wake_times: dict[str, int | None] = {}
        self._paused: frozenset[str] | None = None
        self._version: int | None = None
        self._changed: set[str] = set()
        self._all_changed = True
        self.lives = HeldLives()
        """Of jobs that were claimed a short while ago."""

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Forget everything if another process has written; call it as a transaction begins."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self.forget()

    def forget(self) -> None:
        """Know nothing, so that each queue is looked up when it is asked for."""
        self._wake_times.clear()
        self.lives.forget()
        self._paused = None
        self.look_at_all()

    def look_at_all(self) -> None:
        """Let the next `take_changed` name every queue."""
        self._all_changed = True

    def is_paused(self, connection: sqlite3.Connection, queue: str) -> bool:
        """Return whether nothing may be claimed from a queue."""
        if self._paused is None:
            found = connection.execute("SELECT name FROM queues WHERE paused")
            self._paused = frozenset(name for (name,) in found)
        return queue in self._paused

    def may_be_due(self, connection: sqlite3.Connection, queue: str, now: int) -> bool:
        """Return whether a job of a queue may have fallen due or lapsed that is not marked as ready."""
        wake_at = self._wake_time(connection, queue)
        return wake_at is not None and wake_at <= now

    def note(self, queue: str, wake_at: int | None) -> None:
        """Take note that a job was written which falls due or lapses at an instant; None is never."""
        if wake_at is None or queue not in self._wake_times:
            return
        known = self._wake_times[queue]
        if known is None or wake_at < known:
            self._wake_times[queue] = wake_at
            self._changed.add(queue)

    def look_up(self, connection: sqlite3.Connection, queue: str) -> None:
        """Find out anew when the next job of a queue falls due or lapses."""
        self._wake_times.pop(queue, None)
        self._wake_time(connection, queue)
        self._changed.add(queue)

    def take_changed(self, among: Collection[str]) -> Collection[str]:
        """Return those of the queues whose next time may be another than at the last call."""
        changed = list(among) if self._all_changed else [queue for queue in self._changed if queue in among]
        self._all_changed = False
        self._changed.clear()
        return changed

    def next_wake(self, connection: sqlite3.Connection, queues: Collection[str]) -> int | None:
        """Return when to look next for jobs of these queues; a paused queue wakes nobody."""
        times = [
            self._wake_time(connection, queue) for queue in queues if not self.is_paused(connection, queue)
        ]
        return min((time for time in times if time is not None), default=None)

    def _wake_time(self, connection: sqlite3.Connection, queue: str) -> int | None:
        if queue in self._wake_times:
            return self._wake_times[queue]
        if len(self._wake_times) >= _MAX_QUEUES:
            self.forget()
        row = connection.execute(
            "SELECT min(wake_at) FROM jobs WHERE queue = ? AND wake_at IS NOT NULL", (queue,)
        ).fetchone()
        wake_at: int | None = row[0]
        self._wake_times[queue] = wake_at
        return wake_at
