"""`run` and `submit` with a repository in front of `--`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, serving
from tests.support.repositories import GitRepository


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Somebody whose worker takes repositories from files."""
    folder = tmp_path_factory.mktemp("stack")
    with serving(CommandLine(folder=folder), "--no-auth") as (_, url):
        anybody = CommandLine(folder=folder, variables={"AIRUNNER_SERVER": url})
        with anybody.start("worker", AIRUNNER_WORKER__GIT_ALLOW_FILE="true") as worker:
            worker.wait_for("airunner worker serves")
            yield anybody


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    made = GitRepository(tmp_path / "repository")
    made.commit(name="first\n")
    return made


def test_a_command_runs_in_the_repository_in_front_of_the_dashes(
    user: CommandLine, repository: GitRepository
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("branch", "kept")
    repository.commit(name="second\n")
    for options, shown in (
        ((), b"second\n"),
        (("--commit", first), b"first\n"),
        (("--commit", first[:7]), b"first\n"),
        (("--branch", "kept"), b"first\n"),
    ):
        done = user.run("run", repository.url, *options, "--", "cat", "--", "name.txt")
        assert (done.stdout, done.returncode) == (shown, 0), done.stderr
        assert b"HEAD is now at" in done.stderr


def test_a_repository_alone_is_a_job(user: CommandLine, repository: GitRepository) -> None:
    job_id = user.text("submit", "--wait", repository.url)
    (job,) = user.objects("get", job_id)
    assert (job["state"], job["params"]["repository_url"]) == ("COMPLETED", repository.url)
    assert "command" not in job["params"]


def test_a_checkout_that_fails_ends_the_run_with_its_exit_code(user: CommandLine, tmp_path: Path) -> None:
    done = user.run("run", f"file://{tmp_path}/missing", "--", "echo", "never")
    assert (done.stdout, done.returncode) == (b"", 128)
    assert b"cannot check out file://" in done.stderr


def test_credentials_of_an_address_are_masked(user: CommandLine) -> None:
    url = "https://me:hunter22@127.0.0.1:1/a.git"
    done = user.run("run", url, "--json", "--", "true")
    assert b"hunter22" not in done.stdout + done.stderr
    *_, job = map(json.loads, done.stdout.splitlines())
    assert job["params"]["repository_url"] == "https://********@127.0.0.1:1/a.git"
    listed = user.text("list", "--json")
    assert "hunter22" not in listed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("make",), b"write the command after '--'"),
        (("make", "test"), b"write the command after '--'"),
        (("ext::sh", "--", "true"), b"repository_url must be https://"),
        (("--commit", "abc1234", "--", "true"), b"need a repository_url"),
        (("https://git.example.org/a", "--branch=-b", "--", "true"), b"branch must be"),
        (
            ("https://git.example.org/a", "--working-directory", "/", "--", "true"),
            b"working_directory must be",
        ),
    ],
)
def test_what_is_no_repository_is_wrong_usage(
    user: CommandLine, arguments: tuple[str, ...], reason: bytes
) -> None:
    done = user.run("submit", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert reason in done.stderr
