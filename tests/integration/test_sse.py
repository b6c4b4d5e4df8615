"""Events for browsers and `curl -N`, over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from airunner.domain.clock import SystemClock
from airunner.domain.requests import CompleteRequest, DequeueRequest
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.services.notifier import job_bell
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventPage, EventQuery
from airunner.testing.conditions import until
from airunner.testing.factories import (
    make_batch,
    make_end,
    make_request,
    make_services,
    make_start,
    make_success,
)
from tests.support.http_client import HttpClient
from tests.support.serving import serve

MESSAGE = re.compile(r"id: (.*)\nevent: (.*)\ndata: (.*)\n\n")


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


async def test_a_finished_job_is_replayed_and_ended(services: Services) -> None:
    job_id = await _finished_job(services)
    async with serve(services) as url:
        answer = await HttpClient().get(f"{url}/v1/jobs/{job_id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    text = bytes(answer.content).decode()
    found = MESSAGE.findall(text)
    assert [json.loads(data)["sequence"] for _, _, data in found] == [str(n) for n in range(1, 13)]
    assert [kind for _, kind, _ in found] == ["process_start", *["output_data"] * 10, "process_end"]
    assert text.endswith("event: end\ndata: {}\n\n")


async def test_a_reader_goes_on_after_its_last_event_id(services: Services) -> None:
    job_id = await _finished_job(services)
    async with serve(services) as url:
        whole = MESSAGE.findall(
            bytes((await HttpClient().get(f"{url}/v1/jobs/{job_id}/events")).content).decode()
        )
        for place in (1, 5, 11):
            answer = await HttpClient().get(
                f"{url}/v1/jobs/{job_id}/events", headers={"last-event-id": whole[place - 1][0]}
            )
            assert MESSAGE.findall(bytes(answer.content).decode()) == whole[place:]


async def test_a_stream_is_live(services: Services) -> None:
    token, job_id = await _held_job(services)
    async with serve(services) as url:
        address = f"{url}/v1/jobs/{job_id}/events?event_type=process_end"
        reading = asyncio.create_task(HttpClient().get(address))
        await until(lambda: services.watchers.watched(job_id))
        await _finish(services, token)
        found = MESSAGE.findall(bytes((await reading).content).decode())
    assert [kind for _, kind, _ in found] == ["process_end"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("0190f5a4-7c1e-7b3a-9d2f-1b6e5c4d3a21/events", 404),
        ("not-a-job/events", 400),
        ("{job_id}/events?from_sequence=-1", 400),
        ("{job_id}/events?from_sequence=x", 400),
        ("{job_id}/events?event_type=nothing", 400),
        ("{job_id}/events?form_sequence=1", 400),
    ],
)
async def test_bad_requests_have_a_status_and_a_reason(services: Services, path: str, status: int) -> None:
    job_id = await _finished_job(services)
    async with serve(services) as url:
        answer = await HttpClient().get(f"{url}/v1/jobs/{path.format(job_id=job_id)}")
    assert answer.status == status
    assert json.loads(bytes(answer.content))["message"]


@pytest.mark.parametrize("goes_well_first", [False, True])
async def test_what_nobody_expects_is_logged_and_its_text_stays_here(
    services: Services, monkeypatch: pytest.MonkeyPatch, *, goes_well_first: bool
) -> None:
    _, job_id = await _held_job(services)
    read_events, calls = MemoryStore.read_events, 0

    async def fail(store: MemoryStore, query: EventQuery) -> EventPage:
        nonlocal calls
        calls += 1
        if goes_well_first and calls == 1:
            return await read_events(store, query)
        raise RuntimeError("no such table in /var/lib/events.db")

    monkeypatch.setattr(MemoryStore, "read_events", fail)
    with capture_logs() as logged:
        async with serve(services) as url:
            reading = asyncio.create_task(HttpClient().get(f"{url}/v1/jobs/{job_id}/events"))
            if goes_well_first:
                await until(lambda: calls == 1 and services.watchers.watched(job_id))
                services.notifier.ring(job_bell(job_id))
            answer = await reading
    text = bytes(answer.content).decode()
    assert "events.db" not in text
    assert "event: end" not in text
    if not goes_well_first:
        assert (answer.status, json.loads(text)) == (500, {"code": "internal", "message": "Internal error."})
    failed = [line for line in logged if line["event"] == "rpc.failed"]
    assert [line["method"] for line in failed] == ["StreamJobEvents"]


async def test_a_key_that_may_read_is_needed(services: Services) -> None:
    job_id = await _finished_job(services)
    statuses: dict[str, int] = {}
    async with serve(services, AppOptions(no_auth=False)) as url:
        for scope in (Scope.READ, Scope.SUBMIT):
            minted = mint_key("ann", [scope], (), 0)
            await services.store.add_key(minted.key)
            headers = {"authorization": f"Bearer {minted.text}"}
            answer = await HttpClient().get(f"{url}/v1/jobs/{job_id}/events", headers=headers)
            statuses[scope] = answer.status
        statuses["nobody"] = (await HttpClient().get(f"{url}/v1/jobs/{job_id}/events")).status
    assert statuses == {Scope.READ: 200, Scope.SUBMIT: 403, "nobody": 401}


async def test_a_server_that_shuts_down_does_not_call_it_the_end(services: Services) -> None:
    _, job_id = await _held_job(services)
    async with serve(services) as url:
        reading = asyncio.create_task(HttpClient().get(f"{url}/v1/jobs/{job_id}/events"))
        await until(lambda: services.watchers.watched(job_id))
        await services.stop()
        assert b"event: end" not in bytes((await reading).content)


async def _held_job(services: Services) -> tuple[str, str]:
    await services.jobs.enqueue_jobs([make_request()])
    held = (await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0)))[0]
    return held.task_token, held.job.job_id


async def _finish(services: Services, token: str) -> None:
    events = [make_start(), make_batch(2, 11), make_end(12)]
    done = CompleteRequest(task_token=token, result=make_success(final_sequence=12), events=events)
    await services.jobs.complete_jobs([done])


async def _finished_job(services: Services) -> str:
    token, job_id = await _held_job(services)
    await _finish(services, token)
    return job_id
