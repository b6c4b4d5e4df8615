"""Verdicts are measured wherever they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from airunner import telemetry
from airunner.cli.metrics import relay_instruments, server_instruments, worker_instruments
from airunner.config import Settings, load_settings
from airunner.telemetry.instruments import Instrument


@pytest.mark.parametrize(
    ("instruments", "flag", "value", "measured"),
    [
        (server_instruments, "generation.start_worker", True, telemetry.GENERATION_METRICS),
        (server_instruments, "outbox.start_relay", True, telemetry.OUTBOX_METRICS),
        (worker_instruments, "outbox.sink", "jobs", telemetry.VERDICT_METRICS),
        (relay_instruments, "generation.handlers", "handlers.py", telemetry.VERDICT_METRICS),
    ],
)
def test_verdicts_are_measured_where_they_are_given(
    tmp_path: Path,
    instruments: Callable[[Settings], Sequence[Instrument]],
    flag: str,
    value: object,
    measured: Sequence[Instrument],
) -> None:
    def of(flags: dict[str, object]) -> set[Instrument]:
        return set(instruments(load_settings(environ={}, flags=flags, cwd=tmp_path).settings))

    assert set(measured) <= of({flag: value})
    assert telemetry.generation_verdicts not in of({})
