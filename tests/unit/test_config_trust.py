"""Files of the current folder: what they may not decide, and who may say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airunner.config import (
    ConfigError,
    Loaded,
    check_handler_origins,
    check_key_destination,
    load_settings,
)

Load = Callable[..., Loaded]
KEY = {"AIRUNNER_API_KEY": "airk_mine"}
YAML = "client: {server: 'http://theirs.example'}\n"
DOTENV = "AIRUNNER_SERVER=http://theirs.example\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loader(
        yaml: str = "",
        dotenv: str = "",
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        config_file: Path | None = None,
    ) -> Loaded:
        (tmp_path / "airunner.yaml").write_text(yaml)
        (tmp_path / ".env").write_text(dotenv)
        return load_settings(config_file=config_file, flags=flags, environ=environ or {}, cwd=tmp_path)

    return loader


@pytest.mark.parametrize(
    ("yaml", "dotenv", "setting", "origin"),
    [
        (YAML, "", "client.server", "file airunner.yaml"),
        ("", DOTENV, "client.server", "environment AIRUNNER_SERVER (.env)"),
        (
            "client: {events_server: 'http://theirs.example'}\n",
            "",
            "client.events_server",
            "file airunner.yaml",
        ),
    ],
)
def test_a_key_of_mine_is_not_sent_to_an_address_of_the_folder(
    load: Load, yaml: str, dotenv: str, setting: str, origin: str
) -> None:
    for environ, flags, from_where in (
        (KEY, None, "environment AIRUNNER_API_KEY"),
        ({}, {"client.api_key": "airk_mine"}, "flag --api-key"),
    ):
        with pytest.raises(ConfigError) as refused:
            check_key_destination(load(yaml, dotenv, environ, flags))
        text = str(refused.value)
        assert setting in text
        assert origin in text
        assert from_where in text
        assert "AIRUNNER_TRUST_FOLDER=1" in text
        assert "airk_mine" not in text


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"yaml": YAML}, id="no key that could go astray"),
        pytest.param({"environ": KEY}, id="the default server"),
        pytest.param({"environ": {**KEY, "AIRUNNER_SERVER": "http://mine.example"}}, id="both mine"),
        pytest.param({"yaml": YAML, "dotenv": "AIRUNNER_API_KEY=airk_theirs"}, id="both the folder's"),
        pytest.param({"dotenv": f"{DOTENV}AIRUNNER_API_KEY=airk_theirs"}, id="both of one file"),
        pytest.param({"yaml": "client: {api_key: airk_theirs}", "environ": {}}, id="the folder's key alone"),
        pytest.param(
            {"yaml": YAML, "environ": {**KEY, "AIRUNNER_SERVER": "http://mine.example"}},
            id="mine stands above",
        ),
        pytest.param(
            {"yaml": YAML, "environ": KEY, "flags": {"client.server": "http://mine.example"}},
            id="said by flag",
        ),
        pytest.param({"yaml": YAML, "environ": KEY, "config_file": Path("airunner.yaml")}, id="--config"),
        pytest.param({"yaml": YAML, "environ": {**KEY, "AIRUNNER_TRUST_FOLDER": "1"}}, id="trusted"),
        pytest.param(
            {"dotenv": DOTENV, "environ": {**KEY, "AIRUNNER_TRUST_FOLDER": "true"}}, id="trusted .env"
        ),
        pytest.param({"yaml": "worker: {handlers: [theirs.py]}", "environ": KEY}, id="other settings"),
    ],
)
def test_what_goes_nowhere_strange_is_let_be(load: Load, given: dict[str, object]) -> None:
    loaded = load(**given)
    check_key_destination(loaded)
    assert loaded.unknown_variables == ()


@pytest.mark.parametrize("word", ["", "0", "false", "no"])
def test_only_a_clear_word_is_trust(load: Load, word: str) -> None:
    with pytest.raises(ConfigError):
        check_key_destination(load(YAML, environ={**KEY, "AIRUNNER_TRUST_FOLDER": word}))


def test_a_folder_cannot_vouch_for_itself(load: Load) -> None:
    loaded = load(dotenv=f"{DOTENV}AIRUNNER_TRUST_FOLDER=1\n", environ=KEY)
    with pytest.raises(ConfigError):
        check_key_destination(loaded)
    assert loaded.unknown_variables == ("AIRUNNER_TRUST_FOLDER",)


def test_a_file_that_was_named_does_not_vouch_for_others_in_the_folder(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"\(\.env\)"):
        check_key_destination(load(YAML, DOTENV, KEY, config_file=Path("airunner.yaml")))


@pytest.mark.parametrize(
    ("yaml", "dotenv"),
    [("worker: {handlers: [theirs.py]}", ""), ("", "AIRUNNER_WORKER__HANDLERS=theirs.py\n")],
)
def test_code_that_the_folder_names_is_not_run(load: Load, yaml: str, dotenv: str) -> None:
    for environ in ({}, KEY):
        with pytest.raises(ConfigError, match=r"worker\.handlers comes from this folder .*--handlers"):
            check_handler_origins(load(yaml, dotenv, environ))
    check_handler_origins(load(yaml, dotenv, {"AIRUNNER_TRUST_FOLDER": "1"}))
    check_handler_origins(load(yaml, dotenv, {}, {"worker.handlers": "mine.py"}))
    check_handler_origins(load(yaml, dotenv, {"AIRUNNER_WORKER__HANDLERS": "mine.py"}))
    check_handler_origins(load("worker: {handlers: [mine.py]}", "", config_file=Path("airunner.yaml")))
    check_handler_origins(load())
