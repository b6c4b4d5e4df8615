"""What is taken out of the arguments and the environment of a program that runs jobs, and handed over."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airunner.config import (
    concealed,
    environment_for_children,
    environment_for_jobs,
    environment_handing_over,
    environment_without_settings,
    exposed_secrets,
    load_settings,
    take_over_secrets,
)
from airunner.worker.secrets import concealment
from airunner.worker.secrets.concealment import conceal_secrets, without_key


@pytest.mark.parametrize(
    ("arguments", "kept", "key"),
    [
        (
            ["-m", "airunner.cli", "worker", "--api-key", "k", "--once"],
            ["-m", "airunner.cli", "worker", "--once"],
            "k",
        ),
        (["worker", "--once", "--api-key=k"], ["worker", "--once"], "k"),
        (["worker", "--api-key"], ["worker", "--api-key"], ""),
        (["worker", "--api-key", ""], ["worker", "--api-key", ""], ""),
        (["worker"], ["worker"], ""),
    ],
)
def test_the_key_is_taken_out_of_the_arguments(arguments: list[str], kept: list[str], key: str) -> None:
    assert without_key(arguments) == (kept, key)


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without anything of ours."""
    for name in [name for name in os.environ if name.startswith("AIRUNNER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(concealed, "_handed_over", {})
    return monkeypatch


def test_secrets_are_handed_over_beside_the_environment(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("AIRUNNER_API_KEY", "airk_a_b")
    variables.setenv("AIRUNNER_TOKEN_KEYS", "x" * 32)
    variables.setenv("AIRUNNER_SERVER", "http://127.0.0.1:1")
    assert exposed_secrets() == {"AIRUNNER_API_KEY": "airk_a_b", "AIRUNNER_TOKEN_KEYS": "x" * 32}

    environment = environment_handing_over(exposed_secrets())
    assert {name for name in environment if name.startswith("AIRUNNER_")} == {
        "AIRUNNER_SECRETS_FD",
        "AIRUNNER_SERVER",
    }
    for name in ("AIRUNNER_API_KEY", "AIRUNNER_TOKEN_KEYS"):
        variables.delenv(name)
    variables.setenv("AIRUNNER_SECRETS_FD", environment["AIRUNNER_SECRETS_FD"])
    take_over_secrets()
    take_over_secrets()

    assert not [name for name in os.environ if name.endswith(("_KEY", "_KEYS", "_FD")) and "AIRUNNER" in name]
    loaded = load_settings()
    assert loaded.settings.client.api_key_text == "airk_a_b"
    assert loaded.origins["client.api_key"] == "environment AIRUNNER_API_KEY"
    assert loaded.warnings == []


def test_a_key_among_the_arguments_counts_more_than_a_variable(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("AIRUNNER_CLIENT__API_KEY", "airk_a_b")
    variables.setattr(sys, "orig_argv", ["python", "-m", "airunner.cli", "worker", "--api-key", "airk_c_d"])
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def execute(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append((path, arguments, environment))
        raise OSError(13, "Permission denied")  # as where the interpreter is gone

    variables.setattr(os, "execve", execute)
    variables.setattr(concealment, "_keep_others_out", lambda: started.append(("kept out", [], {})))
    with pytest.raises(OSError, match="Permission denied"):
        conceal_secrets()
    (path, arguments, environment), after = started
    assert after[0] == "kept out"  # the least that can be had
    assert (path, arguments) == (sys.executable, [sys.executable, "-m", "airunner.cli", "worker"])
    variables.setenv("AIRUNNER_SECRETS_FD", environment["AIRUNNER_SECRETS_FD"])
    take_over_secrets()
    assert concealed._handed_over == {"AIRUNNER_API_KEY": "airk_c_d"}


def test_more_than_can_be_handed_over_is_an_error_and_leaves_nothing_open(
    variables: pytest.MonkeyPatch,
) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  counted, not walked
    with pytest.raises(OSError, match="unavailable"):
        environment_handing_over({"AIRUNNER_API_KEY": "x" * 10_000_000})
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  same


def test_jobs_inherit_neither_our_variables_nor_headers_for_otlp(variables: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS", "METRICS_HEADERS", "TRACES_HEADERS", "LOGS_HEADERS", "ENDPOINT"):
        variables.setenv(f"OTEL_EXPORTER_OTLP_{name}", "authorization=secret")
    variables.setenv("AIRUNNER_API_KEY", "airk_a_b")
    inherited = environment_for_jobs()
    assert {name for name in inherited if name.startswith("OTEL_EXPORTER_OTLP")} == {
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    }
    assert "AIRUNNER_API_KEY" not in inherited
    assert inherited.keys() <= environment_for_children().keys()


def test_children_that_nobody_configured_inherit_no_setting(variables: pytest.MonkeyPatch) -> None:
    settings = (
        *("AIRUNNER_LISTEN", "DATABASE_URL", "SQS_MAIN_QUEUE_URL"),
        *("START_GEN_WORKER", "INTEGRATION_USE_MOCK", "AWS_PROFILE"),
    )
    for name in settings:
        variables.setenv(name, "true")
    inherited = environment_without_settings()
    assert not inherited.keys() & set(settings)
    assert inherited["PATH"] == os.environ["PATH"]


def test_the_file_of_a_setting_is_known(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AIRUNNER_API_KEY=airk_a_b\n")
    (tmp_path / "airunner.yaml").write_text("store:\n  execution:\n    heartbeat_interval_seconds: 9\n")
    loaded = load_settings(cwd=tmp_path, environ={"AIRUNNER_SERVER": "http://127.0.0.1:1"})
    assert loaded.file_of("client.api_key") == Path(".env")
    assert loaded.file_of("execution.heartbeat_interval_seconds") == Path("airunner.yaml")
    assert loaded.file_of("client.server") is None
    assert loaded.file_of("listen") is None
