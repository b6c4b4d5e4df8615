"""The examples, run as people would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import LIMIT_SECONDS, CommandLine, environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DRIVER = Path(__file__).resolve().parents[1] / "support" / "browser_driver.mjs"


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


@pytest.fixture
def browser_client(tmp_path: Path) -> Path:
    """The client for browsers as something that the Node of this machine can import."""
    source = EXAMPLES / "browser" / "client.ts"
    if shutil.which("node") is None:
        pytest.skip("there is no Node on this machine")
    if strips_types():
        return source
    plain = tmp_path / "client.mjs"
    if esbuild := shutil.which("esbuild"):
        subprocess.run([esbuild, source, f"--outfile={plain}", "--log-level=error"], check=True)
    elif tsc := shutil.which("tsc"):
        subprocess.run([tsc, "--target", "es2022", "--outDir", tmp_path, source], check=True)
        (tmp_path / "client.js").rename(plain)
    else:
        pytest.skip("this Node cannot strip types (22.6 can), and there is neither esbuild nor tsc")
    return plain


def strips_types() -> bool:
    asked = subprocess.run(
        ["node", "--experimental-strip-types", "-e", "0"], capture_output=True, check=False
    )
    return asked.returncode == 0


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
    options = ["--experimental-strip-types"] if browser_client.suffix == ".ts" else []
    arguments = [str(browser_client), person.variables["AIRUNNER_SERVER"], script, fate]
    with person.start("worker", "--once"):
        driver = subprocess.Popen(
            ["node", *options, str(DRIVER), *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert driver.stdout
        assert driver.stdout.readline() == b"stdout one\n"  # and only now the job goes on
        go_on.write_bytes(b"")
        out, err = driver.communicate(timeout=LIMIT_SECONDS)
    *lines, last = out.decode().splitlines()
    assert sorted(lines) == ["stderr ä", "stdout two"], err
    assert last == 'stdout three{"state":"JOB_STATE_FAILED","exitCode":3,"refusal":"invalid_argument"}'
    assert [line for line in err.decode().splitlines() if "connects" in line] == connections
