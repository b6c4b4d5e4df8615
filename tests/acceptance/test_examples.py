"""The examples, run as people would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import LIMIT_SECONDS, CommandLine, environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[CommandLine]:
    with CommandLine(folder=tmp_path).start("server", "--no-auth", "--listen", "127.0.0.1:0") as server:
        url = server.wait_for("airunner server listening on ")
        yield CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})


def test_a_worker_and_a_monitor_in_plain_python(person: CommandLine) -> None:
    worker = start(person, "worker.py")
    monitor = start(person, "monitor.py", "sh", "-c", "echo one; echo two; exit 3")
    out, err = monitor.communicate(timeout=LIMIT_SECONDS)
    assert (out, monitor.returncode) == (b"one\ntwo\n", 3), err
    assert b"process ended with 3" in err
    _, complaints = worker.communicate(timeout=LIMIT_SECONDS)
    assert (worker.returncode, complaints) == (0, b"")


def start(person: CommandLine, example: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, EXAMPLES / example, *arguments],
        env=environment(**person.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
