"""The settings of the outbox: names of other programs, addresses, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airunner.app import build_server
from airunner.config import ConfigError, Settings, describe, load_settings
from airunner.outbox.start import OutboxRelay, queue_addresses

DSN = "postgresql://shop:very-secret@db/shop"
URL = "https://sqs.eu-west-1.amazonaws.com/1"


def test_the_address_of_the_application_s_database_counts_only_where_it_is_meant(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": DSN}
    assert load_settings(environ=environ, cwd=tmp_path).settings.postgres.dsn is None
    loaded = load_settings(environ=environ, cwd=tmp_path, with_database=True)
    assert loaded.settings.postgres.dsn_text == DSN
    assert loaded.origins["postgres.dsn"] == "environment DATABASE_URL"
    given = load_settings(
        environ={**environ, "AIRUNNER_POSTGRES__DSN": f"{DSN}2"}, cwd=tmp_path, with_database=True
    )
    assert given.settings.postgres.dsn_text == f"{DSN}2"


def test_the_address_is_never_shown(tmp_path: Path) -> None:
    loaded = load_settings(environ={"DATABASE_URL": DSN}, cwd=tmp_path, with_database=True)
    assert "very-secret" not in repr(loaded.settings) + "".join(map(str, describe(loaded)))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg2"])
def test_an_address_of_sqlalchemy_is_one(tmp_path: Path, scheme: str) -> None:
    flags = {"postgres.dsn": f"{scheme}://shop@db/shop+more://x"}
    text = load_settings(environ={}, flags=flags, cwd=tmp_path).settings.postgres.dsn_text
    assert text == f"{scheme.partition('+')[0]}://shop@db/shop+more://x"


def test_listening_goes_around_a_pooler(tmp_path: Path) -> None:
    flags = {"postgres.dsn": DSN}
    assert load_settings(environ={}, flags=flags, cwd=tmp_path).settings.postgres.listen_dsn_text == DSN
    flags["postgres.listen_dsn"] = f"{DSN}3"
    assert load_settings(environ={}, flags=flags, cwd=tmp_path).settings.postgres.listen_dsn_text == f"{DSN}3"


@pytest.mark.parametrize(
    "environ",
    [
        {"SQS_MAIN_QUEUE_URL": f"{URL}/g", "AIRUNNER_OUTBOX__QUEUES": f"mails={URL}/m"},
        {"AIRUNNER_GENERATION__QUEUE_URL": f"{URL}/g", "AIRUNNER_OUTBOX__QUEUES": f"mails={URL}/m"},
        {"AIRUNNER_OUTBOX__QUEUES": f"generation={URL}/g,mails={URL}/m"},
    ],
)
def test_queues_have_addresses_in_several_ways(tmp_path: Path, environ: Mapping[str, str]) -> None:
    settings = load_settings(environ=environ, cwd=tmp_path).settings
    assert queue_addresses(settings) == {"generation": f"{URL}/g", "mails": f"{URL}/m"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("outbox.sink", "kafka"),
        ("outbox.queues", "mails"),
        ("outbox.queues", "a b=https://x"),
        ("generation.queue_url", "sqs://x"),
        ("postgres.schema", ""),
        ("postgres.schema", "x" * 64),
        ("postgres.dsn", "postgresql://a b"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, path: str, value: str) -> None:
    with pytest.raises(ConfigError, match=path):
        load_settings(environ={}, flags={path: value}, cwd=tmp_path)


def test_a_relay_without_a_database_is_refused(tmp_path: Path) -> None:
    from airunner.domain.clock import SystemClock

    with pytest.raises(ConfigError, match="DATABASE_URL"):
        OutboxRelay(load_settings(environ={}, cwd=tmp_path).settings, SystemClock())


def test_a_server_does_not_start_a_relay_without_a_database(tmp_path: Path) -> None:
    environ = {"AIRUNNER_DATA_DIR": str(tmp_path), "AIRUNNER_OUTBOX__START_RELAY": "true"}

    def settings(**more: str) -> Settings:
        return load_settings(environ={**environ, **more}, cwd=tmp_path, with_database=None).settings

    with pytest.raises(ConfigError, match="DATABASE_URL"):
        build_server(settings())
    assert settings(DATABASE_URL=DSN).postgres.dsn_text == DSN
    build_server(settings(DATABASE_URL=DSN))
