"""What `airunner dev --aws` would start: nothing leads to real AWS but the person's own word."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from airunner.config import load_settings
from airunner.local.aws_plan import StackPlan, StackRequest, plan_for

EMULATOR = "http://127.0.0.1:5555"
REAL_URL = "https://sqs.eu-central-1.amazonaws.com/1/airunner-prod-builds"


@pytest.fixture(autouse=True)
def production_lies_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of a machine that has real credentials."""
    for name, value in {"AWS_PROFILE": "prod", "AWS_SESSION_TOKEN": "real", "EDITOR": "ed"}.items():
        monkeypatch.setenv(name, value)


def test_real_credentials_change_nothing(tmp_path: Path) -> None:
    requested = request(tmp_path)
    plan = plan_for(requested, EMULATOR)
    assert requested.wants_emulator
    variables = {name: text for name, text in plan.server_environment.items() if name.startswith("AWS_")}
    assert "prod" not in variables.values()
    assert "real" not in variables.values()
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == "/dev/null"
    assert plan.server_environment["AIRUNNER_STORE__AWS__ENDPOINT_URL"] == EMULATOR
    # Jobs see the environment of the worker, and with it what the person has.
    assert plan.worker_environment["AWS_PROFILE"] == "prod"
    assert "AIRUNNER_TOKEN_KEYS" not in plan.worker_environment


def test_addresses_of_real_queues_are_not_used_on_an_emulator(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, queues=f"builds={REAL_URL},other"), EMULATOR)
    assert plan.queues == {"builds": "", "other": ""}
    assert plan.worker_queues == ("builds", "other")
    assert REAL_URL not in str(plan.server_environment)


@pytest.mark.parametrize("real", [True, False])
def test_another_aws_gets_what_the_person_has(tmp_path: Path, real: bool) -> None:
    endpoint = {} if real else {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}
    requested = request(tmp_path, real=real, queues=f"builds={REAL_URL}", **endpoint)
    assert not requested.wants_emulator
    plan = plan_for(requested, "")
    assert plan.queues == {"builds": REAL_URL}
    assert plan.server_environment["AWS_PROFILE"] == "prod"
    assert ("AIRUNNER_STORE__AWS__ENDPOINT_URL" in plan.server_environment) is not real


@pytest.mark.parametrize(
    ("given", "configured", "made", "served"),
    [
        ("", "", ["priority", "default"], ("priority", "default")),
        ("builds", "", ["builds", "default"], ("builds",)),
        ("", "a,b", ["a", "b"], ("a", "b")),
        ("c,a", "a,b", ["c", "a", "b"], ("c", "a")),
    ],
)
def test_the_worker_finds_its_queues(
    tmp_path: Path, given: str, configured: str, made: list[str], served: tuple[str, ...]
) -> None:
    plan = plan_for(request(tmp_path, queues=configured, AIRUNNER_WORKER__QUEUES=given), EMULATOR)
    assert (list(plan.queues), plan.worker_queues) == (made, served)


def test_each_server_says_where_the_other_one_can_ring(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, AIRUNNER_CLUSTER__ADVERTISE="http://elsewhere:80"), EMULATOR)
    for address in plan.addresses:
        assert plan.environment_of(address)["AIRUNNER_CLUSTER__ADVERTISE"] == f"http://{address}"
    # A port that the system chooses is not known in time.
    assert "AIRUNNER_CLUSTER__ADVERTISE" not in plan.environment_of("127.0.0.1:0")


def test_token_keys_are_made_for_it_alone_unless_they_are_set(tmp_path: Path) -> None:
    first, second = (keys_of(plan_for(request(tmp_path), EMULATOR)) for _ in range(2))
    assert len(first) == 64
    assert first != second
    assert keys_of(plan_for(request(tmp_path, AIRUNNER_TOKEN_KEYS="a,b"), EMULATOR)) == "a,b"
    assert first not in repr(plan_for(request(tmp_path), EMULATOR))


def test_the_second_server_takes_the_next_free_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = plan_for(request(tmp_path, AIRUNNER_LISTEN=f"127.0.0.1:{port - 1}"), EMULATOR)
    assert plan.addresses[0] == f"127.0.0.1:{port - 1}"
    assert int(plan.addresses[1].rpartition(":")[2]) > port


def test_the_worker_gets_the_handlers(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, AIRUNNER_WORKER__HANDLERS="tools.py,shop.tools"), EMULATOR)
    command = plan.worker(["http://127.0.0.1:1"])
    named = [command[index + 1] for index, word in enumerate(command) if word == "--handlers"]
    assert named == ["tools.py", "shop.tools"]


def request(folder: Path, *, real: bool = False, queues: str = "", **variables: str) -> StackRequest:
    environ = {"AIRUNNER_STORE__SQS__QUEUES": queues, **variables}
    return StackRequest(loaded=load_settings(environ=environ, cwd=folder), real=real)


def keys_of(plan: StackPlan) -> str:
    return plan.server_environment["AIRUNNER_TOKEN_KEYS"]
