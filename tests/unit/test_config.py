"""The Settings tree: precedence, origins, every rule, and messages that help without giving secrets away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from airunner.config import (
    ConfigError,
    Loaded,
    ServiceName,
    Settings,
    StoreSettings,
    StoreType,
    load_settings,
)
from airunner.config.layers import SHORT_VARIABLES
from airunner.config.settings import setting_fields, value_at

Load = Callable[..., Loaded]

DEFAULTS: Mapping[str, object] = {
    "listen": "127.0.0.1:8080",
    "services": ("jobs", "events"),
    "no_auth": False,
    "data_dir": Path(".airunner"),
    "log_level": "info",
    "log_format": "auto",
    "tls.cert_file": None,
    "tls.key_file": None,
    "server.behind_proxy": False,
    "server.insecure_plaintext": False,
    "cluster.advertise": None,
    "store.type": "sqlite",
    "store.max_queued_jobs_per_queue": 0,
    "store.job_retention_days": 7,
    "store.event_retention_days": 30,
    "store.secrets_after_end": "keep",
    "store.purge_by": "server",
    "store.listing_shards": 8,
    "store.aws.account_id": "",
    "store.aws.access_key_id": None,
    "store.aws.secret_access_key": None,
    "store.aws.session_token": None,
    "store.aws.region": "",
    "store.aws.endpoint_url": None,
    "store.aws.env": "dev",
    "store.aws.row_format": 1,
    "store.sqs.queues": {"default": ""},
    "store.dynamodb.jobs_table": "",
    "store.dynamodb.events_table": "",
    "store.dynamodb.streams": False,
    "store.s3.bucket": "",
    "execution.batching.flush_interval_seconds": 2,
    "execution.batching.max_batch_size": 50,
    "execution.batching.max_batch_bytes": 262144,
    "execution.batching.playback_interval_millis": 50,
    "execution.batching.adaptive": True,
    "execution.heartbeat_interval_seconds": 30,
    "defaults.visibility_timeout_seconds": 300,
    "defaults.max_attempts": 3,
    "limits.max_streams_per_job": 10,
    "limits.max_streams": 5000,
    "limits.max_streams_per_principal": 2000,
    "limits.max_waiting_calls": 10000,
    "limits.max_waiting_writes": 10000,
    "limits.max_queue_names": 10000,
    "limits.max_body_bytes": 268435456,
    "limits.calls_per_second": 5000,
    "limits.call_burst": 20000,
    "limits.failed_keys_per_minute": 20,
    "limits.max_message_bytes": 4194304,
    "limits.maintenance_interval_seconds": 30,
    "limits.shutdown_grace_seconds": 5,
    "token_keys": (),
    "telemetry.cloudwatch_namespace": "",
    "client.server": ("http://127.0.0.1:8080",),
    "client.events_server": (),
    "client.api_key": None,
    "client.ca_file": None,
    "client.timeout_seconds": 30,
    "worker.queues": ("default",),
    "worker.concurrency": 1,
    "worker.worker_id": "",
    "worker.instance_id": "",
    "worker.visibility_timeout_seconds": 0,
    "worker.grace_seconds": 10,
    "worker.drain_seconds": 30,
    "worker.refused_token_seconds": 60,
    "worker.handlers": (),
    "worker.handler_processes": 0,
    "worker.commands": True,
    "worker.work_dir": None,
    "worker.redact_names": (),
    "worker.git_allow_file": False,
    "worker.git_depth": 1,
    "worker.spool_dir": None,
    "worker.spool_max_bytes": 1_073_741_824,
    "worker.metrics_listen": None,
    "postgres.dsn": None,
    "postgres.listen_dsn": None,
    "postgres.schema": "airunner",
    "outbox.sink": "sqs",
    "outbox.queues": {},
    "outbox.start_relay": False,
    "outbox.metrics_listen": None,
    "generation.queue_url": None,
    "generation.dead_letter_url": None,
    "generation.max_receive_count": 5,
    "generation.session_days": 0,
    "generation.handlers": (),
    "generation.start_worker": False,
    "generation.concurrency": 5,
    "generation.settings_refresh_millis": 30_000,
    "generation.idle_delay_millis": 0,
    "generation.visibility_seconds": 120,
    "generation.handler_deadline_seconds": 900,
    "generation.retry_first_seconds": 30,
    "generation.retry_max_seconds": 900,
    "generation.drain_seconds": 30,
    "generation.metrics_listen": None,
    "fleet.table": "",
    "fleet.pools_table": "",
    "fleet.termination_queue_url": None,
    "fleet.housekeeping_queue_url": None,
    "fleet.parameter_prefix": "/runs-fleet/runners",
    "fleet.run": (),
    "fleet.max_runtime_minutes": 360,
    "fleet.require_token": True,
    "fleet.requeue_interrupted": True,
    "fleet.prices": {},
    "fleet.runner_api_key": None,
    "fleet.metadata_url": "http://169.254.169.254",
    "fleet.runner_wait_seconds": 300,
    "fleet.cloudwatch_namespace": "RunsFleet",
    "fleet.metrics_listen": None,
    "diag.user_id": "",
    "diag.base_url": None,
    "diag.job_type": "airunner.ping",
    "diag.outputs": None,
    "diag.use_mock": None,
}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads in an empty folder with an empty environment; `yaml` and `dotenv` become files there."""

    def loader(
        yaml: str | None = None,
        *,
        dotenv: str | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        config_file: Path | None = None,
    ) -> Loaded:
        if yaml is not None:
            (tmp_path / "airunner.yaml").write_text(yaml)
        if dotenv is not None:
            (tmp_path / ".env").write_text(dotenv)
        return load_settings(config_file=config_file, flags=flags, environ=environ or {}, cwd=tmp_path)

    return loader


def failure(load: Load, *args: object, **kwargs: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


# Defaults and shape


def test_defaults_are_the_documented_ones_and_say_so(load: Load) -> None:
    loaded = load()
    assert {path: value_at(loaded.settings, path) for path in setting_fields()} == DEFAULTS
    assert set(loaded.origins.values()) == {"default"}
    assert list(loaded.origins) == list(DEFAULTS)
    assert loaded.unknown_variables == ()


def test_settings_are_frozen_and_closed() -> None:
    settings = Settings()
    with pytest.raises(FrozenInstanceError, match="frozen"):
        settings.no_auth = True  # type: ignore[misc]  # that is the point
    with pytest.raises(FrozenInstanceError, match="frozen"):
        settings.store.type = StoreType.MEMORY  # type: ignore[misc]  # the same
    with pytest.raises(TypeError, match="StoreSettings has no typ"):
        StoreSettings(typ="memory")  # type: ignore[call-arg]  # the same
    changed = settings.but(no_auth=True)
    assert (changed.no_auth, settings.no_auth, changed.but(no_auth=False) == settings) == (True, False, True)


# Precedence and origins


def test_each_place_wins_over_the_ones_below_it(load: Load) -> None:
    file = "worker: {concurrency: 2}\n"
    dotenv = "AIRUNNER_WORKER__CONCURRENCY=3\n"
    environ = {"AIRUNNER_WORKER__CONCURRENCY": "4"}
    flags = {"worker.concurrency": 5}
    steps = [
        (load(), 1, "default"),
        (load(file), 2, "file airunner.yaml"),
        (load(file, dotenv=dotenv), 3, "environment AIRUNNER_WORKER__CONCURRENCY (.env)"),
        (load(file, dotenv=dotenv, environ=environ), 4, "environment AIRUNNER_WORKER__CONCURRENCY"),
        (load(file, dotenv=dotenv, environ=environ, flags=flags), 5, "flag --concurrency"),
    ]
    for loaded, value, origin in steps:
        assert (loaded.settings.worker.concurrency, loaded.origins["worker.concurrency"]) == (value, origin)


def test_places_mix_by_single_settings(load: Load) -> None:
    loaded = load(
        "store: {type: memory, job_retention_days: 3}\n",
        environ={"AIRUNNER_STORE__JOB_RETENTION_DAYS": "4"},
        flags={"store.type": "sqlite"},
    )
    assert loaded.settings.store.type is StoreType.SQLITE
    assert loaded.settings.store.job_retention_days == 4
    assert loaded.origins["store.type"] == "flag --store"
    assert loaded.origins["store.job_retention_days"] == "environment AIRUNNER_STORE__JOB_RETENTION_DAYS"
    assert loaded.origins["store.event_retention_days"] == "default"


def test_a_flag_that_is_none_was_not_given(load: Load) -> None:
    loaded = load("listen: 127.0.0.1:9000\n", flags={"listen": None})
    assert loaded.settings.listen == "127.0.0.1:9000"
    assert loaded.origins["listen"] == "file airunner.yaml"


@pytest.mark.parametrize(
    ("path", "value", "flag"),
    [
        ("listen", "127.0.0.1:1", "--listen"),
        ("no_auth", True, "--no-auth"),
        ("data_dir", Path("d"), "--data-dir"),
        ("client.server", ["http://a"], "--server"),
        ("client.api_key", "k", "--api-key"),
        ("worker.queues", ["a", "b"], "--queue"),
    ],
)
def test_flags_are_named_as_the_command_line_spells_them(
    load: Load, path: str, value: object, flag: str
) -> None:
    assert load(flags={path: value}).origins[path] == f"flag {flag}"


def test_an_unknown_flag_path_is_an_error(load: Load) -> None:
    assert failure(load, flags={"stor.type": "x"}) == "unknown setting stor.type; did you mean store.type?"


# The file


def test_a_named_file_must_exist(load: Load) -> None:
    message = failure(load, config_file=Path("missing.yaml"))
    assert message == "cannot read the configuration file missing.yaml: No such file or directory"


def test_a_named_file_replaces_the_default_one(load: Load, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("worker: {concurrency: 7}\n")
    loaded = load("listen: 127.0.0.1:9000\n", config_file=Path("other.yaml"))
    assert loaded.settings.worker.concurrency == 7
    assert loaded.settings.listen == "127.0.0.1:8080"
    assert loaded.origins["worker.concurrency"] == "file other.yaml"


@pytest.mark.parametrize("yaml", ["", "# nothing\n", "store:\n", "{}\n"])
def test_an_empty_file_or_section_is_fine(load: Load, yaml: str) -> None:
    assert load(yaml).settings == Settings()


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("stroe: {type: memory}\n", "unknown key stroe; did you mean store?"),
        ("store: {typ: memory}\n", "unknown key store.typ; did you mean store.type?"),
        (
            "execution: {batching: {max_batchsize: 5}}\n",
            "unknown key execution.batching.max_batchsize; did you mean execution.batching.max_batch_size?",
        ),
        (
            "max_batch_size: 5\n",
            "unknown key max_batch_size; did you mean execution.batching.max_batch_size?",
        ),
        ("tls: {zzz: 5}\n", "unknown key tls.zzz; valid keys there: cert_file, key_file"),
        ("store.type: memory\n", "unknown key store.type: keys are nested, not dotted"),
        ("8080: x\n", "unknown key 8080; valid keys there: "),
        ("store: memory\n", "store must be a section with keys of its own, not a single value"),
        ("- a\n", "must be a mapping of keys to values"),
        ("listen: a:1\nlisten: b:2\n", "the key listen is given twice, again at line 2, column 1"),
        ("store: {type: memory\n", "is not valid YAML at line 2, column 1"),
    ],
)
def test_a_mistake_in_the_file_names_key_and_file(load: Load, yaml: str, message: str) -> None:
    assert failure(load, yaml).startswith(f"airunner.yaml: {message}")


def test_all_unknown_keys_are_reported_together(load: Load) -> None:
    message = failure(load, "stroe: {}\nclient: {sever: x}\nworkr: {}\n")
    assert [line.partition(";")[0] for line in message.splitlines()] == [
        "airunner.yaml: unknown key stroe",
        "airunner.yaml: unknown key client.sever",
        "airunner.yaml: unknown key workr",
    ]


def test_a_file_that_is_not_text_is_an_error(load: Load, tmp_path: Path) -> None:
    (tmp_path / "airunner.yaml").write_bytes(b"listen: \xff\xfe\n")
    assert failure(load) == "cannot read the configuration file airunner.yaml: it is not UTF-8 text"


# store.execution


def test_execution_may_stand_in_store(load: Load) -> None:
    loaded = load("store: {execution: {batching: {max_batch_size: 9}, heartbeat_interval_seconds: 8}}\n")
    assert loaded.settings.execution.batching.max_batch_size == 9
    assert loaded.settings.execution.heartbeat_interval_seconds == 8
    origin = loaded.origins["execution.batching.max_batch_size"]
    assert origin == "file airunner.yaml, key store.execution.batching.max_batch_size"


def test_execution_in_both_places_is_an_error(load: Load) -> None:
    yaml = "execution: {heartbeat_interval_seconds: 8}\nstore: {execution: {batching: {max_batch_size: 9}}}\n"
    message = failure(load, yaml)
    assert "execution.heartbeat_interval_seconds (file airunner.yaml)" in message
    assert "store.execution.batching.max_batch_size (file airunner.yaml" in message


def test_execution_in_store_yields_to_a_higher_place(load: Load) -> None:
    loaded = load(
        "store: {execution: {heartbeat_interval_seconds: 8}}\n",
        environ={"AIRUNNER_EXECUTION__HEARTBEAT_INTERVAL_SECONDS": "9"},
    )
    assert loaded.settings.execution.heartbeat_interval_seconds == 9


def test_execution_in_store_has_variables_too(load: Load) -> None:
    loaded = load(environ={"AIRUNNER_STORE__EXECUTION__HEARTBEAT_INTERVAL_SECONDS": "9"})
    assert loaded.settings.execution.heartbeat_interval_seconds == 9
    assert loaded.unknown_variables == ()


# The environment


@pytest.mark.parametrize(("name", "path"), SHORT_VARIABLES.items())
def test_short_variables(load: Load, name: str, path: str) -> None:
    value = "http://a.example" if "server" in path else "x"
    loaded = load(environ={name: value})
    assert loaded.origins[path] == f"environment {name}"
    assert value_at(loaded.settings, path) != DEFAULTS[path]


def test_lists_from_variables_are_split_at_commas(load: Load) -> None:
    environ = {
        "AIRUNNER_SERVER": "http://a:1, https://b/,",
        "AIRUNNER_EVENTS_SERVER": "http://c",
        "AIRUNNER_TOKEN_KEYS": "new,old",
        "AIRUNNER_WORKER__QUEUES": "urgent,default",
        "AIRUNNER_SERVICES": "events",
    }
    settings = load(environ=environ).settings
    assert settings.client.server == ("http://a:1", "https://b")
    assert settings.client.events_server == ("http://c",)
    assert [key.get_secret_value() for key in settings.token_keys] == ["new", "old"]
    assert settings.worker.queues == ("urgent", "default")
    assert settings.services == (ServiceName.EVENTS,)


def test_two_names_of_one_setting_are_an_error(load: Load) -> None:
    environ = {"AIRUNNER_SERVER": "http://a", "AIRUNNER_CLIENT__SERVER": "http://b"}
    message = failure(load, environ=environ)
    assert "client.server: is given twice" in message
    assert "AIRUNNER_SERVER" in message
    assert "AIRUNNER_CLIENT__SERVER" in message


def test_the_environment_wins_over_dotenv_whatever_name_is_used(load: Load) -> None:
    loaded = load(
        dotenv="AIRUNNER_SERVER=http://file\n", environ={"AIRUNNER_CLIENT__SERVER": "http://environment"}
    )
    assert loaded.settings.client.server == ("http://environment",)


def test_an_empty_variable_is_not_set_and_hides_dotenv(load: Load) -> None:
    loaded = load(dotenv="AIRUNNER_STORE__TYPE=memory\n", environ={"AIRUNNER_STORE__TYPE": ""})
    assert loaded.settings.store.type is StoreType.SQLITE
    assert loaded.origins["store.type"] == "default"


def test_dotenv_is_read_literally_and_only_for_our_prefix(load: Load) -> None:
    loaded = load(dotenv="OTHER=1\nexport AIRUNNER_API_KEY='a${HOME}'\n# comment\nAIRUNNER_NOVALUE\n")
    assert loaded.settings.client.api_key is not None
    assert loaded.settings.client.api_key.get_secret_value() == "a${HOME}"
    assert loaded.unknown_variables == ()


def test_unknown_variables_are_listed_not_fatal(load: Load) -> None:
    environ = {"AIRUNNER_STROE__TYPE": "memory", "AIRUNNER_STORE": "memory", "OTHER": "x"}
    loaded = load(dotenv="AIRUNNER_QQQ=1\n", environ=environ)
    assert loaded.settings == Settings()
    assert loaded.unknown_variables == ("AIRUNNER_QQQ", "AIRUNNER_STORE", "AIRUNNER_STROE__TYPE")
    assert loaded.warnings == [
        "unknown variable AIRUNNER_QQQ is ignored",
        "unknown variable AIRUNNER_STORE is ignored; did you mean AIRUNNER_STORE__TYPE?",
        "unknown variable AIRUNNER_STROE__TYPE is ignored; did you mean AIRUNNER_STORE__TYPE?",
    ]


def test_the_real_environment_and_folder_are_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "airunner.yaml").write_text("defaults: {max_attempts: 9}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRUNNER_WORKER__CONCURRENCY", "6")
    settings = load_settings().settings
    assert (settings.defaults.max_attempts, settings.worker.concurrency) == (9, 6)
