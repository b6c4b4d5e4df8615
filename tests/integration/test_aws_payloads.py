"""Payloads at the boundaries of row, item and bucket: kept, read, linked, refused and removed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from airunner.codec.jobs import decode_params, encode_params
from airunner.domain.errors import AlreadyExists, InvalidArgument, Unavailable
from airunner.domain.job import JobParams
from airunner.services.api import EnqueueRequest
from airunner.services.platform import PlatformRules
from airunner.stores.aws.layout import Layout
from airunner.stores.base import Retention
from airunner.testing.aws.faults import Kind
from airunner.testing.aws.strict import StrictProxy
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.backend import Api
from airunner.testing.factories import NEVER_SECONDS, make_platform, make_request, make_success
from tests.support.aws import client
from tests.support.aws_stores import make_resources, make_store
from tests.support.serving import serve

pytest_plugins = ("tests.support.aws",)

IN_ROW = 4 * 1024
IN_ITEM = 350 * 1024
MOST = 1024 * 1024
DAY_SECONDS = 24 * 3600


class Place:
    """A platform on AWS, and what it left there."""

    def __init__(self, api: Api, layout: Layout, url: str) -> None:
        self.api = api
        self.layout = layout
        self._url = url

    async def kept(self) -> tuple[list[str], list[str]]:
        """Return the keys of payload items and of objects."""
        async with client("dynamodb", self._url) as dynamodb:
            answer = await dynamodb.scan(TableName=self.layout.jobs_table, ProjectionExpression="job_id")
        keys = [item["job_id"]["S"] for item in answer["Items"]]
        items = sorted(key for key in keys if key.startswith(("params#", "result#")))
        if not self.layout.bucket:
            return items, []
        async with client("s3", self._url) as s3:
            listed: dict[str, Any] = await s3.list_objects_v2(Bucket=self.layout.bucket)
        return items, [entry["Key"] for entry in listed.get("Contents", ())]


@asynccontextmanager
async def _place(aws: StrictProxy, env: str, *, bucket: bool) -> AsyncIterator[Place]:
    clock, layout = ManualClock(), await make_resources(aws.url, env, bucket=bucket)
    rules = PlatformRules(
        maintenance_interval_seconds=NEVER_SECONDS, retention=Retention(jobs_ms=DAY_SECONDS * 1000)
    )
    async with make_platform(make_store(aws.url, layout, clock), clock, rules) as platform:
        api = Api(jobs=platform.jobs, events=platform.events, clock=clock, platform=platform)
        yield Place(api, layout, aws.url)


@pytest.fixture
async def place(aws: StrictProxy, aws_env: str) -> AsyncIterator[Place]:
    async with _place(aws, aws_env, bucket=True) as opened:
        yield opened


@pytest.fixture
async def bare(aws: StrictProxy, aws_env: str) -> AsyncIterator[Place]:
    """The same without a bucket."""
    async with _place(aws, aws_env, bucket=False) as opened:
        yield opened


@pytest.mark.parametrize(
    ("size", "in_item", "in_bucket"),
    [
        (IN_ROW, False, False),
        (IN_ROW + 1, True, False),
        (IN_ITEM, True, False),
        (IN_ITEM + 1, False, True),
        (MOST, False, True),
    ],
)
async def test_parameters_are_whole_wherever_their_size_puts_them(
    place: Place, size: int, in_item: bool, in_bucket: bool
) -> None:
    request = sized(size)
    held = await place.api.new_claim(request)
    assert held.job.params == request.params
    assert (await place.api.job(held)).params == request.params
    items, objects = await place.kept()
    assert items == ([f"params#{held.job.job_id}"] if in_item else [])
    assert objects == ([f"jobs/{held.job.job_id}/params"] if in_bucket else [])


async def test_a_byte_more_than_a_mebibyte_is_refused_and_not_kept(place: Place) -> None:
    with pytest.raises(InvalidArgument, match="job_params must have at most 1048576 bytes, not 1048577"):
        await place.api.enqueue(sized(MOST + 1))
    assert await place.kept() == ([], [])


async def test_without_a_bucket_what_fits_no_item_is_refused_and_not_kept(bare: Place) -> None:
    assert await bare.api.enqueue(sized(IN_ITEM))
    before = await bare.kept()
    with pytest.raises(InvalidArgument, match=r"need a bucket \(store.s3.bucket\)"):
        await bare.api.enqueue(sized(IN_ITEM + 1))
    assert await bare.kept() == before
    assert len(await bare.api.jobs.list_queues()) == 1


async def test_what_is_in_the_bucket_can_be_read_from_a_link(place: Place) -> None:
    request = sized(MOST)
    job_id = await place.api.enqueue(request)
    assert not (await place.api.jobs.get_job(job_id)).params_url
    job = await place.api.jobs.get_job(job_id, want_payload_urls=True)
    assert job.params == request.params
    assert not job.result_url
    async with aiohttp.ClientSession() as session, session.get(job.params_url) as answer:
        assert answer.status == 200
        assert decode_params(await answer.read()) == request.params


async def test_the_command_line_shows_links(place: Place) -> None:
    job_id = await place.api.enqueue(sized(MOST))
    async with serve(place.api.platform) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "airunner.cli", "get", job_id, "--json", "--server", url),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    document = json.loads(said)
    assert document["params_url"].startswith("http")
    assert document["params_url"].partition("?")[0].endswith(f"/jobs/{job_id}/params")
    assert document["result_url"] == ""


async def test_what_is_in_the_tables_has_no_link(place: Place) -> None:
    job_id = await place.api.enqueue(sized(IN_ITEM))
    assert not (await place.api.jobs.get_job(job_id, want_payload_urls=True)).params_url


@pytest.mark.parametrize(
    "hidden",
    [
        {"environment": {"KEY": "hunter2"}, "secret_names": ("KEY",)},
        {"repository_url": "https://user:hunter2@git.example/r.git"},
    ],
)
async def test_secrets_are_never_linked(place: Place, hidden: dict[str, Any]) -> None:
    params = JobParams(command="make", args=("x" * IN_ITEM,), **hidden)
    job_id = await place.api.enqueue(make_request(params=params))
    assert (await place.kept())[1] == [f"jobs/{job_id}/params"]
    assert not (await place.api.jobs.get_job(job_id, want_payload_urls=True)).params_url


@pytest.mark.parametrize("size", [IN_ROW + 1, MOST])
async def test_the_purge_takes_payloads_along(place: Place, size: int) -> None:
    held = await place.api.new_claim(sized(size))
    await place.api.complete(held, make_success(output_json='"' + "x" * IN_ROW + '"'))
    items, objects = await place.kept()
    assert [key for key in items if key.startswith(f"result#{held.job.job_id}#1-")]
    assert len(items) + len(objects) == 2
    await place.api.advance(DAY_SECONDS + 1)
    assert await place.kept() == ([], [])


async def test_a_purge_that_is_interrupted_is_finished_by_the_next(place: Place, aws: StrictProxy) -> None:
    held = await place.api.new_claim(sized(MOST))
    await place.api.complete(held)
    aws.faults.next("DeleteObject", Kind.SERVER_ERROR, times=4)
    with pytest.raises(Unavailable):
        await place.api.advance(DAY_SECONDS + 1)
    assert (await place.kept())[1] == [f"jobs/{held.job.job_id}/params"]
    await place.api.advance(1)
    assert await place.kept() == ([], [])


@pytest.mark.parametrize("size", [IN_ITEM, MOST])
async def test_a_repeated_request_leaves_nothing_of_its_own(
    aws: StrictProxy, aws_env: str, size: int
) -> None:
    request = sized(size)
    async with _place(aws, aws_env, bucket=True) as place:
        job_id = await place.api.enqueue(request)
        before = await place.kept()
        assert await place.api.enqueue(request) == job_id
        with pytest.raises(AlreadyExists):
            await place.api.enqueue(sized(size, request_id=request.request_id, letter="y"))
    assert await place.kept() == before


async def test_a_bucket_that_throttles_only_delays_a_claim(place: Place, aws: StrictProxy) -> None:
    job_id = await place.api.enqueue(sized(MOST))
    aws.faults.next("GetObject", Kind.THROTTLE)
    assert (await place.api.claim()).job.job_id == job_id
    assert aws.counts.calls["GetObject"] == 2


def sized(size: int, *, request_id: str = "", letter: str = "x") -> EnqueueRequest:
    """Return a wish whose encoded parameters have exactly so many bytes."""
    text = letter * (size - len(encode_params(JobParams(command="make", args=("",)))))
    while True:
        params = JobParams(command="make", args=(text,))
        excess = len(encode_params(params)) - size
        if not excess:
            return make_request(params=params, request_id=request_id)
        text = text[:-excess]
