"""Who watches which job: workers publish faster while somebody does."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from airunner.domain.errors import ResourceExhausted
from airunner.services.notifier import holder_bell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.services.notifier import Notifier

K = TypeVar("K")


class Watchers:
    """Counts the open streams, by job and by principal."""

    def __init__(self, notifier: Notifier, max_streams: int) -> None:
        self._notifier = notifier
        self._max_streams = max_streams
        self._watchers: Counter[str] = Counter()
        self._streams: Counter[tuple[str, str]] = Counter()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._streams.total()

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs that somebody watches."""
        return list(self._watchers)

    def watched(self, job_id: str) -> bool:
        """Return whether anybody watches the job."""
        return job_id in self._watchers

    @contextmanager
    def watch(self, principal: str, job_id: str) -> Iterator[None]:
        """Count a stream of a job while the block lasts; refused if the principal has too many open here."""
        if self._streams[principal, job_id] >= self._max_streams:
            raise ResourceExhausted(f"there are {self._max_streams} streams of this job open already")
        self._change(principal, job_id, 1)
        try:
            yield
        finally:
            self._change(principal, job_id, -1)

    def _change(self, principal: str, job_id: str, step: int) -> None:
        before = self.watched(job_id)
        _count(self._streams, (principal, job_id), step)
        _count(self._watchers, job_id, step)
        if self.watched(job_id) != before:
            self._notifier.ring(holder_bell(job_id))


def _count(counter: Counter[K], key: K, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]
