"""A run of housekeeping by hand: what it counted is sent, and nothing of that can fail the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from airunner.app import run_fleet_task
from airunner.aws.errors import Refused
from airunner.cli.exit_codes import ExitCode
from airunner.cli.main import execute
from airunner.config import Settings, load_settings
from airunner.domain.errors import Unavailable
from airunner.domain.fleet import HousekeepingRun, RunOutcome, TaskType
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock

RUN = HousekeepingRun(
    slot="pool_audit#now", task_type=TaskType.POOL_AUDIT, started_at=1, ended_at=2, outcome=RunOutcome.DONE
)


class Bench:
    """Stands for the parts of a run, and notes in which order they are used."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.opening: Exception | None = None
        self.failure: Exception | None = None

    async def __aenter__(self) -> Self:
        if self.opening:
            raise self.opening
        self.log.append("exporter opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append("metrics sent")

    async def run(self, *_: object, **__: object) -> HousekeepingRun:
        self.log.append("run")
        if self.failure:
            raise self.failure
        return RUN


class OpenFleet:
    """Stands for the connection of a fleet."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def check_table(self) -> None: ...


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()

    def always(value: object) -> Any:
        return lambda *_, **__: value

    parts = {
        "airunner.app.fleet.build_fleet_connection": OpenFleet(),
        "airunner.app.fleet.open_store_beside": MemoryStore(ManualClock()),
        "airunner.app.fleet.build_fleet_exporter": made,
        "airunner.fleet.start.make_housekeeper": made,
    }
    for name, value in parts.items():
        monkeypatch.setattr(name, always(value))
    # For the whole process, other tests included.
    monkeypatch.setattr("airunner.telemetry.set_up_logs", always(None))
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"AWS_REGION": "eu-west-1"}, cwd=tmp_path).settings


async def test_what_was_counted_is_sent_after_the_run(bench: Bench, settings: Settings) -> None:
    assert await run_fleet_task(settings, TaskType.POOL_AUDIT) == RUN
    assert bench.log == ["exporter opened", "run", "metrics sent"]


async def test_what_a_run_counted_that_fails_is_sent_too(bench: Bench, settings: Settings) -> None:
    bench.failure = Unavailable("away")
    with pytest.raises(Unavailable, match="away"):
        await run_fleet_task(settings, TaskType.POOL_AUDIT)
    assert bench.log == ["exporter opened", "run", "metrics sent"]


async def test_a_run_needs_no_exporter(bench: Bench, settings: Settings) -> None:
    bench.opening = OSError("no network")
    with capture_logs() as logs:
        assert await run_fleet_task(settings, TaskType.POOL_AUDIT) == RUN
    assert bench.log == ["run"]
    assert [line["error"] for line in logs] == ["OSError: no network"]


def test_the_command_names_the_call_that_aws_refused(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bench.failure = Refused("UnauthorizedOperation", "DescribeInstances")
    assert execute(["fleet", "run", "pool_audit"]) == ExitCode.AIRUNNER_FAILED
    assert "AWS refused DescribeInstances: UnauthorizedOperation" in capsys.readouterr().err


class Collected:
    """Stands for the collection of metrics."""

    def __init__(self, log: list[str], error: Exception | None = None) -> None:
        self._log = log
        self._error = error

    def __call__(self, service: str, *_: object) -> Self:
        self._log.append(service)
        if self._error:
            raise self._error
        return self

    def __enter__(self) -> None:
        self._log.append("collected")

    def __exit__(self, *_: object) -> None:
        self._log.append("sent by OTLP")


@pytest.mark.parametrize("error", [None, ValueError("no such protocol")])
def test_metrics_go_to_a_receiver_that_the_environment_names(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("airunner.cli.metrics.collected_metrics", Collected(bench.log, error))
    assert execute(["fleet", "run", "pool_audit"]) == 0
    run = ["exporter opened", "run", "metrics sent"]
    around = (
        ["airunner-fleet-run", *run] if error else ["airunner-fleet-run", "collected", *run, "sent by OTLP"]
    )
    assert bench.log == around
    assert ("no metrics are sent: no such protocol" in capsys.readouterr().err) == bool(error)


def test_without_a_receiver_nothing_is_collected(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setattr("airunner.cli.metrics.collected_metrics", Collected(bench.log))
    assert execute(["fleet", "run", "pool_audit"]) == 0
    assert bench.log == ["exporter opened", "run", "metrics sent"]
