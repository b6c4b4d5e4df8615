"""Keys that are bound to queues, and keys that may do everything: every method of every service."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from connectrpc.errors import ConnectError
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from airunner.client import AsyncClient
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import (
    AdminServiceClient,
    JobEventsServiceClient,
    JobServiceClient,
)
from airunner.domain.listing import JobQuery
from airunner.domain.requests import CompleteRequest, DequeueRequest
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_request, make_services, make_start, make_success
from tests.integration.wire import METHODS
from tests.support.http_client import HttpClient
from tests.support.quick_serving import serve_quickly

MINE, OTHER = "mine", "other"
PERMISSION_DENIED, NOT_FOUND, FAILED_PRECONDITION, OK = (
    "permission_denied",
    "not_found",
    "failed_precondition",
    "ok",
)
NOBODY = str(uuid.UUID(int=1))
CLIENTS: dict[str, Callable[[str], Any]] = {
    "JobService": JobServiceClient,
    "JobEventsService": JobEventsServiceClient,
    "AdminService": AdminServiceClient,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A queue, and jobs that are in it: one that waits, one that is held, one that has ended."""

    queue: str
    waiting: str
    held: str
    task_token: str
    ended: str

    @property
    def job_ids(self) -> set[str]:
        return {self.waiting, self.held, self.ended}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a call says about a queue, and how a key that is bound elsewhere is answered."""

    request: Callable[[Contents], Message]
    elsewhere: str = PERMISSION_DENIED
    within: str = OK
    unbound: str = ""
    """How a key that is bound to nothing is answered, if otherwise than one that is bound to the queue."""


def _enqueue(inside: Contents) -> pb.EnqueueJobRequest:
    params = pb.JobParams(command="make")
    return pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue=inside.queue, job_params=params)


def _complete(inside: Contents) -> pb.CompleteJobRequest:
    result = pb.JobResult(success=True, outcome=pb.OUTCOME_SUCCESS)
    return pb.CompleteJobRequest(task_token=inside.task_token, job_result=result)


def _events() -> list[pb.JobEvent]:
    start = pb.JobEvent(sequence=1, event_type=pb.EVENT_TYPE_PROCESS_START)
    start.timestamp.FromMilliseconds(1_700_000_000_000)
    start.process_start.pid = 4711
    return [start]


# A queue that is named, or a task token, is refused as such; a job that is asked for by its id is not there.
RULES: dict[str, list[Rule]] = {
    "EnqueueJob": [Rule(request=_enqueue)],
    "EnqueueJobs": [Rule(request=lambda inside: pb.EnqueueJobsRequest(jobs=[_enqueue(inside)]))],
    "DequeueJob": [Rule(request=lambda inside: pb.DequeueJobRequest(queue=inside.queue, wait_seconds=0))],
    "DequeueJobs": [
        Rule(request=lambda inside: pb.DequeueJobsRequest(queue=inside.queue, wait_seconds=0)),
        Rule(
            request=lambda inside: pb.DequeueJobsRequest(
                queue=MINE, more_queues=[inside.queue], wait_seconds=0
            )
        ),
        Rule(request=lambda inside: pb.DequeueJobsRequest(queue=inside.queue, wait_seconds=20)),
    ],
    "UpdateJob": [
        Rule(request=lambda inside: pb.UpdateJobRequest(queue=inside.queue, task_token=inside.task_token)),
        Rule(request=lambda inside: pb.UpdateJobRequest(task_token=inside.task_token)),
    ],
    "CompleteJob": [Rule(request=_complete)],
    "CompleteJobs": [Rule(request=lambda inside: pb.CompleteJobsRequest(completions=[_complete(inside)]))],
    "ReleaseJob": [Rule(request=lambda inside: pb.ReleaseJobRequest(task_token=inside.task_token))],
    "GetJob": [
        Rule(request=lambda inside: pb.GetJobRequest(job_id=inside.waiting), elsewhere=NOT_FOUND),
        # One that waits must not wait for what it may not see.
        Rule(
            request=lambda inside: pb.GetJobRequest(job_id=inside.ended, wait_seconds=60), elsewhere=NOT_FOUND
        ),
    ],
    "ListJobs": [Rule(request=lambda inside: pb.ListJobsRequest(queue=inside.queue))],
    "CancelJob": [
        Rule(request=request, elsewhere=NOT_FOUND)
        for request in (
            lambda inside: pb.CancelJobRequest(job_id=inside.waiting),
            lambda inside: pb.CancelJobRequest(job_id=inside.held),
            lambda inside: pb.CancelJobRequest(job_id=inside.ended),
        )
    ],
    "RetryJob": [
        Rule(
            request=lambda inside: pb.RetryJobRequest(job_id=inside.ended, request_id=str(uuid.uuid4())),
            elsewhere=NOT_FOUND,
        ),
        # Not even whether it has ended is told.
        Rule(
            request=lambda inside: pb.RetryJobRequest(job_id=inside.held, request_id=str(uuid.uuid4())),
            elsewhere=NOT_FOUND,
            within=FAILED_PRECONDITION,
        ),
    ],
    "ListQueues": [],
    "PauseQueue": [Rule(request=lambda inside: pb.PauseQueueRequest(queue=inside.queue))],
    "ResumeQueue": [Rule(request=lambda inside: pb.ResumeQueueRequest(queue=inside.queue))],
    "ListWorkers": [],
    "StreamJobEvents": [
        Rule(request=request, elsewhere=NOT_FOUND)
        for request in (
            lambda inside: pb.StreamJobEventsRequest(job_id=inside.ended),
            lambda inside: pb.StreamJobEventsRequest(job_id=inside.ended, attempt=1),
            lambda inside: pb.StreamJobEventsRequest(job_id=inside.held, no_follow=True),
        )
    ],
    "StreamJobEventBatches": [
        Rule(request=request, elsewhere=NOT_FOUND)
        for request in (
            lambda inside: pb.StreamJobEventBatchesRequest(job_id=inside.ended),
            lambda inside: pb.StreamJobEventBatchesRequest(job_id=inside.ended, attempt=1),
            lambda inside: pb.StreamJobEventBatchesRequest(job_id=inside.ended, cursor="1-0"),
        )
    ],
    "PublishJobEvents": [
        Rule(
            request=lambda inside: pb.PublishJobEventsRequest(task_token=inside.task_token, events=_events())
        )
    ],
    "PublishJobEventBatch": [
        Rule(
            request=lambda inside: pb.PublishJobEventBatchRequest(
                task_token=inside.task_token, events=_events()
            )
        )
    ],
    # The store in memory has no dead letters, and says so to who may ask.
    "ListDeadLetters": [
        Rule(request=lambda inside: pb.ListDeadLettersRequest(queue=inside.queue), within=FAILED_PRECONDITION)
    ],
    "RedriveDeadLetters": [
        Rule(
            request=lambda inside: pb.RedriveDeadLettersRequest(queue=inside.queue),
            within=FAILED_PRECONDITION,
        )
    ],
    "PurgeDeadLetters": [
        Rule(
            request=lambda inside: pb.PurgeDeadLettersRequest(queue=inside.queue), within=FAILED_PRECONDITION
        )
    ],
    # Settings are for all queues, and no key that is bound to some has a say.
    "ListSettings": [Rule(request=lambda _: pb.ListSettingsRequest(), within=PERMISSION_DENIED, unbound=OK)],
    "SetSetting": [
        Rule(
            request=lambda _: pb.SetSettingRequest(name="execution.batching.adaptive", value="false"),
            within=PERMISSION_DENIED,
            unbound=OK,
        )
    ],
    "UnsetSetting": [
        Rule(
            request=lambda _: pb.UnsetSettingRequest(name="execution.batching.adaptive"),
            within=PERMISSION_DENIED,
            unbound=OK,
        )
    ],
    # So is a fleet, which this server has none of.
    "ListHousekeepingRuns": [
        Rule(
            request=lambda _: pb.ListHousekeepingRunsRequest(),
            within=PERMISSION_DENIED,
            unbound=FAILED_PRECONDITION,
        )
    ],
    "GetPoolReport": [
        Rule(
            request=lambda _: pb.GetPoolReportRequest(),
            within=PERMISSION_DENIED,
            unbound=FAILED_PRECONDITION,
        )
    ],
    "RunHousekeeping": [
        Rule(
            request=lambda _: pb.RunHousekeepingRequest(task_type="old_jobs"),
            within=PERMISSION_DENIED,
            unbound=FAILED_PRECONDITION,
        )
    ],
}
# What lists only, and names no queue: the tests below look at what is in the answers.
LISTS = {"ListQueues", "ListWorkers"}
CASES = [
    pytest.param(method, rule, id=f"{method.name}-{number}")
    for method in METHODS
    for number, rule in enumerate(RULES.get(method.name, ()))
]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.fixture
async def url(services: Services) -> AsyncIterator[str]:
    async with serve_quickly(services, AppOptions(no_auth=False)) as address:
        yield address


@pytest.fixture
async def mine(services: Services) -> Contents:
    return await _fill(services, MINE)


@pytest.fixture
async def other(services: Services) -> Contents:
    return await _fill(services, OTHER)


def test_every_method_has_a_rule_for_bound_keys() -> None:
    assert {method.name for method in METHODS} == set(RULES)
    assert {name for name, rules in RULES.items() if not rules} == LISTS


@pytest.mark.parametrize(("method", "rule"), CASES)
async def test_a_bound_key_does_nothing_elsewhere(
    url: str, services: Services, mine: Contents, other: Contents, method: MethodDescriptor, rule: Rule
) -> None:
    key = await _key(services, queues=[MINE])
    before = await _state_of(services, other)
    assert (await _call(url, key, method, rule.request(other)))[0] == rule.elsewhere
    assert await _state_of(services, other) == before
    assert (await _call(url, key, method, rule.request(mine)))[0] == rule.within


@pytest.mark.parametrize(
    "name", ["GetJob", "CancelJob", "RetryJob", "StreamJobEvents", "StreamJobEventBatches"]
)
async def test_a_foreign_job_is_answered_like_a_missing_one(
    url: str, services: Services, other: Contents, name: str
) -> None:
    key = await _key(services, queues=[MINE])
    [method] = [method for method in METHODS if method.name == name]
    for rule in RULES[name]:
        foreign, missing = rule.request(other), rule.request(other)
        missing.job_id = NOBODY  # type: ignore[attr-defined]  # all of these have one
        assert await _call(url, key, method, foreign) == await _call(url, key, method, missing)


async def test_a_foreign_job_has_no_events_for_browsers(
    url: str, services: Services, mine: Contents, other: Contents
) -> None:
    headers = {"authorization": f"Bearer {await _key(services, queues=[MINE])}"}

    async def answer(job_id: str, more: str = "") -> tuple[int, bytes]:
        response = await HttpClient().get(f"{url}/v1/jobs/{job_id}/events{more}", headers=headers)
        return response.status, bytes(response.content)

    for more in ("", "?attempt=1", "?no_follow=1"):
        assert await answer(other.ended, more) == await answer(NOBODY, more)
        assert (await answer(other.ended, more))[0] == 404
        assert (await answer(mine.ended, more))[0] == 200


async def test_lists_show_the_bound_queues_alone(
    url: str, services: Services, mine: Contents, other: Contents
) -> None:
    third = await _fill(services, "third")
    for queues, visible in (
        ([MINE], [mine]),
        ([MINE, "third", "unused"], [mine, third]),
        (["unused"], []),
        ([], [mine, other, third]),
    ):
        seen = {job_id for inside in visible for job_id in inside.job_ids}
        async with AsyncClient(url, api_key=await _key(services, queues=queues)) as client:
            page = await client.list_jobs(JobQuery())
            assert {job.job_id for job in page.jobs} == seen
            assert await _walk(client) == seen
            assert [stats.name for stats in await client.list_queues()] == [
                inside.queue for inside in visible
            ]
            workers = {worker.worker_id: worker for worker in await client.list_workers()}
            # A worker of several queues is shown with those of its queues and jobs that the key may see.
            assert ("all" in workers) == bool(visible)
            assert {f"{inside.queue}-worker" for inside in visible} == workers.keys() - {"all"}
            for worker in workers.values():
                assert set(worker.job_ids) <= seen
                assert set(worker.queues) <= {inside.queue for inside in visible}


async def test_a_key_that_is_bound_may_still_not_do_what_it_has_no_scope_for(
    url: str, services: Services, mine: Contents
) -> None:
    key = await _key(services, scopes=[Scope.READ], queues=[MINE])
    for method in METHODS:
        if method.name in {"PauseQueue", "CancelJob", "EnqueueJob", "CompleteJob"}:
            request = RULES[method.name][0].request(mine)
            assert (await _call(url, key, method, request))[0] == PERMISSION_DENIED


@pytest.mark.parametrize(("method", "rule"), CASES)
async def test_admin_includes_everything(
    url: str, services: Services, mine: Contents, method: MethodDescriptor, rule: Rule
) -> None:
    key = await _key(services, scopes=[Scope.ADMIN])
    assert (await _call(url, key, method, rule.request(mine)))[0] == (rule.unbound or rule.within)


@pytest.mark.parametrize(("method", "rule"), CASES)
async def test_what_nobody_expected_is_not_told_to_callers(
    url: str,
    services: Services,
    mine: Contents,
    monkeypatch: pytest.MonkeyPatch,
    method: MethodDescriptor,
    rule: Rule,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("SELECT secret FROM /var/lib/airunner.db")

    key = await _key(services, scopes=list(Scope))
    request = rule.request(mine)
    for name in dir(MemoryStore):
        if not name.startswith("_") and name not in {"find_key", "open", "close", "withdraw", "changes"}:
            kind = getattr(MemoryStore, name)
            monkeypatch.setattr(MemoryStore, name, property(fail) if isinstance(kind, property) else fail)
    monkeypatch.setattr(MemoryStore, "dead_letters", property(fail))
    services.fleet.attach(type("Office", (), dict.fromkeys(("list_runs", "report", "request_run"), fail))())
    code, text = await _call(url, key, method, request)
    assert code == "internal"
    assert not re.search(r"secret|/var|RuntimeError", text)


async def _fill(services: Services, queue: str) -> Contents:
    """Put a job that has ended, one that is held and one that waits into a queue."""
    jobs = services.jobs
    dequeue = DequeueRequest(queue=queue, wait_seconds=0, worker_id=f"{queue}-worker")
    await jobs.enqueue_jobs([make_request(queue)])
    (ended,) = await jobs.dequeue_jobs(dequeue)
    done = CompleteRequest(
        task_token=ended.task_token, result=make_success(final_sequence=1), events=[make_start()]
    )
    await jobs.complete_jobs([done])
    await jobs.enqueue_jobs([make_request(queue)])
    every = DequeueRequest(queue=queue, more_queues=(MINE, OTHER), wait_seconds=0, worker_id="all")
    (held,) = await jobs.dequeue_jobs(every)
    await jobs.enqueue_jobs([make_request(queue)])
    (waiting,) = (await jobs.list_jobs(JobQuery(queue=queue, page_size=1))).jobs
    return Contents(
        queue=queue,
        waiting=waiting.job_id,
        held=held.job.job_id,
        task_token=held.task_token,
        ended=ended.job.job_id,
    )


async def _state_of(services: Services, inside: Contents) -> list[Any]:
    jobs = [await services.jobs.get_job(job_id) for job_id in sorted(inside.job_ids)]
    stats = [stats for stats in await services.jobs.list_queues() if stats.name == inside.queue]
    return [jobs, stats, await services.store.list_jobs(JobQuery(queue=inside.queue))]


async def _walk(client: AsyncClient) -> set[str]:
    found: set[str] = set()
    cursor = ""
    while True:
        page = await client.list_jobs(JobQuery(page_size=2, cursor=cursor))
        found |= {job.job_id for job in page.jobs}
        cursor = page.next_cursor
        if not cursor:
            return found


async def _key(
    services: Services, *, scopes: list[Scope] | None = None, queues: list[str] | None = None
) -> str:
    minted = mint_key("ann", scopes or [Scope.ADMIN], queues or (), services.clock.now())
    await services.store.add_key(minted.key)
    return minted.text


async def _call(url: str, key: str, method: MethodDescriptor, request: Message) -> tuple[str, str]:
    """Return how a call ends: its code, that of its only entry if it has entries, and all that it says."""
    function = getattr(CLIENTS[method.containing_service.name](url), _snake(method.name))
    argument = _stream(request) if method.client_streaming else request
    try:
        answer = function(argument, headers={"authorization": f"Bearer {key}"})
        messages = [message async for message in answer] if method.server_streaming else [await answer]
    except ConnectError as error:
        return error.code.value, error.message
    for message in messages:
        with suppress(AttributeError):
            for outcome in message.outcomes:
                if outcome.HasField("error"):
                    return outcome.error.code, outcome.error.message
    return OK, ""


async def _stream(request: Message) -> AsyncIterator[Message]:
    yield request


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
