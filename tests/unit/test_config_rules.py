"""The rule of each setting, at its limit and beyond, and messages that help without giving secrets away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airunner.app import build_worker
from airunner.client import AsyncClient
from airunner.config import ConfigError, ListenAddress, Settings, load_settings
from airunner.config.layers import variable_of
from airunner.config.settings import setting_fields, value_at

SECRET = "sk-very-secret-1234"

RANGES = [
    ("store.max_queued_jobs_per_queue", 0, None),
    ("store.job_retention_days", 1, 3650),
    ("store.event_retention_days", 1, 3650),
    ("store.listing_shards", 1, 64),
    ("store.aws.row_format", 1, 2),
    ("execution.batching.flush_interval_seconds", 1, 3600),
    ("execution.batching.max_batch_size", 1, 50),
    ("execution.batching.max_batch_bytes", 1024, 358400),
    ("execution.batching.playback_interval_millis", 1, 60000),
    ("execution.heartbeat_interval_seconds", 1, 43200),
    ("defaults.visibility_timeout_seconds", 1, 43200),
    ("defaults.max_attempts", 1, 100),
    ("limits.max_streams_per_job", 1, None),
    ("limits.max_streams", 1, None),
    ("limits.max_streams_per_principal", 1, None),
    ("limits.max_waiting_calls", 1, None),
    ("limits.max_waiting_writes", 1, None),
    ("limits.max_queue_names", 1, None),
    ("limits.max_body_bytes", 134217728, None),
    ("limits.calls_per_second", 0, None),
    ("limits.call_burst", 1, None),
    ("limits.failed_keys_per_minute", 0, None),
    ("limits.max_message_bytes", 1024, 67108864),
    ("limits.maintenance_interval_seconds", None, 3600),
    ("limits.shutdown_grace_seconds", 0, 3600),
    ("client.timeout_seconds", None, 3600),
    ("worker.concurrency", 1, 1000),
    ("worker.visibility_timeout_seconds", 0, 43200),
    ("worker.grace_seconds", 0, 3600),
    ("worker.drain_seconds", 0, 43200),
    ("worker.refused_token_seconds", 1, 3600),
    ("worker.handler_processes", 0, 256),
    ("worker.git_depth", 0, 1_000_000),
    ("worker.spool_max_bytes", 0, None),
    ("generation.max_receive_count", 1, 1_000),
    ("generation.session_days", 0, 3650),
    ("generation.concurrency", 1, 10),
    ("generation.settings_refresh_millis", 100, 3_600_000),
    ("generation.idle_delay_millis", 0, 3_600_000),
    ("generation.visibility_seconds", 10, 43200),
    ("generation.handler_deadline_seconds", 1, 39_600),
    ("generation.retry_first_seconds", 1, 900),
    ("generation.retry_max_seconds", 1, 43200),
    ("generation.drain_seconds", 0, 43200),
    ("fleet.max_runtime_minutes", 1, 43200),
    ("fleet.runner_wait_seconds", 0, 86400),
]


def accepted(folder: Path, flags: Mapping[str, object]) -> Settings:
    return load_settings(environ={}, flags=flags, cwd=folder).settings


def refusal(
    folder: Path,
    yaml: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> ConfigError:
    (folder / "airunner.yaml").write_text(yaml)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ or {}, flags=flags, cwd=folder)
    return caught.value


@pytest.mark.parametrize(("path", "low", "high"), RANGES)
def test_numbers_are_accepted_at_the_limit_and_refused_beyond(
    tmp_path: Path, path: str, low: int | None, high: int | None
) -> None:
    for limit, beyond, rule in ((low, -1, "greater than or equal to"), (high, 1, "less than or equal to")):
        if limit is None:
            continue
        assert value_at(accepted(tmp_path, {path: limit}), path) == limit
        name = variable_of(path)
        message = str(refusal(tmp_path, environ={name: str(limit + beyond)}))
        assert message == f"{path}: must be {rule} {limit}, not '{limit + beyond}' (from environment {name})"


@pytest.mark.parametrize("path", ["limits.maintenance_interval_seconds", "client.timeout_seconds"])
def test_durations_above_zero_may_be_fractions(tmp_path: Path, path: str) -> None:
    assert value_at(accepted(tmp_path, {path: 0.25}), path) == 0.25
    assert f"{path}: must be greater than 0, not '0'" in str(refusal(tmp_path, flags={path: 0}))


def test_every_number_has_a_tested_range() -> None:
    settings = Settings()
    numbers = {path for path in setting_fields() if type(value_at(settings, path)) in {int, float}}
    assert {path for path, _, _ in RANGES} == numbers


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("worker: {concurrency: many}", "worker.concurrency: must be a whole number, not 'many'"),
        ("worker: {concurrency: 1.5}", "worker.concurrency: must be a whole number"),
        ("worker: {concurrency: true}", "worker.concurrency: must be a number, not 'true'"),
        ("worker: {grace_seconds: true}", "worker.grace_seconds: must be a number, not 'true'"),
        ("worker: {grace_seconds: .nan}", "worker.grace_seconds: must be"),
        ("worker: {grace_seconds: .inf}", "worker.grace_seconds: must be"),
        ("worker: {concurrency: null}", "worker.concurrency: must be a whole number"),
        ("no_auth: maybe", "no_auth: must be true or false, not 'maybe'"),
        ("log_level: loud", "log_level: must be 'debug', 'info', 'warning' or 'error', not 'loud'"),
        ("log_format: xml", "log_format: must be 'auto', 'json' or 'console', not 'xml'"),
        ("store: {type: postgres}", "store.type: must be 'memory', 'sqlite' or 'aws', not 'postgres'"),
        ("services: []", "services: must have at least 1 item"),
        ("services: jobs,logs", "services: must be 'jobs', 'events' or 'generations', not 'logs'"),
        ("services: [jobs, jobs]", "services: must not name the same entry twice"),
        ("services: {jobs: true}", "services: must be a list"),
        ("data_dir: ''", "data_dir: must not be empty"),
        ("data_dir: ~nobody-of-this-name/x", "data_dir: must start with a home folder that exists"),
        ("worker: {queues: []}", "worker.queues: must have at least 1 item"),
        ("worker: {queues: [a b]}", "worker.queues: must be a queue name: 1 to 80"),
        ("worker: {queues: [a, a]}", "worker.queues: must not name the same entry twice"),
        ("worker: {worker_id: 12}", "worker.worker_id: must be text, not '12'"),
        ("client: {server: []}", "client.server: must have at least 1 item"),
        ("client: {server: 'ftp://a'}", "client.server: must be an http:// or https:// URL, not 'ftp://a'"),
        ("client: {server: 'http://'}", "client.server: must be an http:// or https:// URL"),
        ("client: {server: 'http://a:99999'}", "client.server: must be an http:// or https:// URL"),
        ("client: {server: 'http://a b'}", "client.server: must be an http:// or https:// URL"),
        ("client: {server: 'http://a?q=1'}", "client.server: must be a URL without user name"),
        ("tls: {cert_file: a}", "tls: must have both cert_file and key_file, or none; key_file is missing"),
        ("tls: {key_file: a}", "tls: must have both cert_file and key_file, or none; cert_file is missing"),
    ],
)
def test_a_wrong_value_names_key_rule_and_origin(tmp_path: Path, yaml: str, message: str) -> None:
    text = str(refusal(tmp_path, yaml))
    assert text.startswith(message)
    assert text.endswith("(from file airunner.yaml)")


def test_all_wrong_values_are_reported_together(tmp_path: Path) -> None:
    message = str(refusal(tmp_path, "defaults: {max_attempts: 0}\n", environ={"AIRUNNER_LISTEN": "x"}))
    assert [line.partition(":")[0] for line in message.splitlines()] == ["listen", "defaults.max_attempts"]
    assert "(from environment AIRUNNER_LISTEN)" in message


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    assert len(str(refusal(tmp_path, environ={"AIRUNNER_STORE__TYPE": "x" * 5000}))) < 200


def test_tls_takes_both_files(tmp_path: Path) -> None:
    tls = accepted(tmp_path, {"tls.cert_file": "a.pem", "tls.key_file": "~/b.pem"}).tls
    assert (tls.cert_file, tls.key_file) == (Path("a.pem"), Path.home() / "b.pem")


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.8.9.1:0", "127.8.9.1", 0, True),
        ("localhost:1", "localhost", 1, True),
        ("[::1]:65535", "::1", 65535, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),  # noqa: S104 - nothing is bound
        ("[::]:80", "::", 80, False),
        ("jobs.example:80", "jobs.example", 80, False),
        ("localhost.example:80", "localhost.example", 80, False),
        ("192.168.1.2:80", "192.168.1.2", 80, False),
    ],
)
def test_listen_addresses(tmp_path: Path, text: str, host: str, port: int, loopback: bool) -> None:
    address = accepted(tmp_path, {"listen": text}).listen
    assert isinstance(address, ListenAddress)
    assert (address, address.host, address.port, address.is_loopback) == (text, host, port, loopback)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8080",
        ":8080",
        "localhost",
        "localhost:",
        "::1:8080",
        "[::1]",
        "[]:80",
        "[127.0.0.1]:80",
        "a:65536",
        "a:-1",
        "a:x",
        "a: 80",
        "a:80\n",
        "300.0.0.1:80",
        "127.1:80",
        "a b:80",
        "-a:80",
        "http://a:80",
        "a:٨٠",
    ],
)
def test_what_is_no_listen_address(tmp_path: Path, text: str) -> None:
    assert str(refusal(tmp_path, flags={"listen": text})).startswith("listen: must ")


@pytest.mark.parametrize(
    "yaml",
    [
        f"client: {{api_key: '{SECRET} x'}}",
        f"client: {{api_key: ['{SECRET}']}}",
        f"client: {{api_key: {{a: '{SECRET}'}}}}",
        f"client: {{api_keys: '{SECRET}'}}",
        f"client: '{SECRET}'",
        f"client: {{api_key: !{SECRET} x}}",
        f"client: {{api_key: *{SECRET}}}",
        f"client: {{api_key: '{SECRET}",
        f'client: {{api_key: "{SECRET}\\q"}}',
        f"token_keys: ['{SECRET}', '']",
        f"token_keys: ['{SECRET}', 5]",
        f"token_keys: ['{SECRET} x']",
        f"token_keys: {{'a': '{SECRET}'}}",
        f"client: {{server: 'http://user:{SECRET}@host'}}",
        f"client: {{server: ['http://user:{SECRET}@host:x']}}",
        f"client: {{api_key: {SECRET}}}\nno_auth: maybe",
    ],
)
def test_no_error_repeats_a_secret(tmp_path: Path, yaml: str) -> None:
    error = refusal(tmp_path, yaml)
    assert SECRET not in str(error)
    assert SECRET not in repr(error)
    assert (error.__cause__, error.__context__) == (None, None), "a traceback would print it"


@pytest.mark.parametrize("key", ["a b", "a\n", "", "schlüssel"])
def test_keys_are_printable_ascii(tmp_path: Path, key: str) -> None:
    message = str(refusal(tmp_path, flags={"client.api_key": key}))
    assert message == "client.api_key: must be printable ASCII text without blanks (from flag --api-key)"


def test_a_worker_without_commands_needs_handlers(tmp_path: Path) -> None:
    settings = load_settings(environ={"AIRUNNER_WORKER__COMMANDS": "false"}, cwd=tmp_path).settings
    with pytest.raises(ConfigError, match="needs worker"):
        build_worker(settings, AsyncClient("http://127.0.0.1:1"))
