"""A witness beside the clients of some replicas: it writes down what they are told, for the history checker.

What a replica answered counts, whatever became of the replica since; what it did not answer was never said.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from airunner.domain.answers import DequeuedJob, Enqueued, Published
from airunner.domain.batching import unpack
from airunner.domain.errors import AirunnerError, NotFound
from airunner.domain.event import Event, Output, StreamType
from airunner.domain.job import Job, JobState
from airunner.domain.listing import JobPage, JobQuery
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    EnqueueRequest,
    ReleaseRequest,
    StreamRequest,
)
from airunner.domain.token import TokenSigner
from airunner.services.api import EventsApi, JobsApi
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import TOKEN_KEY
from tests.support.history import History, Reading, Watch, Written, problems


class Witness:
    """One history of all the replicas that it accompanies, from one judgement to the next.

    It knows the key of their tokens.
    """

    def __init__(self, token_key: bytes = TOKEN_KEY) -> None:
        self.history = History()
        self._signer = TokenSigner([token_key])
        self._written: dict[tuple[str, int], dict[int, Output]] = defaultdict(dict)

    def accompany(self, api: Api, name: str) -> Api:
        """Return the same services, but with everything they say written down."""
        jobs, events = WitnessedJobs(api.jobs, self), WitnessedEvents(api.events, self, name)
        # What they do not have themselves they pass on, which a type cannot say.
        return replace(api, jobs=cast("JobsApi", jobs), events=cast("EventsApi", events))

    async def judge(self, api: Api) -> list[str]:
        """Return what cannot be the truth, now that all jobs should have ended; then begin anew.

        Every job is read once more by `api`, and so are all its events.
        """
        known = self.history.known_jobs()
        last = await asyncio.gather(*(self._last_look(api, job_id) for job_id in known))
        history, self.history = self.history, History()
        written, self._written = self._written, defaultdict(dict)
        history.written = {place: _written(outputs) for place, outputs in written.items()}
        return problems(history, {job.job_id: job for job in last if job})

    def attempt_of(self, task_token: str) -> tuple[str, int]:
        """Return the job and the attempt that a token speaks for."""
        token = self._signer.decode(task_token)
        return token.job_id, token.attempt

    def writes(self, task_token: str, events: Sequence[Event]) -> None:
        """The process of an attempt wrote this, whether or not anybody ever hears of it."""
        outputs = self._written[self.attempt_of(task_token)]
        for event in (one for several in events for one in unpack(several)):
            if isinstance(event.data, Output):
                outputs.setdefault(event.sequence, event.data)

    def stored(self, task_token: str, events: Sequence[Event]) -> None:
        """A replica said that it has these events."""
        if events:
            self.history.acknowledge(*self.attempt_of(task_token), events[-1].last_sequence)

    async def _last_look(self, api: Api, job_id: str) -> Job | None:
        try:
            job = await api.jobs.get_job(job_id)
            # The stream of a job that has ended ends by itself, which tells its reader that this is all.
            await api.read(StreamRequest(job_id=job_id, follow=job.state.terminal))
        except NotFound:
            return None
        return job


@dataclass(frozen=True, slots=True)
class WitnessedJobs:
    """The job side of a replica."""

    jobs: JobsApi
    witness: Witness

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        outcomes = await self.jobs.enqueue_jobs(requests)
        for outcome in outcomes:
            if isinstance(outcome, Enqueued):
                self.witness.history.accept(outcome.job_id)
        return outcomes

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        claimed = await self.jobs.dequeue_jobs(request)
        for held in claimed:
            self.witness.history.claim(held.job)
        return claimed

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        for request in requests:
            self.witness.writes(request.task_token, request.events)
        outcomes = await self.jobs.complete_jobs(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, JobState):
                self._ended(request, outcome)
        return outcomes

    async def release_job(self, request: ReleaseRequest) -> JobState:
        self.witness.writes(request.task_token, request.events)
        state = await self.jobs.release_job(request)
        self.witness.stored(request.task_token, request.events)
        return state

    async def get_job(self, job_id: str, **options: Any) -> Job:
        return self._read(await self.jobs.get_job(job_id, **options))

    async def list_jobs(self, query: JobQuery) -> JobPage:
        page = await self.jobs.list_jobs(query)
        for job in page.jobs:
            if not job.abridged:  # what was left out of one is no contradiction
                self._read(job)
        return page

    async def cancel_job(self, job_id: str) -> Job:
        return self._read(await self.jobs.cancel_job(job_id))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jobs, name)

    def _read(self, job: Job) -> Job:
        self.witness.history.read(job)
        return job

    def _ended(self, request: CompleteRequest, state: JobState) -> None:
        """Whoever is told that its result was taken has as good as read it."""
        job_id, attempt = self.witness.attempt_of(request.task_token)
        reading = Reading(job_id=job_id, state=state, attempt=attempt, result=request.result)
        self.witness.history.readings.append(reading)
        self.witness.stored(request.task_token, request.events)


@dataclass(frozen=True, slots=True)
class WitnessedEvents:
    """The event side of a replica."""

    events: EventsApi
    witness: Witness
    name: str

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        self.witness.writes(task_token, events)
        published = await self.events.publish_events(task_token, events)
        self.witness.history.acknowledge(*self.witness.attempt_of(task_token), published.next_sequence - 1)
        return published

    async def stream_events(self, request: StreamRequest) -> AsyncIterator[Event]:
        """Stream; what begins in the midst of an attempt is no watch that could be judged."""
        watch = Watch(watcher=f"a client of {self.name}", job_id=request.job_id)
        if request == StreamRequest(job_id=request.job_id, attempt=request.attempt, follow=request.follow):
            self.witness.history.watches.append(watch)
        async for event in self.events.stream_events(request):
            watch.events.append(event)
            yield event
        watch.ended = request.follow and not request.attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)


def _written(outputs: dict[int, Output]) -> Written:
    return Written(
        stdout=b"".join(_bytes(outputs, StreamType.STDOUT)),
        stderr=b"".join(_bytes(outputs, StreamType.STDERR)),
    )


def _bytes(outputs: dict[int, Output], stream: StreamType) -> Iterator[bytes]:
    for _, output in sorted(outputs.items()):
        if output.stream is stream:
            yield output.output
