"""A job whose output a test publishes itself, batch by batch, and what its readers must have seen of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable

from airunner.client import AsyncClient, CompleteRequest, ReleaseRequest
from airunner.domain.clock import SystemClock
from airunner.domain.event import Event, Output, OutputBatch, Position, ProcessEnd
from airunner.domain.job import JobParams, JobState
from airunner.reading.proof import LogProof, VerdictKind
from airunner.testing.factories import make_success

QUEUE = "printing"


class PrintedJob:
    """One held job. Its lines are random bytes, so that no compression makes them less."""

    def __init__(self, client: AsyncClient, job_id: str, task_token: str, seed: int = 1) -> None:
        self.job_id = job_id
        self.attempt = 1
        self._client = client
        self._task_token = task_token
        self._chance = random.Random(seed)
        self._digest = hashlib.sha256()
        self._sequence = 0
        self.printed_bytes = 0

    @classmethod
    async def begin(cls, client: AsyncClient) -> PrintedJob:
        enqueued = await client.enqueue(JobParams(command="print"), queue=QUEUE)
        (held,) = await client.dequeue(QUEUE, visibility_timeout_seconds=600)
        assert held.job.job_id == enqueued.job_id
        return cls(client, enqueued.job_id, held.task_token)

    @property
    def sequence(self) -> int:
        """The last sequence of the attempt."""
        return self._sequence

    @property
    def output_sha256(self) -> bytes:
        return self._digest.digest()

    async def print_batch(self, lines: int = 50, line_bytes: int = 5 * 1024) -> None:
        """Publish so many lines as one batch."""
        outputs = tuple(
            Output(self._chance.randbytes(line_bytes - 1).replace(b"\n", b" ") + b"\n") for _ in range(lines)
        )
        for output in outputs:
            self._digest.update(output.output)
            self.printed_bytes += len(output.output)
        first, self._sequence = self._sequence + 1, self._sequence + lines
        now = SystemClock().now()
        batch = OutputBatch(
            outputs=outputs,
            start_sequence=first,
            end_sequence=self._sequence,
            timestamps=(now,) * lines,
        )
        await self._client.publish_events(
            self._task_token, [Event(sequence=first, timestamp=now, data=batch)]
        )

    async def end(self) -> None:
        """Complete the job, its PROCESS_END with the proof of all that was printed."""
        end = ProcessEnd(
            pid=1,
            exit_code=0,
            run_duration_ms=1,
            event_count=self._sequence,
            output_sha256=self.output_sha256,
        )
        self._sequence += 1
        event = Event(sequence=self._sequence, timestamp=SystemClock().now(), data=end)
        result = make_success(final_sequence=self._sequence)
        state = await self._client.complete(
            CompleteRequest(task_token=self._task_token, result=result, events=[event])
        )
        assert state is JobState.COMPLETED

    async def try_again(self) -> None:
        """Release the attempt and claim the next, whose output begins anew."""
        await self._client.release_job(ReleaseRequest(task_token=self._task_token))
        (held,) = await self._client.dequeue(QUEUE, visibility_timeout_seconds=600)
        assert held.job.job_id == self.job_id
        self._task_token, self.attempt = held.task_token, held.job.attempt
        self._digest = hashlib.sha256()
        self._sequence = self.printed_bytes = 0


class Seen:
    """What a reader has of a job, without keeping it."""

    def __init__(self) -> None:
        self.proof = LogProof()
        self.events = 0
        self._digest = hashlib.sha256()
        self._bytes = 0

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.events += 1
            self.proof.see(event)
            if isinstance(event.data, Output):
                self._digest.update(event.data.output)
                self._bytes += len(event.data.output)

    def check(self, job: PrintedJob) -> None:
        """Every event once and in order, as the job's own end proves, and the very bytes it printed."""
        verdict = self.proof.verdict(Position(job.attempt, job.sequence))
        assert verdict.kind is VerdictKind.COMPLETE, verdict.text
        assert self.events == job.sequence
        assert (self._bytes, self._digest.digest()) == (job.printed_bytes, job.output_sha256)
