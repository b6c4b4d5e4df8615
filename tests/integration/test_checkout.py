"""Jobs with a repository: real git, real repositories in folders."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from airunner.domain.clock import SystemClock
from airunner.domain.errors import AttemptSuperseded, InvalidArgument, Unavailable
from airunner.domain.event import Output, ProcessStart, StreamType
from airunner.domain.job import JobParams, JobState, Outcome
from airunner.domain.listing import JobQuery
from airunner.testing.conditions import until
from airunner.testing.factories import make_request
from airunner.worker.process.checkout import CheckoutRules, checkout_refusal, checkout_spec
from airunner.worker.process.command import CommandAttempt, time_left
from airunner.worker.process.process import ProcessExit, ProcessSpec
from tests.support.processes import until_gone
from tests.support.repositories import PATH, GitRepository
from tests.support.workers import Bench, Log, working

FILES = CheckoutRules(allow_file=True)
TOKEN = "ghp_abcdefgh1234"


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository(tmp_path / "repository")


def starts(log: Log) -> int:
    return sum(isinstance(event.data, ProcessStart) for event in log.events)


async def test_the_command_runs_in_a_clean_checkout_that_is_removed(
    tmp_path: Path, repository: GitRepository
) -> None:
    commit = repository.commit(hello="from the repository\n")
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do(
            "sh", "-c", "pwd; cat hello.txt; git rev-parse HEAD", repository_url=repository.url
        )
        folder, *shown = log.output(StreamType.STDOUT).decode().splitlines()
        assert shown == ["from the repository", commit]
        assert Path(folder).parent == bench.work_dir
        assert list(bench.work_dir.iterdir()) == []
    assert log.result.outcome is Outcome.SUCCESS
    assert starts(log) == 2


async def test_git_tells_its_progress_in_front_of_the_output(
    tmp_path: Path, repository: GitRepository
) -> None:
    commit = repository.commit(hello="x")
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do("echo", "done", repository_url=repository.url)
    outputs = [event.data for event in log.events if isinstance(event.data, Output)]
    assert outputs[-1] == Output(b"done\n", StreamType.STDOUT)
    told = log.output(StreamType.STDERR).decode()
    assert "Enumerating objects" in told
    assert f"HEAD is now at {commit[:7]}" in told


async def test_without_a_command_the_checkout_is_the_job(tmp_path: Path, repository: GitRepository) -> None:
    repository.commit(hello="x")
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do(repository_url=repository.url)
    assert log.result.outcome is Outcome.SUCCESS
    assert b"HEAD is now at" in log.output()
    assert starts(log) == 1


@pytest.mark.parametrize(
    ("requested", "shown"),
    [
        ({}, "third"),
        ({"branch": "other"}, "other"),
        ({"branch": "refs/tags/v1"}, "first"),
        ({"commit": "first"}, "first"),
        ({"commit": "first", "branch": "main"}, "first"),
        ({"commit": "short first"}, "first"),
        ({"commit": "short first", "branch": "main"}, "first"),
        ({"commit": "short other"}, "other"),
    ],
)
async def test_what_is_asked_for_is_checked_out(
    tmp_path: Path, repository: GitRepository, requested: dict[str, str], shown: str
) -> None:
    commits = {"first": repository.commit(name="first")}
    repository.git("tag", "v1")
    repository.git("checkout", "--quiet", "-b", "other")
    commits["other"] = repository.commit(name="other")
    repository.git("checkout", "--quiet", "main")
    repository.commit(name="second")
    repository.commit(name="third")
    if "commit" in requested:
        *short, name = requested["commit"].split()
        requested = {**requested, "commit": commits[name][: 8 if short else None]}
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do("cat", "name.txt", repository_url=repository.url, **requested)
    assert log.output(StreamType.STDOUT).decode() == shown, log.output()


@pytest.mark.parametrize(("depth", "commits"), [(1, 1), (2, 2), (0, 3)])
async def test_the_operator_says_how_much_history_comes_along(
    tmp_path: Path, repository: GitRepository, depth: int, commits: int
) -> None:
    for name in ("a", "b", "c"):
        repository.commit(**{name: name})
    rules = CheckoutRules(allow_file=True, depth=depth)
    async with working(tmp_path, checkout=rules) as bench:
        log = await bench.do("git", "rev-list", "--count", "HEAD", repository_url=repository.url)
    assert log.output(StreamType.STDOUT).decode() == f"{commits}\n"


@pytest.mark.parametrize("command", [("touch", "../../ran"), ()])
@pytest.mark.parametrize("requested", [{"branch": "missing"}, {"commit": "0" * 40}, {"commit": "0" * 8}])
async def test_a_checkout_that_fails_is_the_end_and_says_so(
    tmp_path: Path, repository: GitRepository, requested: dict[str, str], command: tuple[str, ...]
) -> None:
    repository.commit(a="x")
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do(*command, repository_url=repository.url, **requested)
    assert (log.job.state, log.job.attempt) == (JobState.FAILED, 1)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, 128)
    assert log.result.error_message == f"cannot check out {repository.url}: exited with code 128"
    assert log.errors == [log.result.error_message]
    assert b"fatal: " in log.output(StreamType.STDERR)
    assert not (tmp_path / "ran").exists()


async def test_a_secret_in_an_address_is_not_in_the_error_either(tmp_path: Path) -> None:
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do(
            "true",
            repository_url=f"file:///none/{TOKEN}/a.git",
            environment={"KEY": TOKEN},
            secret_names=("KEY",),
        )
    assert log.errors == ["cannot check out file:///none/[redacted]/a.git: exited with code 128"]
    assert log.result.error_message == log.errors[0]
    assert TOKEN not in f"{log.events!r}"


async def test_a_relative_working_directory_is_below_the_checkout(
    tmp_path: Path, repository: GitRepository
) -> None:
    (repository.folder / "sub").mkdir()
    (repository.folder / "sub" / "here").write_text("found")
    (repository.folder / "out").symlink_to("/")
    repository.commit()
    async with working(tmp_path, checkout=FILES) as bench:
        inside = await bench.do("cat", "here", repository_url=repository.url, working_directory="sub")
        outside = await bench.do("pwd", repository_url=repository.url, working_directory="out/etc")
        missing = await bench.do("pwd", repository_url=repository.url, working_directory="missing")
    assert inside.output(StreamType.STDOUT) == b"found"
    assert outside.result.error_message == "the working directory out/etc is not in the checkout"
    assert (outside.result.outcome, outside.result.exit_code) == (Outcome.FAILURE, 126)
    assert "missing: No such file or directory" in missing.result.error_message


async def test_the_server_refuses_what_git_could_misread(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        for params in (
            JobParams(command="true", repository_url="ext::sh -c id"),
            JobParams(command="true", repository_url="https://git.example.org/a", branch="--upload-pack=id"),
            JobParams(command="true", repository_url="https://git.example.org/a", commit="--exec=x"),
        ):
            (refused,) = await bench.services.jobs.enqueue_jobs([make_request(params=params)])
            assert isinstance(refused, InvalidArgument)


async def test_a_worker_checks_again_what_a_server_let_through(
    tmp_path: Path, repository: GitRepository
) -> None:
    marker = tmp_path / "ran"
    requested = (
        JobParams(repository_url=f"ext::touch {marker}"),
        JobParams(repository_url=repository.url, branch=f"--upload-pack=touch {marker}"),
        JobParams(repository_url=repository.url, command="pwd", working_directory="/"),
    )
    for params in requested:
        assert checkout_refusal(params, PATH, FILES)
    assert not marker.exists()


async def refused(tmp_path: Path, repository: GitRepository, **options: Any) -> str:
    async with working(tmp_path, **options) as bench:
        log = await bench.do("true", repository_url=repository.url)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, 126)
    assert log.errors == [log.result.error_message]
    return log.result.error_message


async def test_files_are_refused_unless_the_operator_allows_them(
    tmp_path: Path, repository: GitRepository
) -> None:
    reason = await refused(tmp_path, repository)
    assert reason == "this worker takes no repositories from files (worker.git_allow_file)"


async def test_a_worker_without_git_says_so(tmp_path: Path, repository: GitRepository) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    path = {"PATH": str(tmp_path / "bin")}
    reason = await refused(tmp_path, repository, checkout=FILES, base_environment=path)
    assert reason == "git is not installed on this worker"


# An address of ssh whose git waits for ever: its ssh is a shell that says where it is.
WAITING: dict[str, Any] = {
    "repository_url": "ssh://git.example.org/a",
    "environment": {"GIT_SSH_COMMAND": "echo $$ >&2; exec sleep 1000 #", "GIT_SSH_VARIANT": "simple"},
}


async def begin_waiting(bench: Bench, **params: Any) -> tuple[str, int]:
    job_id = await bench.submit("echo", "never", **{**WAITING, **params})
    return job_id, int(await bench.first_output(job_id))


async def test_cancelling_ends_a_checkout(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        job_id, pid = await begin_waiting(bench)
        await bench.services.jobs.cancel_job(job_id)
        log = await bench.log_of(job_id)
    assert log.result.outcome is Outcome.CANCELLED
    assert log.result.error_message == "cannot check out ssh://git.example.org/a: cancelled"
    assert b"never" not in log.output()
    await until_gone(pid)


async def test_the_timeout_is_for_checkout_and_command_together(
    tmp_path: Path, repository: GitRepository
) -> None:
    repository.commit(a="x")
    async with working(tmp_path, checkout=FILES) as bench:
        waiting = await bench.do("echo", "never", timeout_seconds=1, **WAITING)
        running = await bench.do("sleep", "1000", repository_url=repository.url, timeout_seconds=1)
    assert waiting.result.outcome is running.result.outcome is Outcome.TIMEOUT
    assert waiting.errors == ["cannot check out ssh://git.example.org/a: timed out after 1 s"]
    assert running.errors == ["timed out after 1 s"]
    started_at = next(
        event.data.started_at for event in running.events if isinstance(event.data, ProcessStart)
    )
    assert running.result.completed_at - started_at < 5000


async def test_a_lost_attempt_kills_its_checkout(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        job_id, pid = await begin_waiting(bench)
        bench.jobs.errors["update_job"] = AttemptSuperseded
        await until_gone(pid)
        await until(lambda: not list(bench.work_dir.iterdir()))
        assert (await bench.services.jobs.get_job(job_id)).state is JobState.RUNNING


async def test_a_publisher_that_learns_of_the_loss_first_kills_the_checkout_too(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    talking = {**WAITING["environment"], "GIT_SSH_COMMAND": f"echo $$ >&2; cat {go} >&2; exec sleep 1000 #"}
    async with working(tmp_path) as bench:
        _, pid = await begin_waiting(bench, environment=talking)
        bench.jobs.errors["update_job"] = Unavailable
        bench.events.errors["publish_events"] = AttemptSuperseded
        go.write_bytes(b"more\n")
        await until_gone(pid)


async def test_no_command_begins_when_the_worker_stops_as_the_checkout_ends(
    tmp_path: Path, repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(a="x")
    wait = CommandAttempt._wait

    async def cancelled_as_it_ends(self: CommandAttempt, *running: Any) -> ProcessExit:
        exited = await wait(self, *running)
        task = asyncio.current_task()
        assert task
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        bench.worker.stop()
        return exited

    monkeypatch.setattr(CommandAttempt, "_wait", cancelled_as_it_ends)
    async with working(tmp_path, checkout=FILES) as bench:
        job_id = await bench.submit("touch", str(tmp_path / "ran"), repository_url=repository.url)
        await bench.work
        job = await bench.services.jobs.get_job(job_id)
    assert (job.state, job.attempt) == (JobState.SCHEDULED, 1)
    assert not (tmp_path / "ran").exists()


def test_the_command_has_the_time_that_the_checkout_left() -> None:
    command = ProcessSpec(command="true", environment={}, timeout_seconds=10)
    assert time_left(command, 4000) == 6.0
    assert time_left(command, 11_000) == 0.0
    assert time_left(replace(command, timeout_seconds=None), 4000) is None


async def test_a_clock_that_is_set_during_the_checkout_takes_no_time_from_the_command(
    tmp_path: Path, repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(a="x")
    wait, now = CommandAttempt._wait, SystemClock.now

    async def set_as_it_ends(self: CommandAttempt, *running: Any) -> ProcessExit:
        exited = await wait(self, *running)
        monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + 120_000)
        return exited

    monkeypatch.setattr(CommandAttempt, "_wait", set_as_it_ends)
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do("cat", "a.txt", repository_url=repository.url, timeout_seconds=60)
    assert log.result.outcome is Outcome.SUCCESS


async def test_a_worker_that_stops_gives_the_checkout_back_with_its_output(tmp_path: Path) -> None:
    async with working(tmp_path, drain_seconds=0) as bench:
        job_id, pid = await begin_waiting(bench)
        bench.worker.stop()
        await bench.work
        job = await bench.services.jobs.get_job(job_id)
        assert (job.state, job.attempt, job.life.handed_back) == (JobState.SCHEDULED, 1, 0)
        await until_gone(pid)


# Credentials


async def test_the_start_of_a_job_is_logged_with_its_repository_but_not_its_credentials(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as bench:
        with capture_logs() as logs:
            log = await bench.do("true", repository_url=f"https://me:{TOKEN}@127.0.0.1:1/some/where.git")
    assert log.result.outcome is Outcome.FAILURE
    (start,) = [line for line in logs if line["event"] == "job.start"]
    assert start["repository"] == "https://********@127.0.0.1:1/some/where.git"
    assert TOKEN not in str(logs)


def git_environment(url: str, **environment: str) -> dict[str, str]:
    command = ProcessSpec(command="true", environment={**PATH, **environment})
    return dict(checkout_spec(JobParams(repository_url=url), command, CheckoutRules()).environment)


def filled_in(url: str, requested: str, **environment: str) -> str:
    """What git itself would answer a server with."""
    done = subprocess.run(
        ["git", "credential", "fill"],
        env=git_environment(url, **environment),
        input=f"url={requested}\n\n",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_credentials_reach_git_for_their_own_host_only() -> None:
    url = f"https://me:{TOKEN}@git.example.org/a.git"
    assert f"username=me\npassword={TOKEN}\n" in filled_in(url, "https://git.example.org/a.git")
    assert filled_in(url, "https://evil.example/a.git") == ""
    assert filled_in("https://git.example.org/a.git", "https://git.example.org/a.git") == ""
    assert f"username={TOKEN}\npassword=\n" in filled_in(
        f"https://{TOKEN}@git.example.org/a", "https://git.example.org/a"
    )


def test_a_job_may_bring_a_credential_helper_of_its_own() -> None:
    configured = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "credential.helper",
        "GIT_CONFIG_VALUE_0": "!echo username=own; echo password=secret; #",
    }
    url = "https://git.example.org/a"
    assert "username=own\npassword=secret" in filled_in(url, url, **configured)


def test_no_other_credential_helper_is_asked(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        '[credential]\n\thelper = "!echo username=of; echo password=others; #"\n'
    )
    url = "https://git.example.org/a"
    assert filled_in(url, url, GIT_CONFIG_GLOBAL=str(tmp_path / "config")) == ""


def test_credentials_are_in_no_argument() -> None:
    command = ProcessSpec(command="true", environment=PATH)
    params = JobParams(repository_url=f"https://me:{TOKEN}@git.example.org/a.git")
    spec = checkout_spec(params, command, CheckoutRules())
    assert TOKEN not in " ".join((spec.command, *spec.args))
    assert "https://git.example.org/a.git" in spec.args


async def test_a_server_gets_the_credentials_and_nobody_else_sees_them(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        status = b"403 Forbidden" if b"Authorization" in requests[-1] else b"401 Unauthorized"
        challenge = b'WWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
        writer.write(b"HTTP/1.1 %s\r\n%s" % (status, challenge))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    url = f"https://me:{TOKEN}@127.0.0.1:{port}/a.git"
    # git itself would show what it sends: the redaction must not let it.
    talkative = {"GIT_SSL_CAINFO": str(tmp_path / "ca.pem"), "GIT_TRACE_CURL": "1", "GIT_TRACE_REDACT": "0"}
    async with server, working(tmp_path) as bench:
        job_id = await bench.submit("true", repository_url=url, environment=talkative)
        log = await bench.log_of(job_id)
        (listed,) = (await bench.services.jobs.list_jobs(JobQuery())).jobs
    encoded = base64.b64encode(f"me:{TOKEN}".encode())
    assert [b"Basic " + encoded in request for request in requests] == [False, True]
    assert b"Authorization: Basic" in log.output()
    assert (
        log.result.error_message == f"cannot check out https://127.0.0.1:{port}/a.git: exited with code 128"
    )
    everything = repr((log.job, log.events, listed)).encode()
    assert TOKEN.encode() not in everything
    assert encoded not in everything
    assert log.job.params.repository_url == f"https://********@127.0.0.1:{port}/a.git"


# What git is given


def test_only_the_protocol_of_the_address_is_spoken() -> None:
    environment = git_environment(
        "https://git.example.org/a", GIT_ALLOW_PROTOCOL="ext:file", GIT_DIR="/elsewhere"
    )
    assert environment["GIT_ALLOW_PROTOCOL"] == "https"
    assert "GIT_DIR" not in environment
    assert (environment["GIT_TERMINAL_PROMPT"], environment["GIT_CONFIG_NOSYSTEM"]) == ("0", "1")
    assert environment["GIT_SSH_COMMAND"] == "ssh -o BatchMode=yes"


async def test_an_address_cannot_be_rewritten_into_another_protocol(
    tmp_path: Path, repository: GitRepository
) -> None:
    repository.commit(a="x")
    rewriting = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.url}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.org/a",
    }
    async with working(tmp_path) as bench:
        log = await bench.do("true", repository_url="https://git.example.org/a", environment=rewriting)
    assert log.result.exit_code == 128
    assert b"transport 'file' not allowed" in log.output()


async def test_the_command_sees_nothing_of_how_git_was_called(
    tmp_path: Path, repository: GitRepository
) -> None:
    repository.commit(a="x")
    async with working(tmp_path, checkout=FILES) as bench:
        log = await bench.do("env", repository_url=repository.url)
    names = {line.split("=")[0] for line in log.output(StreamType.STDOUT).decode().splitlines()}
    ours = ("AIRUNNER_JOB_ID", "AIRUNNER_ATTEMPT", "AIRUNNER_QUEUE", "AIRUNNER_WORKER_MARK")
    assert names == {"PATH", *ours}
