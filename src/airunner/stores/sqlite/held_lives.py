"""The lives of jobs that were claimed or written to a short while ago, which need not be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airunner.domain.lifecycle import Lifecycle

_MAX_LIVES: Final = 10_000


class HeldLives:
    """Lives of running jobs as they are in the file, each with the number of its row, by the id of the job.

    It belongs to the thread that writes. Whoever is about to change a job in any other way drops it before,
    and all are forgotten with whatever was undone, and when another process has written to the file.
    """

    def __init__(self) -> None:
        self._lives: dict[str, tuple[int, Lifecycle]] = {}

    def keep(self, claimed: Iterable[tuple[str, tuple[int, Lifecycle]]]) -> None:
        """Remember jobs that were just claimed, or have got events."""
        if len(self._lives) > _MAX_LIVES:
            self._lives.clear()
        self._lives.update(claimed)

    def find(self, job_id: str) -> tuple[int, Lifecycle] | None:
        """Return what is known of a job, which stays known."""
        return self._lives.get(job_id)

    def take(self, job_ids: Iterable[str]) -> dict[str, tuple[int, Lifecycle]]:
        """Return what is known of these jobs, and drop it: they are about to change."""
        taken = {job_id: self._lives.pop(job_id, None) for job_id in job_ids}
        return {job_id: known for job_id, known in taken.items() if known is not None}

    def drop(self, job_id: str) -> None:
        """Forget a job."""
        self._lives.pop(job_id, None)

    def forget(self) -> None:
        """Forget all jobs."""
        self._lives.clear()
