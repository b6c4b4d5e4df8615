"""Credentials in `.env`, the account they have to be of, and whose variables jobs do not get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airunner.aws.calls import Aws
from airunner.aws.connect import build_aws
from airunner.config import ConfigError, Loaded, describe, environment_for_jobs, load_settings
from airunner.domain.clock import SystemClock

KEYS = "AWS_ACCESS_KEY_ID=AKIAFILE\nAWS_SECRET_ACCESS_KEY=file/secret+key=\n"
TOKEN = "AWS_SESSION_TOKEN=file-token\n"
DSN = "postgresql://shop:very-secret@db/shop"


def load(folder: Path, dotenv: str = "", *, yaml: str = "", **environ: str) -> Loaded:
    (folder / ".env").write_text(dotenv)
    (folder / "airunner.yaml").write_text(yaml)
    return load_settings(environ={"AWS_REGION": "eu-west-1", **environ}, cwd=folder, with_database=None)


def credentials(loaded: Loaded) -> tuple[str, str, str]:
    """What the clients of the SDK are made with."""
    aws: Aws = build_aws(loaded.settings, SystemClock())
    options = aws._options
    return options.access_key, options.secret_key, options.session_token


def test_credentials_of_the_file_reach_the_sdk_as_options_and_nobody_else(tmp_path: Path) -> None:
    loaded = load(tmp_path, KEYS + TOKEN)
    assert credentials(loaded) == ("AKIAFILE", "file/secret+key=", "file-token")
    assert credentials(load(tmp_path, KEYS)) == ("AKIAFILE", "file/secret+key=", "")
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ
    shown = repr(loaded.settings) + "".join(map(str, describe(loaded)))
    assert not any(secret in shown for secret in ("AKIAFILE", "file/secret", "file-token"))
    assert loaded.origins["store.aws.access_key_id"] == "environment AWS_ACCESS_KEY_ID (.env)"


@pytest.mark.parametrize(
    "environ",
    [
        {"AWS_ACCESS_KEY_ID": "AKIAOWN", "AWS_SECRET_ACCESS_KEY": "own"},
        {"AWS_ACCESS_KEY_ID": "AKIAOWN"},
        {"AWS_SECRET_ACCESS_KEY": "own"},
        {"AWS_SESSION_TOKEN": "own"},
        {"AWS_PROFILE": "shop"},
        {"AWS_PROFILE": ""},
    ],
)
def test_a_process_with_keys_or_a_profile_takes_none_of_the_file(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert credentials(load(tmp_path, KEYS + TOKEN, **environ)) == ("", "", "")


@pytest.mark.parametrize(
    "dotenv",
    ["AWS_ACCESS_KEY_ID=AKIAFILE\n", "AWS_SECRET_ACCESS_KEY=x\n", TOKEN, "AWS_SECRET_ACCESS_KEY=x\n" + TOKEN],
)
def test_a_half_is_nothing(tmp_path: Path, dotenv: str) -> None:
    assert credentials(load(tmp_path, dotenv)) == ("", "", "")


def test_settings_of_our_own_are_not_mixed_with_the_file(tmp_path: Path) -> None:
    yaml = "store: {aws: {access_key_id: AKIAYAML, secret_access_key: yaml}}"
    assert credentials(load(tmp_path, KEYS + TOKEN, yaml=yaml)) == ("AKIAYAML", "yaml", "")
    for half in ("access_key_id: AKIAYAML", "secret_access_key: yaml", "session_token: yaml"):
        with pytest.raises(ConfigError, match="access_key_id and secret_access_key"):
            load(tmp_path, KEYS, yaml=f"store: {{aws: {{{half}}}}}")


def test_the_account_has_twelve_digits(tmp_path: Path) -> None:
    assert load(tmp_path, AWS_ACCOUNT_ID="012345678901").settings.store.aws.account_id == "012345678901"
    with pytest.raises(ConfigError, match="12 digits"):
        load(tmp_path, AWS_ACCOUNT_ID="1234")


@pytest.mark.parametrize(
    ("environ", "is_taken"),
    [
        ({}, False),
        ({"AIRUNNER_OUTBOX__SINK": "jobs"}, False),
        ({"AIRUNNER_STORE__TYPE": "memory"}, False),
        ({"SQS_MAIN_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/1/g"}, True),
        ({"AIRUNNER_GENERATION__SESSION_DAYS": "7"}, True),
    ],
)
def test_a_server_takes_the_database_of_the_environment_where_it_names_generation(
    tmp_path: Path, environ: dict[str, str], is_taken: bool
) -> None:
    loaded = load(tmp_path, DATABASE_URL=DSN, **environ)
    assert (loaded.settings.postgres.dsn_text == DSN) is is_taken
    given = load(tmp_path, DATABASE_URL=DSN, AIRUNNER_POSTGRES__DSN=f"{DSN}2", **environ)
    assert given.settings.postgres.dsn_text == f"{DSN}2"


def test_jobs_do_not_get_the_variable_that_fills_a_secret_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", DSN)
    url = "https://sqs.eu-west-1.amazonaws.com/1/g"
    filled = load(tmp_path, DATABASE_URL=DSN, SQS_MAIN_QUEUE_URL=url).settings
    assert "DATABASE_URL" not in environment_for_jobs(filled)
    # Where it is nothing of ours, it is the job's to use.
    assert environment_for_jobs(load(tmp_path, DATABASE_URL=DSN).settings)["DATABASE_URL"] == DSN
    assert "DATABASE_URL" not in environment_for_jobs()
