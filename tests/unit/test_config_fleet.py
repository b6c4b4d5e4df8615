"""The settings of a fleet: names of others fill them, and what cannot work is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunner.config import ConfigError, FleetPart, Settings, describe, load_settings

URL = "https://sqs.eu-west-1.amazonaws.com/1/airunner-dev"


def settings_of(folder: Path, **variables: str) -> Settings:
    return load_settings(environ=variables, cwd=folder).settings


def test_names_of_other_programs_fill_the_settings(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        RUNS_FLEET_TERMINATION_QUEUE_URL=f"{URL}-termination",
        RUNS_FLEET_HOUSEKEEPING_QUEUE_URL=f"{URL}-housekeeping",
        RUNS_FLEET_JOBS_TABLE="runs",
    )
    assert settings.fleet.termination_queue_url == f"{URL}-termination"
    assert settings.fleet.housekeeping_queue_url == f"{URL}-housekeeping"
    assert settings.store.dynamodb.jobs_table == "runs"


def test_our_own_names_count_before_those_of_others(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        RUNS_FLEET_JOBS_TABLE="theirs",
        AIRUNNER_STORE__DYNAMODB__JOBS_TABLE="ours",
    )
    assert settings.store.dynamodb.jobs_table == "ours"


def test_lists_and_prices_are_written_with_commas(tmp_path: Path) -> None:
    fleet = settings_of(
        tmp_path,
        AIRUNNER_FLEET__RUN="termination, schedule",
        AIRUNNER_FLEET__PRICES="m7i.large=0.1008,free.tier=0",
    ).fleet
    assert fleet.run == (FleetPart.TERMINATION, FleetPart.SCHEDULE)
    assert fleet.prices == {"m7i.large": 0.1008, "free.tier": 0.0}


def test_prices_are_shown_and_the_key_is_not(tmp_path: Path) -> None:
    variables = {
        "AIRUNNER_FLEET__PRICES": "m7i.large=0.1008,free.tier=0",
        "AIRUNNER_FLEET__RUNNER_API_KEY": "ak_very_secret",
    }
    shown = {line.path: line.value_text for line in describe(load_settings(environ=variables, cwd=tmp_path))}
    assert shown["fleet.prices"] == "m7i.large=0.1008,free.tier=0.0"
    assert "very_secret" not in shown["fleet.runner_api_key"]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RUN", "termination,termination"),
        ("RUN", "sweeping"),
        ("PRICES", "m7i.large"),
        ("PRICES", "m7i.large=-1"),
        ("PRICES", "m7i.large=nan"),
        ("PRICES", "m7i.large=1,m7i.large=2"),
        ("PARAMETER_PREFIX", "runners"),
        ("PARAMETER_PREFIX", "/runners/"),
        ("PARAMETER_PREFIX", "/"),
        ("MAX_RUNTIME_MINUTES", "0"),
        ("TERMINATION_QUEUE_URL", "termination"),
        ("METADATA_URL", "file:///etc"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"fleet.{variable.lower()}"):
        settings_of(tmp_path, **{f"AIRUNNER_FLEET__{variable}": text})
