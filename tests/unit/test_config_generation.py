"""The settings of generation: what a worker cannot work with is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunner.app import build_generation_worker, build_outbox_relay, build_server
from airunner.cli.options import ConnectionOptions
from airunner.config import ConfigError, Settings, load_settings

DSN = "postgresql://shop@db/shop"
URL = "https://sqs.eu-west-1.amazonaws.com/1/airunner-dev-generation"
HANDLER = "from airunner import handler\n\n@handler('paint')\ndef paint(): ...\n"
SYNC_HOOK = f"{HANDLER}\ndef compensate(connection, session, failure): ...\n"


def settings_of(folder: Path, **variables: str) -> Settings:
    return load_settings(environ=variables, cwd=folder, with_database=None).settings


def write(folder: Path, text: str = HANDLER) -> str:
    file = folder / "handlers.py"
    file.write_text(text)
    return str(file)


def test_names_of_other_programs_fill_the_settings(tmp_path: Path) -> None:
    generation = settings_of(
        tmp_path,
        SQS_MAIN_QUEUE_URL=URL,
        SQS_DLQ_QUEUE_URL=f"{URL}-dlq",
        SQS_IDLE_DELAY_MS="250",
        START_GEN_WORKER="true",
        GEN_WORKER_CONCURRENCY="7",
        GEN_WORKER_SETTINGS_REFRESH_MS="1000",
    ).generation
    assert (generation.queue_url, generation.dead_letter_url) == (URL, f"{URL}-dlq")
    assert (generation.idle_delay_millis, generation.settings_refresh_millis) == (250, 1000)
    assert (generation.start_worker, generation.concurrency) == (True, 7)


@pytest.mark.parametrize("missing", ["DATABASE_URL", "SQS_MAIN_QUEUE_URL", "AIRUNNER_GENERATION__HANDLERS"])
def test_a_server_does_not_start_a_worker_that_lacks_something(tmp_path: Path, missing: str) -> None:
    variables = {
        "AIRUNNER_DATA_DIR": str(tmp_path),
        "START_GEN_WORKER": "true",
        "DATABASE_URL": DSN,
        "SQS_MAIN_QUEUE_URL": URL,
        "AIRUNNER_GENERATION__HANDLERS": write(tmp_path),
    }
    build_generation_worker(settings_of(tmp_path, **variables))
    del variables[missing]
    with pytest.raises(ConfigError, match=r"postgres\.dsn|generation\.queue_url|generation\.handlers"):
        build_server(settings_of(tmp_path, **variables))


def test_a_hook_that_is_not_async_is_refused(tmp_path: Path) -> None:
    variables = {
        "DATABASE_URL": DSN,
        "SQS_MAIN_QUEUE_URL": URL,
        "AIRUNNER_GENERATION__HANDLERS": write(tmp_path, SYNC_HOOK),
    }
    for build in (build_generation_worker, build_outbox_relay):
        with pytest.raises(ConfigError, match="compensate must be an async function"):
            build(settings_of(tmp_path, **variables))


@pytest.mark.parametrize("queues", [f"jobs={URL}", "generation", "default,generation"])
def test_a_job_queue_cannot_be_the_message_queue(tmp_path: Path, queues: str) -> None:
    settings = settings_of(
        tmp_path, AIRUNNER_STORE__TYPE="aws", AIRUNNER_STORE__SQS__QUEUES=queues, SQS_MAIN_QUEUE_URL=URL
    )
    with pytest.raises(ConfigError, match=r"store\.sqs\.queues"):
        build_server(settings)


def test_variables_of_test_suites_are_read_by_diag_alone(tmp_path: Path) -> None:
    environ = {
        "INTEGRATION_TEST_USER_ID": "0190f5a4",
        "INTEGRATION_BASE_URL": "https://jobs.example",
        "INTEGRATION_TEST_JOB_TYPE": "paint",
        "INTEGRATION_TEST_OUTPUTS": "3",
        "INTEGRATION_USE_MOCK": "true",
    }
    diag = load_settings(environ=environ, cwd=tmp_path, with_diag=True).settings.diag
    assert (diag.user_id, diag.base_url, diag.job_type) == ("0190f5a4", "https://jobs.example", "paint")
    assert (diag.outputs, diag.use_mock) == (3, True)
    wrong = {**environ, "INTEGRATION_TEST_OUTPUTS": "many", "INTEGRATION_BASE_URL": "localhost"}
    assert load_settings(environ=wrong, cwd=tmp_path).settings.diag.user_id == ""
    with pytest.raises(ConfigError, match=r"diag\.outputs"):
        load_settings(environ=wrong, cwd=tmp_path, with_diag=True)


def test_a_key_is_not_sent_where_a_folder_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRUNNER_API_KEY", "air_mine")
    (tmp_path / ".env").write_text("INTEGRATION_BASE_URL=https://elsewhere.example\n")
    with pytest.raises(ConfigError, match="your key is not sent"):
        ConnectionOptions().load_with_origins(is_diag=True)
    assert ConnectionOptions().load().client.api_key_text == "air_mine"
