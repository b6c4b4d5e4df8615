"""What is asked for a list of jobs, and answered: apart from the rest, which who only looks does not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs to list, newest first: by page number, or after a cursor of an earlier page."""

    queue: str = ""
    state: JobState | None = None
    page: int = 1
    page_size: int = 20
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs. `next_cursor` is empty when there is nothing more."""

    jobs: Sequence[Job]
    last_page: int
    next_cursor: str
