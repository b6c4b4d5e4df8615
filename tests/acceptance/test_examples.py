"""The examples, run as people would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import LIMIT_SECONDS, CommandLine, environment

pytest_plugins = ("tests.support.esbuild",)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DRIVER = Path(__file__).resolve().parents[1] / "support" / "browser_driver.mjs"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[CommandLine]:
    with CommandLine(folder=tmp_path).start("server", "--no-auth", "--listen", "127.0.0.1:0") as server:
        url = server.wait_for("airunner server listening on ")
        yield CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})


@pytest.fixture
def worker(person: CommandLine) -> Iterator[subprocess.Popen[bytes]]:
    """The worker of the examples; it ends when it is told to, and has nothing to complain about."""
    worker = start(person, "worker.py")
    yield worker
    assert worker.poll() is None
    worker.terminate()
    _, complaints = worker.communicate(timeout=LIMIT_SECONDS)
    assert complaints == b""


def test_a_worker_and_a_monitor_in_plain_python(person: CommandLine, worker: object) -> None:
    for script, exit_code in (("echo one; echo two; exit 3", 3), ("echo three", 0)):
        monitor = start(person, "monitor.py", "sh", "-c", script)
        out, err = monitor.communicate(timeout=LIMIT_SECONDS)
        assert monitor.returncode == exit_code, err
        assert out == {3: b"one\ntwo\n", 0: b"three\n"}[exit_code]
        assert b"process ended with %d" % exit_code in err


def test_a_line_in_plain_python_is_seen_while_its_job_runs(person: CommandLine, worker: object) -> None:
    go_on = person.folder / "go-on"
    os.mkfifo(go_on)
    monitor = start(person, "monitor.py", "sh", "-c", f"echo one; cat {go_on}; echo two")
    assert monitor.stdout
    assert monitor.stdout.readline() == b"one\n"  # and only now the job goes on
    go_on.write_bytes(b"")
    out, err = monitor.communicate(timeout=LIMIT_SECONDS)
    assert (out, monitor.returncode) == (b"two\n", 0), err


def test_a_command_that_does_not_exist_ends_its_job_but_not_the_worker(
    person: CommandLine, worker: object
) -> None:
    for command, exit_code in (("no-such-command", 127), ("true", 0)):
        monitor = start(person, "monitor.py", command)
        _, err = monitor.communicate(timeout=LIMIT_SECONDS)
        assert monitor.returncode == exit_code, err


def test_handlers(person: CommandLine) -> None:
    with person.start("worker", "--handlers", str(EXAMPLES / "handlers.py"), "--concurrency", "4") as worker:
        worker.wait_for("airunner worker serves default")
        payload = '{"images": ["a.png", "b.png"], "width": 7}'
        done = person.run("run", "--handler", "Thumbnails", "--payload", payload)
        assert (done.returncode, done.stdout) == (0, b"a.png: 7 pixels wide\nb.png: 7 pixels wide\n")
        assert b"INFO thumbnails: all done" in done.stderr
        done = person.run("run", "--handler", "charge", "--payload", '{"cents": 0}')
        assert done.returncode == 1
        assert b"nothing_to_charge: the amount must be above zero" in done.stderr
        done = person.run("run", "--json", "--handler", "charge", "--payload", '{"cents": 5}')
        assert b'"charged' in done.stdout


def start(person: CommandLine, example: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, EXAMPLES / example, *arguments],
        env=environment(**person.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("fate", "connections"),
    [
        ("nothing", ["connects after nothing"]),
        ("breaks", ["connects after nothing", "reconnects", "connects after 1-3"]),
        ("is refused", ["connects after nothing", "reconnects", "connects after nothing"]),
    ],
)
def test_a_browser_shows_lines_live_and_survives_its_connections(
    person: CommandLine, browser_client: Path, fate: str, connections: list[str]
) -> None:
    go_on = person.folder / "go-on"
    os.mkfifo(go_on)
    script = f"echo one; cat {go_on}; echo two; echo ä >&2; printf three; exit 3"
    arguments = [str(browser_client), person.variables["AIRUNNER_SERVER"], script, fate]
    with person.start("worker", "--once"):
        driver = subprocess.Popen(
            ["node", str(DRIVER), *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert driver.stdout
        assert driver.stdout.readline() == b"stdout one\n"  # and only now the job goes on
        go_on.write_bytes(b"")
        out, err = driver.communicate(timeout=LIMIT_SECONDS)
    text, brace, end = out.decode().partition("{")
    # In order on each stream; what is on two of them may come in any.
    pieces = sorted(re.split(r"(?=stdout |stderr )", text), key=lambda piece: piece[:6])
    assert pieces == ["", "stderr ä\n", "stdout two\n", "stdout three"], err
    assert brace + end == '{"state":"JOB_STATE_FAILED","exitCode":3,"refusal":"invalid_argument"}\n'
    assert [line for line in err.decode().splitlines() if "connects" in line] == connections


def test_a_page_without_its_script_is_not_served(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "browser" / "serve.py", "--port", "0", "--folder", tmp_path],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no client.js" in done.stderr
