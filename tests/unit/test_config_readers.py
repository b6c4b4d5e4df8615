"""The two readers of settings: the plain one takes nothing that the other reads otherwise or refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from airunner.config import ConfigError, Settings, load_settings, loading
from airunner.config.judging import judge
from airunner.config.layers import variable_of
from airunner.config.plain import read_plainly
from airunner.config.settings import StoreType, secret_paths, setting_fields

# What may stand behind a key: right for some, wrong for others, and spelled in every way that YAML, variables
# and flags allow.
NUMBERS = (0, 1, -1, 2, 3, 50, 1_024, 65_536, 10**12, 10**30, 0.5, 1.0, 1e400, float("nan"), -0.0)
NUMBER_TEXTS = (
    *("0", "1", "-1", "+1", "01", "1.0", "0.5", ".5", "1.", "1e3", "1_000", " 1", "1 ", "0x10", "1\n", "²"),
    *("inf", "-inf", "nan", "NaN", "999999999999", "9" * 13, "9" * 400, "0.1234567", "٣"),
)
SWITCHES = (True, False, "true", "false", "True", "FALSE", "yes", "no", "on", "off", "y", "n", "t", "f")
TEXTS = (
    *(
        "",
        " ",
        "x",
        "x y",
        "x\n",
        "\x00",
        "ä",
        "字",
        "a" * 41,
        "a" * 300,
        "default",
        "a,b",
        "a,a",
        ",",
        " a , b ",
    ),
    *(
        "sqs",
        "aws",
        "memory",
        "SQLITE",
        "jobs",
        "jobs,events",
        "jobs,jobs",
        "keep",
        "drop",
        "server",
        "jobs,nobody",
    ),
    *(
        "debug",
        "json",
        "termination",
        "schedule,termination",
        "eu-west-1",
        "123456789012",
        "RunsFleet",
        "AWS/EC2",
    ),
    *("127.0.0.1:80", "[::1]:0", "a:65536", "a", ":1", "localhost:1", "300.1.1.1:1"),
    *(
        "http://a",
        "http://a/",
        "https://a:1/b/",
        "http://u:p@a",
        "http://a?q",
        "ftp://a",
        "http://a:0",
        "a=http://b",
    ),
    *(
        "http://a,http://b/",
        "http://a,http://a",
        "http://a,http://a/",
        "a=http://b,a=http://c",
        "m7i.large=0.1,x=2",
    ),
    *(
        "m7i.large=",
        "m7i.large=nan",
        "a=1e2",
        "~",
        "~nobody-at-all/x",
        "~/x",
        "/x/../y",
        ".",
        "a/",
        "/a/b",
        "/a/b/",
    ),
)
OTHERS: tuple[object, ...] = (
    *(None, [], ["a"], ["a", "a"], ["http://a/"], [""], [1], [True], [None], [["a"]], ("a", "b"), {"a"}, {}),
    *(
        {"a": ""},
        {"a": "http://b/"},
        {"a": None},
        {"a": 1},
        {1: "a"},
        {"m7i.large": "0.5"},
        {"m7i.large": True},
    ),
    *(Path("x"), Path("~/x"), b"x", b"1", StoreType.AWS, object(), 1 + 0j),
)
VALUES = (*NUMBERS, *NUMBER_TEXTS, *SWITCHES, *TEXTS, *OTHERS)
TOGETHER: tuple[Mapping[str, object], ...] = (
    {},
    {"tls.cert_file": "a"},
    {"tls.cert_file": "a", "tls.key_file": "b"},
    {"store.aws.access_key_id": "a"},
    {"store.aws.access_key_id": "a", "store.aws.secret_access_key": "b"},
    {"store.aws.session_token": "a"},
    {"client.server": "http://a/, http://b", "client.api_key": "k", "client.timeout_seconds": "2.5"},
    {"worker.concurrency": "0", "worker.queues": "a b", "tls.key_file": "x", "no_auth": "maybe"},
)


@pytest.mark.parametrize("path", setting_fields())
def test_whatever_stands_behind_a_key_both_readers_agree(path: str) -> None:
    for value in VALUES:
        compare({path: value})


@pytest.mark.parametrize("given", TOGETHER)
def test_they_agree_about_what_goes_together(given: Mapping[str, object]) -> None:
    compare(given)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("client.server", "http://a/, http://b", ("http://a", "http://b")),
        ("client.events_server", ["http://a"], ("http://a",)),
        ("client.ca_file", "x/y.pem", Path("x/y.pem")),
        ("client.timeout_seconds", "2.5", 2.5),
        ("client.timeout_seconds", 3, 3.0),
        ("worker.concurrency", "4", 4),
        ("worker.commands", "false", False),
        ("worker.queues", "a,b", ("a", "b")),
        ("store.type", "memory", StoreType.MEMORY),
        ("store.aws.region", "eu-west-1", "eu-west-1"),
        ("store.secrets_after_end", "drop", "drop"),
        ("store.sqs.queues", "a=http://b/,c", {"a": "http://b", "c": ""}),
        ("fleet.prices", "m7i.large=0.1", {"m7i.large": 0.1}),
        ("listen", "127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_common_values_are_plain(path: str, value: object, expected: object) -> None:
    read = read_plainly(Settings, nested({path: value}))
    assert read is not None
    found: Any = read
    for name in path.split("."):
        found = getattr(found, name)
    assert found == expected
    assert isinstance(found, type(expected))


Case = tuple[str, str, dict[str, str], dict[str, object]]
CASES: dict[str, Case] = {
    "nothing": ("", "", {}, {}),
    "each place": (
        "client: {server: [http://file], timeout_seconds: 4}\nworker: {concurrency: 2}\n",
        "AIRUNNER_CLIENT__SERVER=http://dotenv\nAIRUNNER_NO_AUTH=yes\nAWS_REGION=eu-west-1\nAIRUNNER_QQQ=1\n",
        {"AIRUNNER_SERVER": "http://variable/", "AIRUNNER_WROKER__CONCURRENCY": "1"},
        {"client.server": "http://flag", "client.api_key": None},
    ),
    "a trusted folder": ("client: {server: http://a}\n", "", {"AIRUNNER_TRUST_FOLDER": "1"}, {}),
    "second places": (
        "store: {execution: {heartbeat_interval_seconds: 7}, sqs: {queues: [a]}}\n",
        "",
        {},
        {},
    ),
    "credentials": ("", "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n", {}, {}),
    "empty variables": ("", "AIRUNNER_SERVER=http://a\n", {"AIRUNNER_SERVER": ""}, {}),
    "given twice": ("", "", {"AIRUNNER_SERVER": "http://a", "AIRUNNER_CLIENT__SERVER": "http://b"}, {}),
    "an unknown key": ("client: {sever: http://a}\n", "", {}, {}),
    "a repeated key": ("no_auth: true\nno_auth: false\n", "", {}, {}),
    "no YAML": ("client: {\n", "", {}, {}),
    "wrong values of every place": (
        "client: {server: ftp://a, api_key: 'a b'}\nlimits: {max_streams: 0}\n",
        "AIRUNNER_WORKER__CONCURRENCY=many\n",
        {"AIRUNNER_CLIENT__TIMEOUT_SECONDS": "0", "AIRUNNER_TLS__KEY_FILE": "x"},
        {"client.ca_file": ""},
    ),
    "a wrong key": ("", "", {"AIRUNNER_API_KEY": "geheim "}, {}),
    "an unknown flag": ("", "", {}, {"client.sever": "http://a"}),
    "null": ("client: {server: null, ca_file: null}\n", "", {}, {}),
    "odd spellings": (
        "client: {timeout_seconds: 1e1}\nno_auth: 'On'\n",
        "",
        {variable_of("store.type"): "sqs"},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_files_variables_and_flags_give_the_same_with_either_reader(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml, dotenv, environ, flags = case
    (tmp_path / "airunner.yaml").write_text(yaml)
    (tmp_path / ".env").write_text(dotenv)

    def load() -> object:
        loaded = load_settings(environ=environ, flags=flags, cwd=tmp_path)
        return loaded.settings, loaded.origins, loaded.warnings, loaded.from_folder, loaded.unknown_variables

    plainly = outcome(load)
    monkeypatch.setattr(loading, "read_plainly", lambda _kind, _given: None)
    assert plainly == outcome(load)
    assert "geheim" not in str(plainly)


def compare(given: Mapping[str, object]) -> None:
    plain = read_plainly(Settings, nested(given))
    if plain is None:
        return
    origins = dict.fromkeys(setting_fields(), "somewhere")
    judged = outcome(lambda: judge(Settings, nested(given), origins, secret_paths()))
    assert plain == judged, given
    # 1, 1.0 and True are equal, but not the same.
    assert repr(plain) == repr(judged), given


def outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except ConfigError as error:
        return error.problems


def nested(given: Mapping[str, object]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value in given.items():
        *sections, name = path.split(".")
        place = root
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return root
