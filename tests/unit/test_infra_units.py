"""The units and environment files of infra/: valid, hardened, and in words that the settings know."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from airunner.app import build_fleet_process
from airunner.cli.application import build_app
from airunner.config import FleetPart, load_settings
from airunner.config.layers import known_variables
from airunner.config.parameter import PARAMETER_KEYS
from airunner.domain.clock import SystemClock
from airunner.fleet.aws.connection import fleet_layout
from airunner.fleet.runner.report import SEND_SECONDS
from airunner.generation.start import check_settings
from airunner.outbox.relay import RelayOptions
from airunner.outbox.start import OutboxRelay, postgres_options, queue_addresses
from airunner.queues.base import ConsumerOptions
from airunner.server.companions import LONGEST_DRAIN_SECONDS
from airunner.services.periodic import STOP_SECONDS
from tests.support.programs import program

INFRA = Path(__file__).parents[2] / "infra"
UNITS = sorted((INFRA / "systemd").glob("*.service"))
EXAMPLES = sorted((INFRA / "env").glob("*.env.example"))
VARIABLE = re.compile(r"^(?:# |Environment=)?([A-Z][A-Z0-9_]+)=(.*)$", re.MULTILINE)
STOP_SLACK_SECONDS = 10


def name_of(path: Path) -> str:
    return path.name


def test_there_is_one_of_each_for_each_program() -> None:
    assert [unit.name for unit in UNITS] == [
        "airunner-fleet-housekeeping.service",
        "airunner-fleet-schedule.service",
        "airunner-fleet-termination.service",
        "airunner-generation-worker.service",
        "airunner-outbox-relay.service",
        "airunner-runner.service",
        "airunner-server.service",
        "airunner-worker.service",
    ]
    assert [example.name for example in EXAMPLES] == [
        "fleet-schedule.env.example",
        "fleet.env.example",
        "generation.env.example",
        "outbox.env.example",
        "runner.env.example",
        "server.env.example",
        "worker.env.example",
    ]


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    # The program must exist where the unit says, and here it is elsewhere.
    copy.write_text(unit.read_text().replace("/opt/airunner/bin/airunner", sys.executable))
    checked = subprocess.run(
        [*program("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, about(unit, checked.stderr)) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NoNewPrivileges", "true"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "true"),
        ("PrivateTmp", "true"),
        ("RestrictSUIDSGID", "true"),
        ("OOMPolicy", "continue"),
        ("UMask", "0077"),
    ],
)
def test_units_are_hardened(unit: Path, key: str, value: str) -> None:
    assert service_of(unit)[key] == value


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_unit_starts_again_or_is_the_end_of_its_machine(unit: Path) -> None:
    """A runner has one job; then its machine is powered off, whether it could report the end or not."""
    is_runner = unit.stem == "airunner-runner"
    assert service_of(unit)["Restart"] == ("no" if is_runner else "always")
    actions = re.findall(r"^(\w+Action)=(.*)$", unit.read_text(), re.MULTILINE)
    assert dict(actions) == ({"SuccessAction": "poweroff", "FailureAction": "poweroff"} if is_runner else {})


def test_the_page_on_deployment_prints_no_units_but_names_these() -> None:
    page = (INFRA.parent / "docs" / "deployment.md").read_text()
    assert re.findall(r"^(?:\[(?:Unit|Service|Install)\]|ExecStart=)", page, re.MULTILINE) == []
    for unit in UNITS:
        assert f"(../infra/systemd/{unit.name})" in page


def test_jobs_run_as_another_user_than_the_server() -> None:
    users = [service_of(unit)["User"] for unit in UNITS]
    assert users == [
        *["airunner-fleet"] * 3,
        "airunner-generation",
        "airunner-outbox",
        "airunner-jobs",
        "airunner",
        "airunner-jobs",
    ]


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_units_start_commands_that_exist(unit: Path) -> None:
    program, command, *words = service_of(unit)["ExecStart"].split()
    assert Path(program).name == "airunner"
    assert command in list(build_app())
    assert any(word in unit.name for word in (command, *words[:1]))


def test_a_stop_may_take_longer_than_the_grace_of_what_it_stops(tmp_path: Path) -> None:
    server, relay, worker, generation, runner = (
        load_settings(environ=variables_of(name), cwd=tmp_path).settings
        for name in ("server", "outbox", "worker", "generation", "runner")
    )
    sending, consumer = RelayOptions(relay_id="any"), ConsumerOptions()
    # What is held, what is given back, and the last metrics.
    processor = consumer.drain_seconds + consumer.release_seconds + 5
    longest = {
        "airunner-server": LONGEST_DRAIN_SECONDS + server.limits.shutdown_grace_seconds,
        "airunner-worker": worker.worker.drain_seconds + worker.worker.grace_seconds,
        "airunner-runner": runner.worker.drain_seconds + runner.worker.grace_seconds + SEND_SECONDS,
        "airunner-generation-worker": generation.generation.drain_seconds + consumer.release_seconds,
        "airunner-fleet-termination": processor,
        "airunner-fleet-housekeeping": processor,
        "airunner-fleet-schedule": STOP_SECONDS,
        # A claim that is under way, what is being sent, and the word that it waits no more.
        "airunner-outbox-relay": sending.grace_seconds + 2 * postgres_options(relay).statement_seconds,
    }
    allowed = {unit.stem: int(service_of(unit)["TimeoutStopSec"]) for unit in UNITS}
    assert {name: allowed[name] > longest[name] + STOP_SLACK_SECONDS for name in allowed} == dict.fromkeys(
        longest, True
    )


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_stop_is_for_the_program_alone(unit: Path) -> None:
    """What it has started, it ends itself; systemd kills what is left."""
    assert service_of(unit)["KillMode"] == "mixed"


@pytest.mark.parametrize("file", [*UNITS, *EXAMPLES], ids=name_of)
def test_every_variable_is_one_that_the_settings_know(file: Path) -> None:
    named = [name for name, _ in VARIABLE.findall(file.read_text())]
    assert named
    assert [name for name in named if name not in known_variables()] == []


def test_the_example_of_the_server_is_a_server_on_aws(tmp_path: Path) -> None:
    loaded = load_settings(environ=variables_of("server"), cwd=tmp_path)
    assert loaded.unknown_variables == ()
    assert loaded.settings.store.type == "aws"
    assert list(loaded.settings.store.sqs.queues) == ["default", "priority"]
    assert loaded.settings.store.s3.bucket
    assert loaded.settings.token_keys


def test_the_example_of_the_relay_is_a_relay(tmp_path: Path) -> None:
    settings = load_settings(environ=variables_of("outbox"), cwd=tmp_path).settings
    assert set(queue_addresses(settings)) == {"generation", "mails"}
    assert OutboxRelay(settings, SystemClock()).healthy


def test_the_example_of_the_generation_worker_is_one(tmp_path: Path) -> None:
    settings = load_settings(environ=variables_of("generation"), cwd=tmp_path).settings
    check_settings(settings)
    assert settings.generation.handlers == ("shop.generators",)


def test_the_example_of_a_fleet_is_one(tmp_path: Path) -> None:
    loaded = load_settings(environ=variables_of("fleet"), cwd=tmp_path)
    assert loaded.unknown_variables == ()
    settings = loaded.settings
    layout = fleet_layout(settings)
    assert (layout.fleet_table, layout.pool_table) == ("airunner_fleet", "airunner_fleet_pools")
    urls = (settings.fleet.termination_queue_url, settings.fleet.housekeeping_queue_url)
    names = [(url or "").rpartition("/")[2] for url in urls]
    assert names == [layout.queue_name("termination"), layout.queue_name("housekeeping")]
    assert settings.fleet.prices == {"m5.large": 0.107, "c5.xlarge": 0.192}
    assert settings.token_keys


def test_the_example_of_a_schedule_is_one_of_the_same_fleet_without_the_keys_of_servers(
    tmp_path: Path,
) -> None:
    loaded = load_settings(environ=variables_of("fleet-schedule"), cwd=tmp_path)
    assert loaded.unknown_variables == ()
    ours, theirs = variables_of("fleet-schedule"), variables_of("fleet")
    assert {name: theirs[name] for name in ours} == ours
    assert not loaded.settings.token_keys
    assert build_fleet_process(loaded.settings, FleetPart.SCHEDULE).name == "schedule"


def test_the_example_of_a_runner_leaves_server_key_and_queue_to_its_parameter(tmp_path: Path) -> None:
    loaded = load_settings(environ=variables_of("runner"), cwd=tmp_path)
    assert loaded.unknown_variables == ()
    assert loaded.settings.fleet.termination_queue_url
    assert {loaded.origins[path] for path in PARAMETER_KEYS} == {"default"}


def test_the_example_of_the_worker_needs_nothing_of_aws(tmp_path: Path) -> None:
    settings = load_settings(environ=variables_of("worker"), cwd=tmp_path).settings
    assert len(settings.client.server) == 2
    assert settings.client.api_key is not None
    assert not [name for name in variables_of("worker") if "STORE" in name or "AWS" in name]


def variables_of(example: str) -> dict[str, str]:
    """What an example sets, the lines that are commented out included."""
    return dict(VARIABLE.findall((INFRA / "env" / f"{example}.env.example").read_text()))


def service_of(unit: Path) -> dict[str, str]:
    section = unit.read_text().partition("[Service]\n")[2].partition("\n[")[0]
    return dict(re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE))


def about(unit: Path, text: str) -> list[str]:
    """What is said of this unit; a machine may have others with faults."""
    return [line for line in text.splitlines() if unit.name in line]
