"""`airunner worker`: how it begins, drains, dies and does a single job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, eventually, is_alive, serving


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Somebody with a server and no worker."""
    folder = tmp_path_factory.mktemp("server")
    with serving(CommandLine(folder=folder), "--no-auth") as (_, url):
        yield CommandLine(folder=folder, variables={"AIRUNNER_SERVER": url})


def test_sigterm_drains(user: CommandLine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job_id = user.text("submit", "--queue", "drain", "--", "sh", "-c", _until_exists(go))
    later = user.text("submit", "--queue", "drain", "--", "true")
    with user.start("worker", "--queue", "drain") as worker:
        eventually(lambda: _state(user, job_id) == "RUNNING", "the job runs")
        worker.send(signal.SIGTERM)
        eventually(lambda: '"worker.stop"' in worker.err, "the worker drains")
        go.touch()
        assert worker.ended() == 0
    assert _state(user, job_id) == "COMPLETED"
    assert _state(user, later) == "SCHEDULED"


def test_a_second_sigterm_kills(user: CommandLine, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job_id = user.text("submit", "--queue", "kill", "--", "sh", "-c", f"echo $$ >{pid_file}; exec sleep 600")
    with user.start("worker", "--queue", "kill") as worker:
        eventually(lambda: pid_file.exists() and bool(pid_file.read_text().strip()), "the job has begun")
        pid = int(pid_file.read_text())
        worker.send(signal.SIGTERM)
        eventually(lambda: '"worker.stop"' in worker.err, "the worker drains")
        assert is_alive(pid)
        worker.send(signal.SIGTERM)
        worker.ended()
    eventually(lambda: not is_alive(pid), "the process is gone")
    assert _state(user, job_id) == "RUNNING"


def test_once_does_one_job(user: CommandLine) -> None:
    first = user.text("submit", "--queue", "once", "--", "true")
    second = user.text("submit", "--queue", "once", "--", "true")
    done = user.run("worker", "--queue", "once", "--once")
    assert done.returncode == 0
    assert (_state(user, first), _state(user, second)) == ("COMPLETED", "SCHEDULED")


def test_earlier_queues_come_first(user: CommandLine) -> None:
    low = user.text("submit", "--queue", "low", "--", "true")
    high = user.text("submit", "--queue", "high", "--", "true")
    assert user.run("worker", "--queue", "high", "--queue", "low", "--once").returncode == 0
    assert (_state(user, high), _state(user, low)) == ("COMPLETED", "SCHEDULED")


def test_the_worker_s_own_variables_stay_its_own(user: CommandLine) -> None:
    job_id = user.text("submit", "--queue", "env", "--", "env")
    user.run("worker", "--queue", "env", "--once", AIRUNNER_API_KEY="airk_a_b", FAVOURITE="tea")
    shown = user.text("monitor", job_id)
    assert "FAVOURITE=tea" in shown
    assert "AIRUNNER_API_KEY" not in shown
    assert "AIRUNNER_SERVER" not in shown


def test_a_worker_waits_for_its_server_and_says_so_once(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (server, url):
        job_id = person.text("submit", "--server", url, "--", "true")
        server.send(signal.SIGTERM)
        assert server.ended() == 0
    address = url.removeprefix("http://")
    with person.start("worker", "--server", url, "--once") as worker:
        worker.wait_for("airunner: waiting for a server")
        with person.start("server", "--no-auth", "--listen", address, "--data-dir", "data"):
            assert worker.ended() == 0
            assert _state(person, job_id, "--server", url) == "COMPLETED"
    assert worker.err.count("waiting for a server") == 1


def test_a_worker_that_waits_can_be_ended(person: CommandLine) -> None:
    with person.start("worker", "--server", "http://127.0.0.1:1") as worker:
        worker.wait_for("airunner: waiting for a server")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_server_and_worker_may_be_ended_at_the_same_time(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (server, url), person.start("worker", "--server", url) as worker:
        worker.wait_for("airunner worker serves")
        eventually(lambda: bool(person.objects("workers", "--server", url)), "the worker has asked for jobs")
        server.send(signal.SIGTERM)
        worker.send(signal.SIGTERM)
        assert server.ended() == 0
        assert worker.process.wait(20) == 0


def test_a_queue_name_is_checked(person: CommandLine) -> None:
    done = person.run("worker", "--queue", "no spaces")
    assert done.returncode == 2
    assert b"--queue" in done.stderr


def _state(user: CommandLine, job_id: str, *options: str) -> str:
    return str(user.objects("get", job_id, *options)[0]["state"])


def _until_exists(path: Path) -> str:
    return f"while ! test -e {path}; do sleep 0.05; done"
