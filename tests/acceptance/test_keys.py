"""`airunner keys`: who gets in, and who does not any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, eventually, serving


def test_keys_open_the_server_until_they_are_revoked(person: CommandLine) -> None:
    everything = ("--scope", "jobs:submit", "--scope", "jobs:read")
    key = person.text("keys", "create", "ann", *everything, "--data-dir", "data", "--init")
    with serving(person) as (_, url):
        reader = person.text("keys", "create", "bob", "--scope", "jobs:read", "--data-dir", "data")
        assert person.run("list", "--server", url).returncode == 4
        assert person.run("list", "--server", url, "--api-key", "airk_0_wrong").returncode == 4
        person.text("submit", "--server", url, "--api-key", key, "--", "true")
        assert person.run("list", "--server", url, AIRUNNER_API_KEY=reader).returncode == 0
        refused = person.run("submit", "--server", url, "--api-key", reader, "--", "true")
        assert refused.returncode == 4
        assert b"jobs:submit" in refused.stderr
        key_id = key.split("_")[1]
        assert person.run("keys", "revoke", key_id, "--data-dir", "data").returncode == 0
        eventually(
            lambda: person.run("list", "--server", url, "--api-key", key).returncode == 4,
            "the key is refused",
            limit_seconds=20,
        )


def test_a_worker_with_the_wrong_key_ends(person: CommandLine) -> None:
    key = person.text("keys", "create", "ann", "--scope", "jobs:read", "--data-dir", "data", "--init")
    with serving(person) as (_, url):
        done = person.run("worker", "--server", url, "--api-key", key)
    assert done.returncode == 4
    assert b"worker" in done.stderr


def test_a_server_for_everybody_starts_once_there_is_a_key(person: CommandLine) -> None:
    options = ("server", "--listen", "0.0.0.0:0", "--data-dir", "data", "--insecure-plaintext")
    assert person.run(*options).returncode == 1
    person.text("keys", "create", "ann", "--scope", "admin", "--data-dir", "data")
    with person.start(*options) as server:
        server.wait_for("airunner server listening on http://0.0.0.0:")


def test_keys_are_listed_without_their_secrets(person: CommandLine) -> None:
    [made] = person.objects("keys", "create", "ann", "--scope", "worker", "--queue", "builds", "--init")
    [listed] = person.objects("keys", "list")
    assert listed["key_id"] == made["key_id"]
    assert (listed["name"], listed["scopes"], listed["queues"]) == ("ann", ["worker"], ["builds"])
    secret = made["key"].split("_", 2)[2]
    assert secret not in person.text("keys", "list")
    stored = b"".join(path.read_bytes() for path in Path(person.folder, ".airunner").iterdir())
    assert secret.encode() not in stored


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "ann", "--scope", "everything"), 2),
        (("create", "ann"), 2),
        (("create", "", "--scope", "admin"), 2),
        (("create", "ann", "--scope", "worker", "--queue", "no spaces"), 2),
        (("create", "ann", "--scope", "admin"), 1),
        (("list",), 1),
        (("revoke", "0123456789abcdef"), 1),
    ],
)
def test_what_makes_no_sense_is_refused(person: CommandLine, arguments: tuple[str, ...], code: int) -> None:
    done = person.run("keys", *arguments)
    assert (done.returncode, done.stdout) == (code, b"")
    assert not (person.folder / ".airunner").exists()


def test_where_a_key_is_made_is_said_in_every_case(person: CommandLine) -> None:
    database = str(person.folder / ".airunner" / "airunner.db")
    create = ("keys", "create", "ann", "--scope", "admin")
    refused = person.run(*create)
    assert str(person.folder / ".airunner") in refused.stderr.decode()
    assert b"--init" in refused.stderr
    made = person.run(*create, "--init")
    assert made.returncode == 0
    assert made.stdout.startswith(b"airk_")
    assert f"was created in {database};" in made.stderr.decode()
    assert person.objects(*create)[0]["store"] == database


def test_an_unknown_key_is_exit_code_5(person: CommandLine) -> None:
    person.text("keys", "create", "ann", "--scope", "admin", "--init")
    assert person.run("keys", "revoke", "0123456789abcdef").returncode == 5
