"""Lists of jobs: what is asked and answered, and a job as a list shows it.

Apart from other requests and answers: who only looks at jobs does not load those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airunner.domain.limits import MAX_LISTED_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job, JobParams, JobResult, JobState
    from airunner.domain.lifecycle import Lifecycle


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
    """One page of jobs. `next_cursor` is empty when there is nothing more.

    `last_page` is exact up to 1,000 jobs; beyond that it is the next page if there is one, else this page.
    """

    jobs: Sequence[Job]
    last_page: int
    next_cursor: str


def abridged(job: Job) -> Job:
    """Return a job without its large parts and marked as abridged; a small job is returned unchanged.

    Hundreds of large ones must not become one answer.
    """
    params, life = _params(job.params), _life(job.life)
    if params is job.params and life is job.life:
        return job
    return replace(job, params=params, life=life, abridged=True)


def _params(params: JobParams) -> JobParams:
    """Keep what to run, and drop its arguments, environment and payload where they are large."""
    named = (*params.environment.items(), *params.metadata.items())
    texts = (params.command, *params.args, params.payload_json, params.working_directory, params.owner)
    if sum(map(len, texts)) + sum(len(name) + len(value) for name, value in named) <= MAX_LISTED_TEXT:
        return params
    return replace(
        params,
        command=_cut(params.command),
        args=(),
        environment={},
        secret_names=(),
        metadata={},
        owner=_cut(params.owner),
        working_directory=_cut(params.working_directory),
        payload_json="",
    )


def _life(life: Lifecycle) -> Lifecycle:
    result = life.result and _result(life.result)
    if result is life.result and len(life.last_error) <= MAX_LISTED_TEXT:
        return life
    return replace(life, result=result, last_error=_cut(life.last_error))


def _result(result: JobResult) -> JobResult:
    if max(len(result.output_json), len(result.error_message)) <= MAX_LISTED_TEXT:
        return result
    output = result.output_json if len(result.output_json) <= MAX_LISTED_TEXT else ""
    return replace(result, output_json=output, error_message=_cut(result.error_message))


def _cut(text: str) -> str:
    return text[:MAX_LISTED_TEXT]
