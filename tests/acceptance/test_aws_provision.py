"""`airunner aws provision` as a person runs it, against an emulator over a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess

pytest_plugins = ("tests.support.aws",)


@pytest.fixture
def operator(tmp_path: Path, emulator: EmulatorProcess, aws_env: str) -> CommandLine:
    """Somebody whose variables lead to the emulator, with tables of an environment of their own."""
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"jobs_{aws_env}",
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": f"events_{aws_env}",
    }
    return CommandLine(folder=tmp_path, variables=variables)


def test_a_person_provisions_twice_and_gets_what_a_server_needs(operator: CommandLine, aws_env: str) -> None:
    queues = ("--queue", "default", "--queue", "builds")
    command = ("aws", "provision", "--env", aws_env, *queues, "--bucket", f"payloads-{aws_env}")
    told = operator.run(*command, "--dry-run", "--env-file", ".env")
    assert (told.returncode, told.stderr) == (
        0,
        b"airunner: nothing was changed: this is what would be done\n",
    )
    assert not (operator.folder / ".env").exists()
    first = [line.split("\t") for line in operator.text(*command, "--env-file", ".env").splitlines()]
    assert {change for change, *_ in first} == {"created"}
    assert [(kind, name) for _, kind, name, *_ in first][:4] == [
        ("dead-letter queue", f"airunner-{aws_env}-default-dlq"),
        ("queue", f"airunner-{aws_env}-default"),
        ("dead-letter queue", f"airunner-{aws_env}-builds-dlq"),
        ("queue", f"airunner-{aws_env}-builds"),
    ]
    again = operator.objects(*command)
    assert {entry["change"] for entry in again} == {"unchanged"}
    assert [entry["arn"] for entry in again] == [row[3] for row in first]
    assert [entry["url"] for entry in again[:4]] == [row[4] for row in first[:4]]


def test_the_environment_file_is_all_that_a_server_needs(operator: CommandLine, aws_env: str) -> None:
    operator.text("aws", "provision", "--env", aws_env, "--queue", "builds", "--env-file", ".env")
    file = operator.folder / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    (shown,) = CommandLine(folder=operator.folder).objects("config", "show")
    values = {entry["path"]: entry["value"] for entry in shown["settings"]}
    (queue,) = values["store.sqs.queues"]
    assert queue.startswith("builds=http://127.0.0.1:")
    assert queue.endswith(f"/airunner-{aws_env}-builds")
    assert values["store.type"] == "aws"
    assert values["store.aws.region"] == REGION
    assert values["store.dynamodb.jobs_table"] == f"jobs_{aws_env}"
    assert values["token_keys"] == ["********"]
    assert shown["unknown_variables"] == []


def test_an_environment_file_keeps_its_signing_key_and_other_lines(
    operator: CommandLine, aws_env: str
) -> None:
    file = operator.folder / "server.env"
    file.write_text("# ours\nAIRUNNER_TOKEN_KEYS=old-key\nAIRUNNER_STORE__TYPE=sqlite\nOTHER=1\n")
    operator.text("aws", "provision", "--env", aws_env, "--env-file", "server.env")
    first = file.read_text()
    assert first.startswith("# ours\nAIRUNNER_TOKEN_KEYS=old-key\nAIRUNNER_STORE__TYPE=aws\nOTHER=1\n")
    operator.text("aws", "provision", "--env", aws_env, "--env-file", "server.env")
    assert file.read_text() == first


def test_a_signing_key_of_the_settings_goes_into_the_file(operator: CommandLine, aws_env: str) -> None:
    done = operator.run(
        "aws", "provision", "--env", aws_env, "--env-file", "server.env", AIRUNNER_TOKEN_KEYS="new,old"
    )
    assert done.returncode == 0
    assert "AIRUNNER_TOKEN_KEYS=new,old\n" in (operator.folder / "server.env").read_text()
    assert b"new,old" not in done.stdout + done.stderr


def test_without_a_region_the_setting_is_named(operator: CommandLine) -> None:
    done = operator.run("aws", "provision", AWS_REGION="")
    assert done.returncode == 2
    assert b"store.aws.region: must be set" in done.stderr


def test_a_table_with_other_keys_is_said_in_a_line(operator: CommandLine, aws_env: str) -> None:
    operator.text("aws", "provision", "--env", aws_env)
    swapped = {"AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"events_{aws_env}"}
    done = operator.run("aws", "provision", "--env", aws_env, **swapped)
    assert done.returncode == 1
    assert f"airunner: table events_{aws_env} has the key job_id (S, HASH), sequence" in done.stderr.decode()


def test_tables_of_another_environment_are_refused_before_anything_is_made(
    operator: CommandLine, aws_env: str
) -> None:
    tables = ("--jobs-table", f"shared_{aws_env}", "--events-table", f"shared_events_{aws_env}")
    operator.text("aws", "provision", "--env", aws_env, *tables)
    done = operator.run("aws", "provision", "--env", "staging", *tables)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"airunner: table shared_{aws_env} belongs to environment {aws_env}, and this is environment "
        "staging: set store.aws.env, or name another table\n"
    )
    server = operator.run(
        *("server", "--listen", "127.0.0.1:0", "--store", "aws", "--no-auth"),
        AIRUNNER_STORE__AWS__ENV="staging",
        AIRUNNER_STORE__DYNAMODB__JOBS_TABLE=f"shared_{aws_env}",
        AIRUNNER_TOKEN_KEYS="a-key-that-is-long-enough-for-all-tests",
    )
    assert server.returncode == 1
    assert f"airunner: table shared_{aws_env} belongs to environment {aws_env}" in server.stderr.decode()
    told = operator.objects("aws", "provision", "--env", "staging", "--dry-run")
    assert {entry["change"] for entry in told} == {"created"}


def test_a_person_provisions_the_queues_of_generation(operator: CommandLine, aws_env: str) -> None:
    command = ("aws", "provision", "--generation", "--env", aws_env)
    made = operator.objects(*command, "--env-file", ".env")
    queue = f"airunner-{aws_env}-generation"
    assert [(entry["name"], entry["change"]) for entry in made] == [
        (f"{queue}-dlq", "created"),
        (queue, "created"),
    ]
    written = (operator.folder / ".env").read_text()
    assert f"SQS_MAIN_QUEUE_URL={made[1]['url']}\n" in written
    assert f"SQS_DLQ_QUEUE_URL={made[0]['url']}\n" in written
    again = operator.objects(*command, "--max-receive-count", "3")
    assert [(entry["change"], entry["details"]) for entry in again] == [
        ("unchanged", []),
        ("updated", ["RedrivePolicy"]),
    ]
    refused = operator.run(*command, "--bucket", "some")
    assert (refused.returncode, b"--generation" in refused.stderr) == (2, True)
