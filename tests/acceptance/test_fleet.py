"""The processors of a fleet as real processes: in a server on SQLite, on their own beside servers on AWS."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airunner.app import build_fleet_connection
from airunner.client import AsyncClient
from airunner.config import FleetPart, Settings, load_settings
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import FailedPrecondition
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import DequeueRequest
from airunner.fleet.aws.connection import FleetConnection, fleet_layout
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType, format_housekeeping
from airunner.fleet.messages.termination import EndStatus, TerminationMessage, format_termination
from airunner.fleet.records import InstanceRecord, RunOutcome
from airunner.queues.messages import NewMessage
from airunner.testing.conditions import until
from tests.acceptance.command_line import CommandLine, serving
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client as client_of
from tests.support.cloudwatch import Watch, watch_of_fleet
from tests.support.fleet_aws import provide_fleet

pytest_plugins = ("tests.support.aws",)

INSTANCE = "i-0123456789abcdef0"
NOW = 1_763_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody at a command line, and the fleet that they look after."""

    person: CommandLine
    fleet: FleetConnection
    namespace: str

    def watch(self) -> Watch:
        return watch_of_fleet(self.person.variables["AWS_ENDPOINT_URL"], self.namespace)

    async def send(self, part: FleetPart, body: str) -> None:
        (sent,) = await (await self.fleet.queue(part)).send([NewMessage(body=body)])
        assert isinstance(sent, str)


@pytest.fixture
async def operator(tmp_path: Path, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[Operator]:
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_STORE__AWS__ENV": aws_env,
        "AIRUNNER_STORE__AWS__ACCESS_KEY_ID": ACCESS_KEY,
        "AIRUNNER_STORE__AWS__SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_FLEET__TABLE": f"fleet_{aws_env}",
        "AIRUNNER_FLEET__PARAMETER_PREFIX": f"/{aws_env}/runners",
        "AIRUNNER_TOKEN_KEYS": "for-this-test-and-long-enough",
    }
    settings: Settings = load_settings(environ=variables, cwd=tmp_path).settings
    await provide_fleet(emulator.url, fleet_layout(settings))
    async with build_fleet_connection(settings) as fleet:
        person = CommandLine(folder=tmp_path, variables=variables)
        yield Operator(person=person, fleet=fleet, namespace=aws_env)


async def begun(client: AsyncClient) -> DequeuedJob:
    """Return an attempt that an instance has begun."""
    await client.enqueue(JobParams(command="true"))
    (held,) = await client.dequeue_jobs(DequeueRequest(queue="default", instance_id=INSTANCE))
    return held


def report_of(job_id: str, token: str) -> str:
    """Return what the runner of that instance says at the end."""
    message = TerminationMessage(
        instance_id=INSTANCE,
        job_id=job_id,
        status=EndStatus.SUCCESS,
        exit_code=0,
        duration_seconds=1.5,
        started_at=NOW,
        completed_at=NOW + 1500,
        attempt=1,
        termination_token=token,
    )
    return format_termination(message)


async def test_a_server_on_sqlite_runs_a_fleet_in_its_process(operator: Operator) -> None:
    fleet, variables = operator.fleet, {"AIRUNNER_FLEET__RUN": "termination,housekeeping,schedule"}
    person = CommandLine(folder=operator.person.folder, variables={**operator.person.variables, **variables})
    name = fleet.parameters.name_of(INSTANCE)
    await fleet.aws.ssm("PutParameter", Name=name, Value="{}", Type="SecureString", Overwrite=True)
    with serving(person, "--no-auth") as (server, url):
        async with AsyncClient(url) as client:
            held = await begun(client)
            await operator.send(FleetPart.TERMINATION, report_of(held.job.job_id, held.termination_token))
            job = await client.get_job(held.job.job_id, wait_seconds=60)
            assert job.state is JobState.COMPLETED

            wish = HousekeepingMessage(task_type=TaskType.POOL_AUDIT, timestamp=NOW)
            await operator.send(FleetPart.HOUSEKEEPING, format_housekeeping(wish))
            await until_run(fleet, wish)

            assert await fleet.records.mark_draining(InstanceRecord(instance_id="i-old"), NOW)
            with pytest.raises(FailedPrecondition, match="i-old is draining"):
                await client.dequeue_jobs(
                    DequeueRequest(queue="default", instance_id="i-old", wait_seconds=0)
                )
        assert [page async for page in fleet.parameters.list()] == [[]]
        with urllib.request.urlopen(f"{url}/metrics") as page:  # noqa: S310 - our own server
            assert re.search(r"^airunner_fleet_job_success_total.* 1\.0$", page.read().decode(), re.MULTILINE)
        server.send(signal.SIGTERM)
        assert server.ended() == 0


@pytest.mark.slow
async def test_a_processor_of_its_own_ends_the_jobs_of_servers_on_aws_and_finishes_what_it_holds(
    operator: Operator, aws: StrictProxy, aws_env: str
) -> None:
    """SSM answers once the process was told to go, as below."""
    more = {
        "AIRUNNER_STORE__TYPE": "aws",
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"jobs_{aws_env}",
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": f"events_{aws_env}",
        "AIRUNNER_FLEET__CLOUDWATCH_NAMESPACE": aws_env,
    }
    person = CommandLine(folder=operator.person.folder, variables={**operator.person.variables, **more})
    await asyncio.to_thread(person.text, "aws", "provision")
    listen = ("--metrics-listen", "127.0.0.1:0")
    with (
        serving(person, "--no-auth") as (_, url),
        person.start("fleet", "termination", *listen, AWS_ENDPOINT_URL=aws.url) as processor,
    ):
        # The proxy is served by this thread, so nothing here may block.
        address = await asyncio.to_thread(processor.wait_for, "airunner fleet metrics on")
        async with AsyncClient(url) as client:
            held = await begun(client)
            await operator.send(FleetPart.TERMINATION, report_of(held.job.job_id, held.termination_token))
            assert (await client.get_job(held.job.job_id, wait_seconds=60)).state is JobState.COMPLETED
            assert await asyncio.to_thread(health, address) == {"status": "ok"}
            await until(lambda: aws.counts.calls["DeleteMessageBatch"] > 0)

            aws.faults.next("DeleteParameters", FaultKind.DELAY)
            held = await begun(client)
            await operator.send(FleetPart.TERMINATION, report_of(held.job.job_id, held.termination_token))
            await until(lambda: aws.counts.calls["DeleteParameters"] == 2)
            processor.send(signal.SIGTERM)
            await until(lambda: "fleet.stopping" in processor.err)
            aws.faults.release()
            assert await asyncio.to_thread(processor.ended) == 0
            assert (await client.get_job(held.job.job_id)).state is JobState.COMPLETED
    await assert_closed(operator.fleet, held)
    # CloudWatch is told a last time at the end.
    assert await durations(aws.url, aws_env) == (3.0, 2)


def health(address: str) -> object:
    with urllib.request.urlopen(address.removesuffix("/metrics") + "/healthz") as page:  # noqa: S310 - our own
        return json.load(page)


async def durations(url: str, namespace: str) -> tuple[float, float]:
    """Return the sum and the number of durations that CloudWatch was told in the last hours."""
    hours = timedelta(hours=2)
    async with client_of("cloudwatch", url) as cloudwatch:
        answer = await cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName="JobDuration",
            Dimensions=[{"Name": "Status", "Value": "success"}],
            StartTime=datetime.now(UTC) - hours,
            EndTime=datetime.now(UTC) + hours,
            Period=3600,
            Statistics=["Sum", "SampleCount"],
        )
    points = answer["Datapoints"]
    return sum(point["Sum"] for point in points), sum(point["SampleCount"] for point in points)


async def assert_closed(fleet: FleetConnection, held: DequeuedJob) -> None:
    """Fail if anything of an attempt is left."""
    depth = await (await fleet.queue(FleetPart.TERMINATION)).depth()
    assert (depth.visible, depth.in_flight) == (0, 0)
    assert not await fleet.records.count_once(held.job.job_id, "1", NOW)


@pytest.mark.slow
async def test_a_schedule_and_a_housekeeping_of_their_own_run_each_task_once(
    operator: Operator, aws_env: str
) -> None:
    more = {
        "AIRUNNER_STORE__TYPE": "aws",
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"jobs_{aws_env}",
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": f"events_{aws_env}",
    }
    person = CommandLine(folder=operator.person.folder, variables={**operator.person.variables, **more})
    person.text("aws", "provision")
    # It sends messages, and has neither a store nor the keys of servers.
    keyless = {name: text for name, text in operator.person.variables.items() if "TOKEN_KEYS" not in name}
    sender = replace(operator.person, variables=keyless)
    records = operator.fleet.records
    with (
        sender.start("fleet", "schedule") as first,
        sender.start("fleet", "schedule") as second,
        person.start("fleet", "housekeeping") as housekeeping,
    ):
        async with asyncio.timeout(60):
            while len(runs := await records.list_runs(20)) < len(TaskType):
                pass
        for process in (first, second, housekeeping):
            process.send(signal.SIGTERM)
        assert [process.ended() for process in (first, second, housekeeping)] == [0, 0, 0]
    assert {run.task_type for run in runs} == set(TaskType)
    assert sum(process.err.count("fleet.scheduled") for process in (first, second)) == len(runs)
    assert {run.outcome for run in runs} == {RunOutcome.DONE}
    depth = await (await operator.fleet.queue(FleetPart.HOUSEKEEPING)).depth()
    assert (depth.visible, depth.in_flight) == (0, 0)


@pytest.mark.slow
async def test_a_server_that_is_stopped_finishes_the_report_that_it_works_on(
    operator: Operator, aws: StrictProxy
) -> None:
    """SSM answers once the server was told to go: nothing is given up, and nothing is left."""
    fleet = operator.fleet
    more = {"AIRUNNER_FLEET__RUN": "termination", "AWS_ENDPOINT_URL": aws.url}
    person = CommandLine(folder=operator.person.folder, variables={**operator.person.variables, **more})
    name = fleet.parameters.name_of(INSTANCE)
    await fleet.aws.ssm("PutParameter", Name=name, Value="{}", Type="SecureString", Overwrite=True)
    aws.faults.next("DeleteParameters", FaultKind.DELAY)
    # The proxy is served by this thread, so nothing here may block.
    with person.start("server", "--listen", "127.0.0.1:0", "--data-dir", "data", "--no-auth") as server:
        url = await asyncio.to_thread(server.wait_for, "airunner server listening on")
        async with AsyncClient(url) as client:
            held = await begun(client)
        await operator.send(FleetPart.TERMINATION, report_of(held.job.job_id, held.termination_token))
        await until(lambda: aws.counts.calls["DeleteParameters"] > 0)
        server.send(signal.SIGTERM)
        await until(lambda: "server.stopping" in server.err)
        aws.faults.release()
        assert await asyncio.to_thread(server.ended) == 0
    assert [page async for page in fleet.parameters.list()] == [[]]
    await assert_closed(fleet, held)


async def until_run(fleet: FleetConnection, wish: HousekeepingMessage) -> None:
    """Return once a wish has had its run."""
    while await fleet.records.find_run(wish.slot) is None:
        pass


@pytest.mark.slow
async def test_an_operator_describes_a_pool_runs_a_task_and_reads_the_report(operator: Operator) -> None:
    person = operator.person
    with serving(person, "--no-auth") as (_, url):
        person.variables["AIRUNNER_SERVER"] = url
        person.variables["AIRUNNER_DATA_DIR"] = "data"
        person.text("fleet", "pools", "set", "builds", "--instance-type", "m7i.large", "--running", "2")
        (done,) = person.objects("fleet", "run", "pool_audit")
        assert (done["task_type"], done["outcome"], done["dry_run"]) == ("pool_audit", "done", False)
        assert person.text("fleet", "report").startswith("builds\t0 of 2\t")
        # Of what the next one finds, the cost since the first is known: CloudWatch hears of it.
        person.variables["AIRUNNER_FLEET__CLOUDWATCH_NAMESPACE"] = operator.namespace
        person.text("fleet", "run", "pool_audit")
        assert await operator.watch().labels("PoolComputeCost") == {(("PoolName", "builds"),)}
        async with AsyncClient(url) as client:
            _, listed = await client.list_housekeeping_runs()
            assert listed.slot == done["slot"]

        await operator.fleet.records.take_lease(TaskType.OLD_JOBS, "i-am-busy", NOW, 2 * NOW)
        refused = person.run("fleet", "run", "old_jobs", "--dry-run")
        assert refused.returncode == 1
        assert b"i-am-busy is running this task" in refused.stderr
