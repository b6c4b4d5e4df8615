"""Commands in a folder of somebody else: its files get no key, and none of its code is run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.acceptance.command_line import CommandLine

KEY = {"AIRUNNER_API_KEY": "airk_0_mine"}


@contextmanager
def somebody_listens() -> Iterator[tuple[socket.socket, str]]:
    """A port whose callers are noticed, and not answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("command", [("queues",), ("worker", "--once")])
def test_a_key_is_not_sent_to_an_address_of_the_folder(person: CommandLine, command: tuple[str, ...]) -> None:
    with somebody_listens() as (listener, url):
        (person.folder / ".env").write_text(f"AIRUNNER_SERVER={url}\nAIRUNNER_TRUST_FOLDER=1\n")
        done = person.run(*command, **KEY)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"environment AIRUNNER_SERVER (.env)" in done.stderr
    assert b"environment AIRUNNER_API_KEY" in done.stderr
    assert b"airk_0_mine" not in done.stderr


def test_a_folder_that_is_trusted_may_name_the_server(person: CommandLine) -> None:
    # Port 1 of loopback refuses: that it was called shows in the exit code.
    (person.folder / "airunner.yaml").write_text("client: {server: 'http://127.0.0.1:1'}\n")
    assert person.run("queues", **KEY, AIRUNNER_TRUST_FOLDER="1").returncode == 125


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_code_of_the_folder_is_not_run(person: CommandLine, command: str) -> None:
    (person.folder / "airunner.yaml").write_text("worker: {handlers: [theirs.py]}\nlisten: 127.0.0.1:0\n")
    (person.folder / "theirs.py").write_text("open('ran', 'w').close()\n")
    done = person.run(command)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"worker.handlers comes from this folder (file airunner.yaml)" in done.stderr
    assert not (person.folder / "ran").exists()
    assert person.run("config", "show").returncode == 0
