"""The configuration of a runner: what it may hold, how long it is waited for, what is told of a bad one."""

from __future__ import annotations

import json

import pytest

from airunner.config import ConfigError, load_settings, parameter_layer, parameter_text
from airunner.domain.errors import FailedPrecondition, NotFound, Unavailable
from airunner.fleet.runner.configuration import AWAY_SECONDS, read_configuration
from airunner.testing.clock import ManualClock
from tests.support.fleet import FakeParameters, while_time_passes

WAIT_SECONDS = 60.0
SECRET = "sk-secret-0123456789"
NAME = "/runs-fleet/runners/i-1/config"
GOOD = {"client": {"server": "https://jobs.example", "api_key": SECRET}, "worker": {"queues": "builds"}}


def test_it_counts_more_than_all_else() -> None:
    text = parameter_text(("https://a.example", "https://b.example"), SECRET, ("builds",))
    loaded = load_settings(
        environ={"AIRUNNER_SERVER": "https://other.example", "AIRUNNER_WORKER__CONCURRENCY": "2"},
        flags={"worker.queues": "other"},
        above=parameter_layer(text, NAME),
    )
    client, worker = loaded.settings.client, loaded.settings.worker
    assert client.server == ("https://a.example", "https://b.example")
    assert (client.api_key_text, worker.queues, worker.concurrency) == (SECRET, ("builds",), 2)
    assert loaded.origins["client.server"] == f"parameter {NAME}"


def test_a_server_without_keys_needs_none() -> None:
    assert "client.api_key" not in parameter_layer(parameter_text(("http://a",), "", ("builds",)), NAME)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON at line 1, column 1"),
        (SECRET, "is not JSON at line 1"),
        (f'{{"client": "{SECRET}"', "is not JSON at line 1"),
        (f'"{SECRET}"', "is no JSON object"),
        (f'["{SECRET}"]', "is no JSON object"),
        ("NaN", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (json.dumps({**GOOD, "store": {"type": "memory"}}), "unknown key store"),
        (json.dumps({**GOOD, "worker": {"queues": "a", "handlers": "evil"}}), "unknown key worker.handlers"),
        (json.dumps({**GOOD, "worker.queues": "a"}), "unknown key worker.queues"),
        (json.dumps({**GOOD, "\x1b[2J": 1}), "unknown key '\\x1b[2J'"),
        (json.dumps({**GOOD, "x" * 5000: 1}), "unknown key " + "x" * 40 + "..."),
        (json.dumps({**GOOD, "client": SECRET}), "client must be a section"),
        ('{"client": {}, "client": {}}', "the key client is given twice"),
        (json.dumps({"worker": {"queues": "builds"}}), "client.server is missing"),
        (json.dumps({"client": GOOD["client"]}), "worker.queues is missing"),
    ],
)
def test_what_is_wrong_is_told_by_its_key_and_without_its_value(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parameter_layer(text, NAME)
    assert f"parameter {NAME}: {told}" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("client", "server", SECRET),
        ("client", "server", None),
        ("client", "server", {"url": SECRET}),
        ("client", "api_key", 12),
        ("client", "api_key", f"{SECRET}\n"),
        ("worker", "queues", []),
        ("worker", "queues", [SECRET + "/.."]),
    ],
)
def test_a_value_that_is_wrong_is_not_shown(section: str, key: str, value: object) -> None:
    tree = {name: {**part} for name, part in GOOD.items()}
    tree[section][key] = value  # type: ignore[assignment]  # what no assignment would write
    with pytest.raises(ConfigError) as raised:
        load_settings(environ={}, above=parameter_layer(json.dumps(tree), NAME))
    assert f"{section}.{key}: " in str(raised.value)
    assert f"parameter {NAME}" in str(raised.value)
    assert SECRET not in str(raised.value)


async def test_a_runner_waits_for_its_assignment() -> None:
    clock, parameters = ManualClock(), FakeParameters()

    def assign_late(_: str) -> None:
        if clock.monotonic() - began > 1000 * (WAIT_SECONDS - 10):
            parameters.values[NAME] = (json.dumps(GOOD), "arn")

    began = clock.monotonic()
    parameters.before = assign_late
    layer = await while_time_passes(
        clock, read_configuration(parameters, "i-1", clock, wait_seconds=WAIT_SECONDS)
    )
    assert layer["worker.queues"].value == "builds"


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(NotFound("there is no such parameter"), WAIT_SECONDS), (FailedPrecondition("no"), WAIT_SECONDS)],
)
async def test_one_that_never_comes_is_told_by_its_name(error: Exception, seconds: float) -> None:
    clock, parameters = ManualClock(), FakeParameters()
    parameters.errors["read"] = error
    began = clock.monotonic()
    with pytest.raises(ConfigError, match=f"parameter {NAME}: {error}"):
        await while_time_passes(
            clock, read_configuration(parameters, "i-1", clock, wait_seconds=WAIT_SECONDS)
        )
    assert seconds * 1000 <= clock.monotonic() - began < (seconds + 10) * 1000


async def test_a_parameter_store_may_be_away_for_five_minutes() -> None:
    clock, parameters = ManualClock(), FakeParameters()
    parameters.errors["read"] = Unavailable("away")
    began = clock.monotonic()
    with pytest.raises(Unavailable):
        await while_time_passes(
            clock, read_configuration(parameters, "i-1", clock, wait_seconds=WAIT_SECONDS)
        )
    assert clock.monotonic() - began >= AWAY_SECONDS * 1000
