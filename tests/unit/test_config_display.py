"""What `airunner config show` prints, and the manual, which must agree with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from airunner.config import describe, load_settings, to_jsonable
from airunner.config.layers import SHORT_VARIABLES, variable_of
from airunner.config.settings import setting_fields

MANUAL = Path(__file__).parents[2] / "docs" / "configuration.md"
SECRET = "sk-very-secret-1234"


def test_secrets_are_hidden_when_shown(tmp_path: Path) -> None:
    environ = {"AIRUNNER_API_KEY": SECRET, "AIRUNNER_TOKEN_KEYS": f"{SECRET},other-{SECRET}"}
    loaded = load_settings(environ=environ, cwd=tmp_path)
    lines = {line.path: line for line in describe(loaded)}
    assert lines["client.api_key"].value_text == "********"
    assert lines["token_keys"].value_text == "********,********"
    assert lines["client.api_key"].origin == "environment AIRUNNER_API_KEY"
    for text in (repr(describe(loaded)), json.dumps(to_jsonable(loaded)), repr(loaded), str(loaded.settings)):
        assert SECRET not in text


def test_describe_shows_every_setting_as_text(tmp_path: Path) -> None:
    (tmp_path / "airunner.yaml").write_text("services: [jobs]\nworker: {grace_seconds: 1.5}\n")
    loaded = load_settings(environ={}, cwd=tmp_path, flags={"no_auth": True})
    lines = {line.path: (line.value_text, line.origin) for line in describe(loaded)}
    assert list(lines) == list(setting_fields())
    assert lines["services"] == ("jobs", "file airunner.yaml")
    assert lines["worker.grace_seconds"] == ("1.5", "file airunner.yaml")
    assert lines["no_auth"] == ("true", "flag --no-auth")
    assert lines["tls.cert_file"] == ("(none)", "default")
    assert lines["store.max_queued_jobs_per_queue"] == ("0", "default")
    assert lines["worker.drain_seconds"] == ("30", "default")


def test_to_jsonable_keeps_types(tmp_path: Path) -> None:
    shown = json.loads(json.dumps(to_jsonable(load_settings(environ={"AIRUNNER_QQQ": "1"}, cwd=tmp_path))))
    values = {line["path"]: line["value"] for line in shown["settings"]}
    assert values["services"] == ["jobs", "events"]
    assert values["no_auth"] is False
    assert values["data_dir"] == ".airunner"
    assert values["tls.cert_file"] is None
    assert values["worker.concurrency"] == 1
    assert shown["settings"][0] == {"path": "listen", "value": "127.0.0.1:8080", "origin": "default"}
    assert shown["unknown_variables"] == ["AIRUNNER_QQQ"]


def test_the_example_of_the_manual_loads(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "airunner.yaml").write_text(example[1])
    loaded = load_settings(environ={}, cwd=tmp_path)
    assert loaded.settings.listen.port == 8443
    assert loaded.settings.worker.queues == ("urgent", "default")
    assert loaded.settings.execution.heartbeat_interval_seconds == 20


def test_the_manual_lists_every_key_with_default_and_variables(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| `(.+?)` \| (.+?) \|", MANUAL.read_text(), re.MULTILINE)
    listed = {path: (default, set(re.findall(r"AIRUNNER_\w+", names))) for path, default, names in rows}
    short = {path: name for name, path in SHORT_VARIABLES.items()}
    assert listed == {
        line.path: (
            line.value_text,
            {variable_of(line.path)} | {short.get(line.path, variable_of(line.path))},
        )
        for line in describe(load_settings(environ={}, cwd=tmp_path))
    }
