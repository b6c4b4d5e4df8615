"""The jobs of `demo`: what they are, what is seen of them live, and whether that is as it must be."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.event import Event, Output, StreamType
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import StreamRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from airunner.client import AsyncClient
    from airunner.domain.job import Job

MANY_LINES: Final = 10_000
_STEPS: Final = """
for step in 1 2 3 4 5 6; do
    echo "step $step of 6"
    [ $((step % 3)) -eq 0 ] && echo "a remark on standard error" >&2
    sleep 0.5
done
echo "done"
"""
_FAILING: Final = """
echo "looking for trouble"
echo "found it; giving up with exit code 3" >&2
exit 3
"""
_LINES: Final = f"for n in range(1, {MANY_LINES} + 1): print('line', n, 'of {MANY_LINES:,}')"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A job, and what must come of it."""

    name: str
    params: JobParams
    lines: int
    state: JobState = JobState.COMPLETED
    exit_code: int = 0
    shown_lines: int = 1_000


DEMO_JOBS: Final = (
    DemoJob(name="steps", params=JobParams(command="sh", args=("-c", _STEPS)), lines=9),
    DemoJob(
        name="failing",
        params=JobParams(command="sh", args=("-c", _FAILING)),
        lines=2,
        state=JobState.FAILED,
        exit_code=3,
    ),
    DemoJob(
        name="lines",
        params=JobParams(command=sys.executable, args=("-c", _LINES)),
        lines=MANY_LINES,
        shown_lines=3,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """What a watcher saw of a job, and how the store keeps it."""

    job: Job
    lines: int
    digest: bytes
    stored: int
    milliseconds: int

    def problems(self, expected: DemoJob) -> list[str]:
        """Return a sentence for everything that is not as it must be."""
        result = self.job.result
        facts = {
            "its state": (self.job.state.name, expected.state.name),
            "its exit code": (result.exit_code if result else None, expected.exit_code),
            "the number of its lines": (self.lines, expected.lines),
            "the digest of its output": (self.digest, result.output_sha256 if result else b""),
        }
        return [
            f"{expected.name}: {what} is {got!r}, not {wanted!r}"
            for what, (got, wanted) in facts.items()
            if got != wanted
        ]


async def watch(
    client: AsyncClient, job: DemoJob, job_id: str, show: Callable[[str, str, bool], None]
) -> WatchedJob:
    """Follow a job live to its end, showing its first and its last lines."""
    digest, lines, first_at, last_at = hashlib.sha256(), 0, 0, 0
    hidden: deque[Event] = deque(maxlen=1)
    async with aclosing(client.monitor(job_id)) as events:
        async for event in events:
            first_at, last_at = first_at or event.timestamp, event.timestamp
            if not isinstance(event.data, Output):
                continue
            digest.update(event.data.output)
            lines += 1
            if lines <= job.shown_lines:
                _show_line(job.name, event.data, show)
            else:
                hidden.append(event)
    if hidden and isinstance(hidden[0].data, Output):
        show(job.name, f"… {lines - job.shown_lines - 1:,} more lines came …", False)
        _show_line(job.name, hidden[0].data, show)
    ended = await client.wait_for_end(job_id)
    return WatchedJob(
        job=ended,
        lines=lines,
        digest=digest.digest(),
        stored=await _count_stored(client, job_id),
        milliseconds=last_at - first_at,
    )


async def _count_stored(client: AsyncClient, job_id: str) -> int:
    """Read the events again, as they are stored, and count the writes that it took."""
    stored = 0
    async with aclosing(client.monitor_batches(StreamRequest(job_id=job_id, follow=False))) as batches:
        async for _ in batches:
            stored += 1
    return stored


def _show_line(name: str, data: Output, show: Callable[[str, str, bool], None]) -> None:
    show(name, data.output.decode(errors="replace").rstrip("\n"), data.stream is StreamType.STDERR)
