"""A real runner on an instance: its job, the report, the row, the parameter and the count, whatever ends it.

The server closes the books, with the termination processor beside it; EC2, SSM, SQS and DynamoDB are the
emulator's, the metadata endpoint is on loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_FLEET
from airunner.aws.provision import provision
from airunner.client import Client
from airunner.config import parameter_text
from airunner.domain.clock import SystemClock
from airunner.domain.job import Job, JobParams, JobState
from airunner.domain.requests import StreamRequest
from airunner.fleet.aws.instances import MANAGED_TAG
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import INSTANCE_TAG
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.records import InstanceRecord
from tests.acceptance import command_line
from tests.acceptance.command_line import CommandLine, Started, eventually, serving
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.aws import new_env
from tests.support.aws_stores import options_of
from tests.support.metadata import NOTICE, MetadataEndpoint

pytest_plugins = ("tests.support.aws",)
# The first of them also waits for an emulator, tables and a server.
pytestmark = pytest.mark.timeout(300)

T = TypeVar("T")

# One that the emulator need not know: to list those that it knows takes seconds.
IMAGE = {"ImageId": "ami-12345678", "InstanceType": "m1.small"}
KEY = "ak-of-the-runners-0123456789"
# What a job does that waits for a file, and goes on when it is told to end.
STUBBORN = "trap '' TERM; echo began; while [ ! -e \"$0\" ]; do sleep 0.05; done"


class Account:
    """The account, from this process."""

    def __init__(self, emulator: EmulatorProcess, stack: ExitStack) -> None:
        self._runner = stack.enter_context(asyncio.Runner())
        # A first call of a service waits for the emulator to import it.
        options = replace(options_of(emulator.url), clients=OF_A_FLEET, call_seconds=60)
        self._aws = Aws(options, policy=CALL_POLICY)
        self._runner.run(self._aws.__aenter__())
        stack.callback(lambda: self._runner.run(self._aws.__aexit__(None, None, None)))

    def call(self, work: Callable[[Aws], Coroutine[object, object, T]]) -> T:
        """Do something in the account."""
        return self._runner.run(work(self._aws))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """An account with the queues and tables of a fleet, and a server that processes its reports."""

    operator: CommandLine
    account: Account
    layout: FleetLayout
    prefix: str
    url: str

    def launch(self) -> str:
        """Return a new instance of the fleet."""
        tags = [{"ResourceType": "instance", "Tags": [{"Key": MANAGED_TAG, "Value": "true"}]}]

        async def run(aws: Aws) -> str:
            made = await aws.ec2("RunInstances", **IMAGE, MinCount=1, MaxCount=1, TagSpecifications=tags)
            return str(made["Instances"][0]["InstanceId"])

        return self.account.call(run)

    def configured(self, instance: str, queue: str) -> str:
        """Write the parameter of an instance without the time that a command takes to start."""
        self.put(instance, parameter_text((self.url,), KEY, (queue,)))
        return instance

    def put(self, instance: str, value: str) -> None:
        name = self.name_of(instance)
        self.account.call(lambda aws: aws.ssm("PutParameter", Name=name, Value=value, Type="SecureString"))

    def mark(self, instance: str) -> None:
        """Mark an instance as draining, as a sweep does with one that nobody uses."""
        record, now = InstanceRecord(instance_id=instance), SystemClock().now()
        assert self.account.call(lambda aws: DynamoDbRecords(aws, self.layout).mark_draining(record, now))

    def name_of(self, instance: str) -> str:
        return f"{self.prefix}/{instance}/config"

    def parameters(self) -> dict[str, str]:
        answer = self.account.call(
            lambda aws: aws.ssm("GetParametersByPath", Path=self.prefix, Recursive=True, WithDecryption=True)
        )
        return {entry["Name"]: entry["Value"] for entry in answer["Parameters"]}

    def metric(self, line: str) -> int:
        """Return a count of the server; 0 if it has none."""
        with urllib.request.urlopen(f"{self.url}/metrics") as page:  # noqa: S310  http, on loopback
            lines = page.read().decode().splitlines()
        return sum(int(float(text.rpartition(" ")[2])) for text in lines if text.startswith(line))

    def enqueue(self, queue: str, *command: str) -> str:
        with Client(self.url) as client:
            params = JobParams(command=command[0], args=command[1:])
            return client.enqueue(params, queue=queue).job_id

    def job(self, job_id: str) -> Job:
        with Client(self.url) as client:
            return client.get_job(job_id)

    def until_processed(self, instance: str) -> None:
        """Wait until a report of an instance is processed: its parameter is gone."""
        eventually(lambda: self.name_of(instance) not in self.parameters(), "the parameter is deleted")


@pytest.fixture(scope="module")
def fleet(emulator: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    env, folder = new_env(), tmp_path_factory.mktemp("fleet")
    prefix, layout = f"/{env}/runners", FleetLayout(env=env)
    variables = {
        "AIRUNNER_STORE__AWS__ENDPOINT_URL": emulator.url,
        "AIRUNNER_STORE__AWS__ENV": env,
        "AIRUNNER_FLEET__PARAMETER_PREFIX": prefix,
        "AIRUNNER_LOG_FORMAT": "json",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    of_server = {"AIRUNNER_FLEET__RUN": "termination", "AIRUNNER_FLEET__TABLE": layout.fleet_table}
    person = CommandLine(folder=folder, variables={**variables, **of_server})
    with ExitStack() as stack:
        account = Account(emulator, stack)
        account.call(lambda aws: provision(aws, fleet_resources(layout), SystemClock()))
        _, url = stack.enter_context(serving(person, "--no-auth"))
        operator = replace(
            person,
            variables={**variables, "AIRUNNER_SERVER": url, "AIRUNNER_FLEET__RUNNER_API_KEY": KEY},
        )
        yield Fleet(operator=operator, account=account, layout=layout, prefix=prefix, url=url)


@pytest.fixture
def machine(fleet: Fleet, tmp_path: Path) -> CommandLine:
    """A machine with the settings of a runner: what its parameter says is not among them."""
    of_others = ("AIRUNNER_SERVER", "AIRUNNER_FLEET__RUNNER_API_KEY", "AIRUNNER_FLEET__RUN")
    variables = {name: text for name, text in fleet.operator.variables.items() if name not in of_others}
    stop = {"AIRUNNER_WORKER__DRAIN_SECONDS": "0", "AIRUNNER_WORKER__GRACE_SECONDS": "0.2"}
    return CommandLine(folder=tmp_path, variables={**variables, **stop})


def test_a_job_its_report_its_row_its_parameter_and_its_count(fleet: Fleet, machine: CommandLine) -> None:
    instance = fleet.launch()
    fleet.operator.text("fleet", "assign", instance, "--queue", "builds")
    (value,) = fleet.parameters().values()
    assert json.loads(value) == {
        "client": {"server": [fleet.url], "api_key": KEY},
        "worker": {"queues": ["builds"]},
    }
    tags = fleet.account.call(
        lambda aws: aws.ssm(
            "ListTagsForResource", ResourceType="Parameter", ResourceId=fleet.name_of(instance)
        )
    )
    arn = f"arn:aws:ec2:{REGION}:123456789012:instance/{instance}"
    assert tags["TagList"] == [{"Key": INSTANCE_TAG, "Value": arn}]
    job_id = fleet.enqueue("builds", "sh", "-c", "env; exit 3")
    before = fleet.metric("airunner_fleet_job_failure")
    with MetadataEndpoint(instance) as endpoint:
        done = machine.run("fleet", "runner", AIRUNNER_FLEET__METADATA_URL=endpoint.url)
    assert done.returncode == 0, done.stderr.decode()
    fleet.until_processed(instance)
    job = fleet.job(job_id)
    assert (job.state, job.life.instance_id, job.life.result and job.life.result.exit_code) == (
        JobState.FAILED,
        instance,
        3,
    )
    eventually(lambda: fleet.metric("airunner_fleet_job_failure") == before + 1, "the attempt is counted")
    said = done.stderr.decode()
    assert f'"job_id":"{job_id}"' in said.replace(": ", ":")
    # Neither what the parameter holds, nor what proves the report, nor the runner's own credentials.
    with Client(fleet.url) as client:
        output = "".join(str(event) for event in client.stream_events(StreamRequest(job_id=job_id)))
    for text in (said, output):
        assert KEY not in text
        assert "termination_token" not in text
    assert SECRET_KEY not in output


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What a stubborn job waits for."""
    return tmp_path / "gate"


def begun(fleet: Fleet, runner: Started, queue: str, gate: Path) -> str:
    """Return a job that a runner has begun, and that only ends with its gate."""
    job_id = fleet.enqueue(queue, "sh", "-c", STUBBORN, str(gate))
    eventually(lambda: fleet.job(job_id).state is JobState.RUNNING, "the job runs")
    eventually(lambda: '"job.start"' in runner.err, "the runner has it")
    return job_id


@pytest.mark.parametrize("by", ["signal", pytest.param("notice", marks=pytest.mark.slow)])
def test_a_machine_that_is_taken_away_gives_its_job_back_and_says_so(
    fleet: Fleet, machine: CommandLine, gate: Path, by: str
) -> None:
    instance = fleet.configured(f"i-{by}", by)
    before = fleet.metric('airunner_fleet_job_failure_total{error="Interrupted"')
    with (
        MetadataEndpoint(instance) as endpoint,
        machine.start("fleet", "runner", AIRUNNER_FLEET__METADATA_URL=endpoint.url) as runner,
    ):
        job_id = begun(fleet, runner, by, gate)
        if by == "signal":
            runner.send(signal.SIGTERM)
        else:
            endpoint.notice = NOTICE
        assert runner.ended() == 0, runner.err
        assert ("runner.spot_notice" in runner.err) == (by == "notice")
    fleet.until_processed(instance)
    job = fleet.job(job_id)
    assert (job.state, job.attempt) == (JobState.SCHEDULED, 1)
    kind = 'airunner_fleet_job_failure_total{error="Interrupted"'
    eventually(lambda: fleet.metric(kind) == before + 1, "the attempt is counted")


@pytest.mark.slow
def test_a_runner_that_is_killed_reports_nothing_and_its_job_is_done_elsewhere(
    fleet: Fleet, machine: CommandLine, gate: Path
) -> None:
    first, second = (fleet.configured(f"i-killed-{number}", "killed") for number in range(2))
    quick = {"AIRUNNER_WORKER__VISIBILITY_TIMEOUT_SECONDS": "2"}
    with machine.start("fleet", "runner", AIRUNNER_INSTANCE_ID=first, **quick) as runner:
        job_id = begun(fleet, runner, "killed", gate)
        os.kill(runner.process.pid, signal.SIGKILL)
        runner.ended()
    gate.touch()
    done = machine.run("fleet", "runner", AIRUNNER_INSTANCE_ID=second, **quick)
    assert done.returncode == 0, done.stderr.decode()
    fleet.until_processed(second)
    job = fleet.job(job_id)
    assert (job.state, job.attempt) == (JobState.COMPLETED, 2)
    # Left to the sweep of parameters, as the machine is to that of orphans.
    assert fleet.name_of(first) in fleet.parameters()


@pytest.mark.slow
def test_a_runner_without_a_job_sends_nothing(fleet: Fleet, machine: CommandLine) -> None:
    instance = fleet.configured("i-idle", "idle")
    with machine.start("fleet", "runner", AIRUNNER_INSTANCE_ID=instance) as runner:
        runner.wait_for("airunner worker serves idle")
        runner.send(signal.SIGTERM)
        assert runner.ended() == 0
    assert "runner.no_job" in runner.err
    assert fleet.name_of(instance) in fleet.parameters()


@pytest.mark.slow
def test_a_runner_on_a_draining_instance_gets_no_job_until_the_mark_is_taken_back(
    fleet: Fleet, machine: CommandLine
) -> None:
    instance = fleet.configured("i-draining", "draining")
    job_id = fleet.enqueue("draining", "true")
    fleet.mark(instance)
    with machine.start("fleet", "runner", AIRUNNER_INSTANCE_ID=instance) as runner:
        eventually(lambda: "receive.failed" in runner.err, "a dequeue is refused")
        assert f"instance {instance} is draining" in runner.err
        runner.send(signal.SIGTERM)
        assert runner.ended() == 0, runner.err
    assert ("runner.no_job" in runner.err, "runner.reported" in runner.err) == (True, False)
    job = fleet.job(job_id)
    assert (job.state, job.attempt) == (JobState.SCHEDULED, 0)
    # A report would have deleted it.
    assert fleet.name_of(instance) in fleet.parameters()

    with machine.start("fleet", "runner", AIRUNNER_INSTANCE_ID=instance) as runner:
        eventually(lambda: "receive.failed" in runner.err, "a dequeue is refused")
        undrained = fleet.operator.run("fleet", "undrain", instance)
        assert (undrained.returncode, b"is no longer draining" in undrained.stderr) == (0, True)
        assert runner.ended() == 0, runner.err
    assert fleet.job(job_id).state is JobState.COMPLETED
    fleet.until_processed(instance)


SHORT = """
from airunner.fleet.runner import report
report.SEND_SECONDS = 1.0
from airunner.cli.main import main
main(["fleet", "runner"])
"""


@pytest.mark.slow
def test_a_report_that_nobody_takes_is_logged_and_the_runner_fails(
    fleet: Fleet, machine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes take a second here; how long they are is asserted on a clock of its own."""
    instance = fleet.configured("i-away", "away")
    job_id = fleet.enqueue("away", "true")
    monkeypatch.setattr(command_line, "AIRUNNER", (sys.executable, "-c", SHORT))
    nowhere = "http://127.0.0.1:9/123456789012/termination"
    done = machine.run(AIRUNNER_INSTANCE_ID=instance, AIRUNNER_FLEET__TERMINATION_QUEUE_URL=nowhere)
    said = done.stderr.decode()
    assert done.returncode == 125, said
    (line,) = [line for line in said.splitlines() if "runner.report_lost" in line]
    lost = json.loads(json.loads(line)["message"])
    assert (lost["job_id"], lost["instance_id"], lost["status"]) == (job_id, instance, "success")
    assert "termination_token" not in said
    # The worker itself had reported the end.
    assert fleet.job(job_id).state is JobState.COMPLETED


@pytest.mark.slow
def test_a_hostile_configuration_is_refused_by_its_key(fleet: Fleet, machine: CommandLine) -> None:
    fleet.put("i-hostile", json.dumps({"client": {"server": KEY}, "worker": {"queues": "builds"}}))
    done = machine.run("fleet", "runner", AIRUNNER_INSTANCE_ID="i-hostile")
    said, name = done.stderr.decode(), fleet.name_of("i-hostile")
    assert (done.returncode, name in said, "client.server" in said, KEY in said) == (2, True, True, False)


@pytest.mark.slow
def test_what_is_draining_or_unknown_is_not_assigned(fleet: Fleet) -> None:
    unknown = fleet.operator.run("fleet", "assign", "i-00000000000000000", "--queue", "builds")
    assert (unknown.returncode, b"does not know instance" in unknown.stderr) == (1, True)
    assert fleet.operator.run("fleet", "assign", "../x", "--queue", "builds").returncode == 2
    undrained = fleet.operator.run("fleet", "undrain", "i-00000000000000000")
    assert (undrained.returncode, b"is not draining" in undrained.stderr) == (0, True)
