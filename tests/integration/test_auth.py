"""API keys: who may call what, over the wire."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from connectrpc.errors import ConnectError

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobServiceClient
from airunner.domain.errors import InvalidArgument, PermissionDenied, Unavailable
from airunner.rpc.auth import METHOD_SCOPES, Scope, check_scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_services
from tests.support.http_client import HttpClient
from tests.support.serving import serve

METHODS = [
    (f"/job.v1.{service.name}/{method.name}", method.name)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.fixture
async def url(services: Services) -> AsyncIterator[str]:
    async with serve(services, AppOptions(no_auth=False)) as address:
        yield address


def test_every_method_has_a_rule() -> None:
    plain_routes = {name for name in METHOD_SCOPES if name.endswith(("Generation", "Generations"))}
    assert {name for _, name in METHODS} == set(METHOD_SCOPES) - plain_routes


@pytest.mark.parametrize(("path", "method"), METHODS)
async def test_calls_without_a_good_key_are_refused(
    url: str, services: Services, path: str, method: str
) -> None:
    wrong: list[Scope] = [scope for scope in Scope if scope not in (METHOD_SCOPES[method], Scope.ADMIN)]
    bad = {
        "no key": ("", "unauthenticated"),
        "not a key": ("Bearer nonsense", "unauthenticated"),
        "unknown key": (f"Bearer {mint_key('x', [Scope.ADMIN], (), 0).text}", "unauthenticated"),
        "altered secret": (f"Bearer {await _key(services, [Scope.ADMIN])}x", "unauthenticated"),
        "all other scopes": (f"Bearer {await _key(services, wrong)}", "permission_denied"),
    }
    for name, (header, code) in bad.items():
        answer = await HttpClient().post(
            f"{url}{path}", headers={"content-type": _content_type(method), "authorization": header}
        )
        assert code in bytes(answer.content).decode(), name


@pytest.mark.parametrize(("path", "method"), METHODS)
async def test_the_scope_of_a_call_is_enough_for_it(
    url: str, services: Services, path: str, method: str
) -> None:
    header = f"Bearer {await _key(services, [METHOD_SCOPES[method]])}"
    answer = await HttpClient().post(
        f"{url}{path}", headers={"content-type": _content_type(method), "authorization": header}
    )
    text = bytes(answer.content).decode()
    assert "unauthenticated" not in text
    assert "permission_denied" not in text


async def test_a_key_with_the_scope_is_let_in_and_names_the_principal(url: str, services: Services) -> None:
    request = pb.EnqueueJobRequest(
        request_id=str(uuid.uuid4()), queue="builds", job_params=pb.JobParams(command="make")
    )
    ids = []
    for name in ("ann", "ann", "bob"):
        headers = {"authorization": f"Bearer {await _key(services, [Scope.SUBMIT], name=name)}"}
        ids.append((await JobServiceClient(url).enqueue_job(request, headers=headers)).job_id)
    # Request ids are each principal's own, and two keys of one name are one principal.
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Unavailable("the table is throttled"), ("unavailable", "the table is throttled")),
        (RuntimeError("no such table in /var/lib/keys.db"), ("internal", "Internal error.")),
    ],
)
async def test_keys_that_cannot_be_looked_up_tell_nobody_why(
    url: str, services: Services, monkeypatch: pytest.MonkeyPatch, error: Exception, answer: tuple[str, str]
) -> None:
    async def find_key(*_: object) -> None:
        raise error

    headers = {"authorization": f"Bearer {await _key(services, [Scope.READ])}"}
    monkeypatch.setattr(MemoryStore, "find_key", find_key)
    with pytest.raises(ConnectError) as refused:
        await JobServiceClient(url).list_queues(pb.ListQueuesRequest(), headers=headers)
    assert (refused.value.code.value, refused.value.message) == answer


async def test_a_revoked_key_is_refused_a_second_later(url: str, services: Services) -> None:
    text = await _key(services, [Scope.READ])
    headers = {"authorization": f"Bearer {text}"}
    await JobServiceClient(url).list_queues(pb.ListQueuesRequest(), headers=headers)
    await services.store.revoke_key(text.split("_")[1], services.clock.now())
    services.clock.advance(1)  # type: ignore[attr-defined]  # a ManualClock
    with pytest.raises(ConnectError, match="API key"):
        await JobServiceClient(url).list_queues(pb.ListQueuesRequest(), headers=headers)


async def test_a_worker_key_is_bound_to_its_queues(url: str, services: Services) -> None:
    headers = {"authorization": f"Bearer {await _key(services, [Scope.WORKER], queues=['builds'])}"}
    jobs = JobServiceClient(url)
    await jobs.dequeue_jobs(pb.DequeueJobsRequest(queue="builds", wait_seconds=0), headers=headers)
    for request in (
        pb.DequeueJobsRequest(queue="other", wait_seconds=0),
        pb.DequeueJobsRequest(queue="builds", more_queues=["other"], wait_seconds=0),
    ):
        with pytest.raises(ConnectError, match="not for queue other"):
            await jobs.dequeue_jobs(request, headers=headers)


async def test_health_needs_no_key(url: str) -> None:
    assert (await HttpClient().get(f"{url}/healthz")).status == 200
    assert (await HttpClient().get(f"{url}/readyz")).status == 200


def test_a_method_without_a_rule_is_denied() -> None:
    with pytest.raises(PermissionDenied):
        check_scope(mint_key("x", [Scope.READ, Scope.WORKER], (), 0).key, "SomethingNew")


def test_keys_with_unknown_scopes_or_without_a_name_are_not_made() -> None:
    for name, scopes in (("x", ["everything"]), ("x", []), ("", ["admin"])):
        with pytest.raises(InvalidArgument):
            mint_key(name, scopes, (), 0)


async def _key(
    services: Services, scopes: list[Scope], *, name: str = "ann", queues: list[str] | None = None
) -> str:
    minted = mint_key(name, scopes, queues or (), services.clock.now())
    await services.store.add_key(minted.key)
    return minted.text


def _content_type(method: str) -> str:
    streaming = method.startswith("Stream") or method in ("DequeueJob", "PublishJobEvents")
    return "application/connect+json" if streaming else "application/json"
