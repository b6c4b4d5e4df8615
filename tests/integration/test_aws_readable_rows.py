"""Rows that people can read: as the seeds print them, and beside rows and servers of the other form."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from google.protobuf import json_format

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_to_pb
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_request, make_services, make_success
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store

pytest_plugins = ("tests.support.aws",)

RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
BESIDE, IN_BUCKET = 600, 400_000


class Servers:
    """Servers on one set of tables, each of which writes rows in a form, and the tables themselves."""

    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self.clock = ManualClock()

    @asynccontextmanager
    async def serve(self, row_format: int, *, drop_secrets: bool = False) -> AsyncIterator[Api]:
        store = make_store(
            self.url, self.layout, self.clock, row_format=row_format, drop_secrets=drop_secrets
        )
        async with make_services(store, self.clock, RULES) as services:
            yield Api(jobs=services.jobs, events=services.events, clock=self.clock, services=services)

    async def row(self, key: str) -> dict[str, Any]:
        async with client("dynamodb", self.url) as dynamodb:
            table = self.layout.jobs_table
            answer = await dynamodb.get_item(TableName=table, Key={"job_id": {"S": key}})
        return dict(answer["Item"])

    async def add_to_row(self, key: str, name: str, value: dict[str, Any]) -> None:
        async with client("dynamodb", self.url) as dynamodb:
            await dynamodb.update_item(
                TableName=self.layout.jobs_table,
                Key={"job_id": {"S": key}},
                UpdateExpression=f"SET {name} = :value",
                ExpressionAttributeValues={":value": value},
            )


@pytest.fixture
async def servers(aws: StrictProxy, borrow_layout: BorrowLayout) -> Servers:
    return Servers(aws.url, await borrow_layout(bucket=True))


async def test_a_row_is_as_the_seeds_print_it(servers: Servers) -> None:
    params = JobParams(
        repository_url="https://git.example/team/app.git",
        command="make",
        args=("all", ""),
        environment={"CI": "true"},
        timeout_seconds=900,
    )
    async with servers.serve(2) as api:
        request = make_request(params=params)
        held = await api.new_claim(request)
        await api.complete(held, make_success(output_json='{"artefacts": [3, 1e400]}'))
        row = await servers.row(held.job.job_id)
        assert row["queue"] == {"S": QUEUE}
        assert row["state"] == {"N": str(int(JobState.COMPLETED))}
        assert row["request_id"] == {"S": request.request_id}
        assert row["created_at"] == {"N": str(held.job.created_at)}
        assert row["job_params"] == {
            "M": {
                "repository_url": {"S": "https://git.example/team/app.git"},
                "command": {"S": "make"},
                "args": {"L": [{"S": "all"}, {"S": ""}]},
                "environment": {"M": {"CI": {"S": "true"}}},
                "timeout_seconds": {"N": "900"},
            }
        }
        batching = row["execution_config"]["M"]["batching"]["M"]
        assert (batching["flush_interval_seconds"], batching["max_batch_size"]) == ({"N": "2"}, {"N": "50"})
        assert row["execution_config"]["M"]["heartbeat_interval_seconds"] == {"N": "30"}
        assert row["result"]["M"]["outcome"] == {"S": "OUTCOME_SUCCESS"}
        assert row["output_json"] == {"S": '{"artefacts": [3, 1e400]}'}
        assert not [name for name, value in row.items() if "B" in value]
        job = await api.job(held)
        assert (job.params, job.result) == (params, make_success(output_json='{"artefacts": [3, 1e400]}'))


async def test_what_is_beside_a_row_is_json(servers: Servers) -> None:
    async with servers.serve(2) as api:
        beside, stored = [
            JobParams(handler="report", payload_json=json.dumps({"text": 'ü"' * (size // 4)}))
            for size in (BESIDE, IN_BUCKET)
        ]
        held = await api.new_claim(make_request(params=beside))
        item = await servers.row(f"params#{held.job.job_id}")
        assert json_format.Parse(item["payload"]["S"], pb.JobParams()) == params_to_pb(beside)
        assert "job_params" not in await servers.row(held.job.job_id)
        job_id = await api.enqueue(make_request(params=stored))
        job = await api.jobs.get_job(job_id, want_payload_urls=True)
        assert job.params == stored
        assert job.params_url.partition("?")[0].endswith(f"/jobs/{job_id}/params.json")
        async with aiohttp.ClientSession() as session, session.get(job.params_url) as answer:
            assert answer.content_type == "application/json"
            assert json_format.Parse(await answer.read(), pb.JobParams()) == params_to_pb(stored)
        result = make_success(output_json=json.dumps("x" * IN_BUCKET))
        await api.complete(held, result)
        job = await api.jobs.get_job(held.job.job_id, want_payload_urls=True)
        assert job.result == result
        assert job.result_url.partition("?")[0].endswith(".json")
        # What the row tells without its output is enough for a look at the table.
        assert (await servers.row(job.job_id))["result"]["M"]["success"] == {"BOOL": True}
        listed = (await api.jobs.list_jobs(JobQuery())).jobs
        assert [one.abridged for one in listed] == [True, True]
        await api.advance(8 * 24 * 3600)
        async with client("s3", servers.url) as s3:
            left = await s3.list_objects_v2(Bucket=servers.layout.bucket)
        assert [entry["Key"] for entry in left["Contents"]] == [f"jobs/{job_id}/params.json"]


@pytest.mark.parametrize(
    ("first", "second"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.slow)], ids=["old-new", "new-old"]
)
async def test_servers_of_both_forms_work_on_the_same_jobs(servers: Servers, first: int, second: int) -> None:
    sizes = (10, BESIDE, 5_000)
    async with servers.serve(first) as one, servers.serve(second) as other:
        params = [JobParams(command="make", args=("x" * size,)) for size in sizes]
        job_ids = [await one.enqueue(make_request(params=each)) for each in params]
        held = {dequeued.job.job_id: dequeued for dequeued in await other.dequeue(max_jobs=3)}
        assert [held[job_id].job.params for job_id in job_ids] == params
        for api, job_id, size in zip((other, one, other), job_ids, sizes, strict=True):
            result = make_success(output_json=json.dumps("y" * size))
            # Both have a look before and after: the same end may be told to either.
            for teller in (api, one, other):
                assert await teller.complete(held[job_id], result) is JobState.COMPLETED
                assert (await teller.jobs.get_job(job_id)).result == result
        row, kinds = await servers.row(job_ids[0]), {1: "B", 2: "M"}
        # Each has written its own form: what is read is not one form twice.
        assert (*row["job_params"], *row["result"]) == (kinds[first], kinds[second])
        assert (await one.jobs.list_jobs(JobQuery())).jobs == (await other.jobs.list_jobs(JobQuery())).jobs
        for api in (one, other):
            copy = await api.jobs.retry_job(job_ids[2], str(uuid.uuid4()))
            assert (copy.params, copy.execution) == (params[2], held[job_ids[2]].job.execution)


@pytest.mark.parametrize("row_format", [1, 2], ids=["old", "new"])
async def test_what_a_newer_server_adds_to_a_row_stays(servers: Servers, row_format: int) -> None:
    secret = {"environment": {"TOKEN": "correct horse"}, "secret_names": ("TOKEN",)}
    params = JobParams(command="make", **secret)  # type: ignore[arg-type]  # of two kinds
    async with servers.serve(row_format, drop_secrets=True) as api:
        job_id = await api.enqueue(make_request(params=params))
        await servers.add_to_row(job_id, "priority", {"N": "7"})
        if row_format == 2:
            await servers.add_to_row(job_id, "job_params.gpu", {"M": {"kind": {"NULL": True}}})
            await servers.add_to_row(job_id, "execution_config.batching.codec", {"S": "br"})
        held = await api.claim()
        assert held.job.params == params
        await api.beat(held)
        await api.publish(held, make_batch(1, 2))
        await api.complete(held, make_success(final_sequence=2))
        row = await servers.row(job_id)
        assert row["priority"] == {"N": "7"}
        if row_format == 2:
            assert row["job_params"]["M"].keys() == {"command", "secret_names", "gpu"}
            assert row["execution_config"]["M"]["batching"]["M"]["codec"] == {"S": "br"}
        assert (await api.job(held)).params == replace(params, environment={})


@pytest.mark.slow
async def test_secrets_go_from_json_beside_the_row(servers: Servers) -> None:
    params = JobParams(
        command="make",
        args=("x" * IN_BUCKET,),
        environment={"TOKEN": "correct horse", "CI": "1"},
        secret_names=("TOKEN",),
    )
    async with servers.serve(2, drop_secrets=True) as api:
        ids = []
        for given in (replace(params, args=("x" * BESIDE,)), params):
            held = await api.new_claim(make_request(params=given))
            ids.append(held.job.job_id)
            assert held.job.params == given
            # A link would show them to anybody.
            assert not (await api.jobs.get_job(held.job.job_id, want_payload_urls=True)).params_url
            await api.complete(held)
            assert (await api.job(held)).params == replace(given, environment={"CI": "1"})
        assert "horse" not in json.dumps(await servers.row(f"params#{ids[0]}"))
        async with client("s3", servers.url) as s3:
            found = await s3.get_object(Bucket=servers.layout.bucket, Key=f"jobs/{ids[1]}/params.json")
            assert b"horse" not in await found["Body"].read()
