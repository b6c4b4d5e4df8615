"""What a server tells of a fleet, asks of it, and serves of its dead letters, on an emulated AWS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airunner.app import build_fleet_connection, build_fleet_process, build_server
from airunner.config import ConfigError, FleetPart, load_settings
from airunner.domain.answers import DeadLetterReason
from airunner.domain.errors import PermanentFailure
from airunner.domain.fleet import Pool, TaskType
from airunner.domain.requests import Redrive
from airunner.fleet.aws.connection import FleetConnection, fleet_layout
from airunner.fleet.dead_letters import FleetDeadLetters
from airunner.fleet.messages.housekeeping import parse_housekeeping
from airunner.fleet.messages.termination import EndStatus, TerminationMessage, format_termination
from airunner.fleet.office import FleetDesk
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.fleet_aws import provide_fleet

pytest_plugins = ("tests.support.aws",)

NOW = 1_763_000_000_000
FORGED = TerminationMessage(
    instance_id="i-1",
    job_id="67890",
    status=EndStatus.SUCCESS,
    exit_code=0,
    duration_seconds=1,
    started_at=NOW,
    completed_at=NOW,
    termination_token="forged",
)
REGION_ALONE = {
    "AWS_REGION": REGION,
    "AIRUNNER_STORE__TYPE": "aws",
    "AIRUNNER_TOKEN_KEYS": "long-enough-for-a-test",
}


async def test_an_office_and_its_dead_letters(
    emulator: EmulatorProcess, aws_env: str, tmp_path: Path
) -> None:
    """One test for both, since tables take their time."""
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": emulator.url,
        "AIRUNNER_STORE__AWS__ENV": aws_env,
        "AIRUNNER_STORE__AWS__ACCESS_KEY_ID": ACCESS_KEY,
        "AIRUNNER_STORE__AWS__SECRET_ACCESS_KEY": SECRET_KEY,
    }
    settings = load_settings(environ=variables, cwd=tmp_path).settings
    await provide_fleet(emulator.url, fleet_layout(settings))
    async with build_fleet_connection(settings, clients=["dynamodb", "sqs", "polls"]) as fleet:
        await the_office_sends_the_message_of_a_task(fleet)
        await what_was_put_aside_is_served_by_code_and_judged_anew(fleet)


async def the_office_sends_the_message_of_a_task(fleet: FleetConnection) -> None:
    desk = FleetDesk(fleet, ManualClock(NOW))
    await fleet.records.put_pool(Pool(name="builds", desired_running=2))
    report = await desk.report(24)
    assert ([pool.name for pool in report.pools], report.audits) == (["builds"], [])
    assert list(await desk.list_runs(10)) == []
    slot = await desk.request_run(TaskType.STALE_SSM, dry_run=True, limit=7)
    (sent,) = await (await fleet.queue(FleetPart.HOUSEKEEPING)).receive(1)
    assert parse_housekeeping(sent.body).slot == slot
    assert json.loads(sent.body)["params"] == {"dry_run": True, "limit": 7}


async def what_was_put_aside_is_served_by_code_and_judged_anew(fleet: FleetConnection) -> None:
    queue = await fleet.queue(FleetPart.TERMINATION)
    await queue.send([NewMessage(body=format_termination(FORGED)), NewMessage(body="{")])
    for message in [*await queue.receive(10), *await queue.receive(10)]:
        code = "not_json" if message.body == "{" else "token"
        await queue.dead_letter(message, PermanentFailure(code, "put aside"))
    letters = FleetDeadLetters(fleet, FleetPart.TERMINATION, ManualClock(NOW), short_poll_seconds=0)
    page = await letters.look("termination", 10)
    assert {(letter.reason, letter.code, letter.job_id) for letter in page.letters} == {
        (DeadLetterReason.MESSAGE, "token", "67890"),
        (DeadLetterReason.UNREADABLE, "not_json", ""),
    }
    done = await letters.redrive(Redrive(queue="termination", max_messages=10))
    assert [letter.code for letter in done.redriven] == ["token"]
    assert [letter.code for letter in done.left] == ["not_json"]
    (again,) = await queue.receive(10)
    # Nothing of the first judgement is left on it.
    assert (again.body, dict(again.attributes)) == (format_termination(FORGED), {"redrives": "1"})


@pytest.mark.parametrize(
    ("queues", "fleet_url"),
    [
        ("default,termination", ""),
        ("mine=https://sqs.eu-west-1.amazonaws.com/1/airunner-dev-housekeeping", ""),
        ("mine=https://sqs.eu-west-1.amazonaws.com/1/other", "https://sqs.eu-west-1.amazonaws.com/1/other"),
    ],
)
def test_a_job_queue_cannot_be_a_queue_of_the_fleet(tmp_path: Path, queues: str, fleet_url: str) -> None:
    variables = {
        **REGION_ALONE,
        "AIRUNNER_STORE__SQS__QUEUES": queues,
        "RUNS_FLEET_TERMINATION_QUEUE_URL": fleet_url,
        "AIRUNNER_FLEET__TABLE": "airunner_fleet",
    }
    settings = load_settings(environ=variables, cwd=tmp_path).settings
    for build in (build_server, lambda found: build_fleet_process(found, FleetPart.TERMINATION)):
        with pytest.raises(ConfigError, match="a queue of the fleet"):
            build(settings)
