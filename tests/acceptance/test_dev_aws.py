"""`airunner dev --aws`: production in small, with one command."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, Started, eventually, is_alive
from tests.doubles.aws.emulator import ACCESS_KEY, SECRET_KEY, EmulatorProcess
from tests.support.aws import client
from tests.support.aws_stores import outage

pytest_plugins = ("tests.support.aws",)

# A minute as people set it, scaled: more than the visibility either way.
VISIBILITY_SECONDS = 4
AWAY_SECONDS = 12.0
MANY_LINES = 'echo before; cat "$0"; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo "line $i"; done'


@pytest.mark.slow
def test_one_server_of_two_may_die_and_nobody_misses_a_line(person: CommandLine) -> None:
    gate = person.folder / "gate"
    os.mkfifo(gate)
    with developing(person) as (dev, first, second):
        pids = children_of(dev.process.pid)
        assert len(pids) == 4, "an emulator, two servers and a worker"
        done = person.run("run", "--server", first, "--", "echo", "hi")
        assert (done.stdout, done.returncode) == (b"hi\n", 0)
        job_id = person.text("submit", "--server", first, "--", "sh", "-c", MANY_LINES, gate)
        with person.start("monitor", "--verify", "--server", f"{second},{first}", job_id) as watcher:
            eventually(lambda: b"before\n" in watcher.out, "the watcher follows")
            os.kill(int(re.findall(r"kill -9 (\d+)", dev.err)[0]), signal.SIGKILL)
            dev.wait_for(f"airunner: the server on {second} ended (by signal 9); {first} goes on")
            gate.write_text("after\n")
            assert watcher.ended() == 0
            expected = ["before", "after", *(f"line {number}" for number in range(1, 2001))]
            assert watcher.out.decode().splitlines() == expected
            assert "complete: 2,004 events, output digest matches" in watcher.err
        dev.send(signal.SIGTERM)
        assert dev.ended() == 0
        assert dev.err.index("worker.end") < dev.err.index("server.stopped")
        assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.slow
def test_everything_ends_when_the_emulator_does(person: CommandLine) -> None:
    with developing(person) as (dev, _, _):
        pids = children_of(dev.process.pid)
        (emulator,) = (pid for pid in pids if "emulator" in command_of(pid))
        os.kill(emulator, signal.SIGKILL)
        assert dev.ended() == 125
        assert "airunner: the emulator ended, so everything else was stopped too\n" in dev.err
        assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.slow
def test_dynamodb_may_be_away_in_the_middle_of_a_job(
    person: CommandLine, emulator: EmulatorProcess, aws_env: str
) -> None:
    gate, runs = person.folder / "gate", person.folder / "runs"
    os.mkfifo(gate)
    visibility = {"AIRUNNER_DEFAULTS__VISIBILITY_TIMEOUT_SECONDS": str(VISIBILITY_SECONDS)}
    somebody = CommandLine(folder=person.folder, variables=in_environment(aws_env) | visibility)
    with developing(somebody, "--endpoint", emulator.url) as (dev, first, second):
        command = f"echo run >>{runs}; {MANY_LINES}"
        job_id = somebody.text("submit", "--server", first, "--", "sh", "-c", command, gate)
        with somebody.start("monitor", "--verify", "--server", f"{second},{first}", job_id) as watcher:
            eventually(lambda: b"before\n" in watcher.out, "the watcher follows")
            with outage(emulator, "dynamodb"):
                eventually(lambda: "store.does_not_answer" in dev.err, "the servers notice")
                back_at = time.monotonic() + AWAY_SECONDS
                eventually(lambda: time.monotonic() > back_at, "it is back", 2 * AWAY_SECONDS)
                # It ends while nobody can be told.
                gate.write_text("after\n")
            assert watcher.ended() == 0
            expected = ["before", "after", *(f"line {number}" for number in range(1, 2001))]
            assert watcher.out.decode().splitlines() == expected
            assert "complete: 2,004 events, output digest matches" in watcher.err
        assert runs.read_text() == "run\n"
        (job,) = somebody.objects("get", "--server", first, job_id)
        assert (job["state"], job["attempt"]) == ("COMPLETED", 1)


async def test_another_emulator_is_used_where_one_is_named(
    person: CommandLine, emulator: EmulatorProcess, aws_env: str
) -> None:
    options = ("--endpoint", emulator.url, "--queue", "builds")
    somebody = CommandLine(folder=person.folder, variables=in_environment(aws_env))
    with developing(somebody, *options) as (dev, first, _):
        assert len(children_of(dev.process.pid)) == 3
        done = somebody.run("run", "--server", first, "--queue", "builds", "--", "echo", "hi")
        assert (done.stdout, done.returncode) == (b"hi\n", 0)
    async with client("sqs", emulator.url) as sqs:
        assert await sqs.get_queue_url(QueueName=f"airunner-{aws_env}-builds")


def test_what_is_missing_is_named(person: CommandLine) -> None:
    (person.folder / "sitecustomize.py").write_text("import sys; sys.modules['moto'] = None\n")
    done = person.run("dev", "--aws", PYTHONPATH=str(person.folder))
    assert done.returncode == 1
    assert done.stderr == b"airunner: moto is not installed: pip install 'airunner-jobs[local-aws]'\n"


def test_an_endpoint_needs_aws(person: CommandLine) -> None:
    done = person.run("dev", "--endpoint", "aws")
    assert (done.returncode, done.stderr) == (2, b"airunner: --endpoint: needs --aws\n")


def in_environment(env: str) -> dict[str, str]:
    """Variables of somebody who has an emulator, and an environment there."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AIRUNNER_STORE__AWS__ENV": env,
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": f"jobs_{env}",
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": f"events_{env}",
    }


@contextmanager
def developing(person: CommandLine, *options: str) -> Iterator[tuple[Started, str, str]]:
    """Yields the running command and the addresses of both servers."""
    with person.start("dev", "--aws", "--listen", "127.0.0.1:0", *options) as dev:
        printed = dev.wait_for("airunner dev ready on").partition(",")[0]
        first, _, second = printed.partition(" and ")
        eventually(lambda: "kill -9" in dev.err, "the welcome is whole")
        yield dev, first, second


def children_of(pid: int) -> list[int]:
    """The direct children of a process; those that another thread of it started belong to that thread."""
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
