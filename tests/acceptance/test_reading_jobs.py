"""`airunner logs` and `airunner why` on a real server: what was printed, and why a job is where it is."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.acceptance.command_line import AIRUNNER, LIMIT_SECONDS, CommandLine, environment, eventually

MIXED = "echo first; echo Error one >&2; printf 'no error'; exit 3"


@pytest.fixture(scope="module")
def mixed(user: CommandLine) -> str:
    """A job with three lines, the second on standard error and the third without an end."""
    return user.finish("sh", "-c", MIXED)


def at_terminal(user: CommandLine, *arguments: str, **variables: str) -> str:
    """Run a command whose standard output is a terminal; return what it showed there."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(
            [*AIRUNNER, *arguments],
            cwd=user.folder,
            env=environment(**user.variables, TERM="xterm-256color", **variables),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        shown = terminal.read(65_536)
        os.close(theirs)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("options", "printed", "code"),
    [
        ((), b"first\nError one\nno error", 0),
        (("--grep", "error"), b"no error", 0),
        (("--grep", "error", "--ignore-case"), b"Error one\nno error", 0),
        (("--grep", "error", "--ignore-case", "--invert"), b"first\n", 0),
        (("--grep", "^no|^fi"), b"first\nno error", 0),
        (("--grep", "absent"), b"", 1),
        (("--stream", "stderr"), b"Error one\n", 0),
        (("--stream", "stdout", "--tail", "1"), b"no error", 0),
        (("--stream", "stdout", "--tail", "2"), b"first\nno error", 0),
        (("--attempt", "1", "--tail", "1"), b"no error", 0),
        (("--attempt", "2"), b"", 0),
    ],
)
def test_logs_are_chosen(
    user: CommandLine, mixed: str, options: tuple[str, ...], printed: bytes, code: int
) -> None:
    done = user.run("logs", mixed, *options)
    # The streams are two pipes: which of them the worker reads first is not known.
    lines = sorted(done.stdout.splitlines())
    assert (lines, done.stderr, done.returncode) == (sorted(printed.splitlines()), b"", code)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grep", "("), "'(' is not a regular expression"),
        (("--invert",), "--ignore-case and --invert need --grep"),
        (("--tail", "0"), "--tail must be at least 1"),
        (("--stream", "stdin"), "--stream"),
    ],
)
def test_wrong_usage_of_logs_is_told(
    user: CommandLine, mixed: str, options: tuple[str, ...], message: str
) -> None:
    done = user.run("logs", mixed, *options)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_logs_do_not_wait_for_more(user: CommandLine) -> None:
    job_id = user.enqueue("sh", "-c", "echo begun; exec sleep 600")
    eventually(lambda: user.run("logs", job_id).stdout == b"begun\n", "the line is stored")
    user.text("cancel", job_id)


def test_logs_have_times_and_objects(user: CommandLine, mixed: str) -> None:
    timed = user.run("logs", mixed, "--timestamps", "--grep", "first").stdout
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT[\d:.]+Z first\n", timed)
    (line,) = user.objects("logs", mixed, "--stream", "stderr")
    assert (line["type"], line["stream"], line["output"]) == ("line", "stderr", "Error one\n")
    assert (line["job_id"], line["attempt"]) == (mixed, 1)


def test_matches_are_marked_on_a_terminal_that_has_colours(user: CommandLine, mixed: str) -> None:
    marked = at_terminal(user, "logs", mixed, "--grep", "irs")
    assert "f\x1b[1;7mirs\x1b[22;27mt\n" in marked
    assert at_terminal(user, "logs", mixed, "--grep", "irs", NO_COLOR="1") == "first\n"


def test_logs_of_an_unknown_job(user: CommandLine) -> None:
    assert user.run("logs", "00000000-0000-0000-0000-000000000000").returncode == 5


def test_why_tells_how_a_job_failed(user: CommandLine, mixed: str) -> None:
    *entries, answer = user.text("why", mixed).splitlines()
    assert answer == "It failed because its process ended with exit code 3."
    told = [entry.partition("\t")[2] for entry in entries]
    assert told[0] == "enqueued in queue default"
    assert told[1].startswith("attempt 1 began on worker shared, pid ")
    assert re.fullmatch(r"attempt 1 ended after \d.\d s: exit code 3", told[2])
    assert told[3] == "the job is FAILED: exited with code 3"
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z\t", entry) for entry in entries)


def test_why_tells_what_a_job_waits_for(user: CommandLine) -> None:
    first = user.text("submit", "--queue", "nobody", "--", "true")
    job_id = user.text("submit", "--queue", "nobody", "--", "true")
    (why,) = user.objects("why", job_id)
    assert (why["type"], why["state"], why["reason"]) == ("why", "SCHEDULED", "no_worker")
    assert [entry["kind"] for entry in why["entries"]] == ["enqueued", "behind"]
    user.text("queues", "pause", "nobody")
    answer = user.text("why", first).splitlines()[-1]
    assert answer.startswith("It waits because queue nobody was paused by anonymous at 20")
    user.text("cancel", first)
    assert "by anonymous at 20" in user.text("why", first).splitlines()[-1]
    assert " by anonymous" in user.text("get", first)
    assert [job["cancelled_by"] for job in user.objects("get", first)] == ["anonymous"]
    later = user.text("submit", "--queue", "later", "--delay", "600", "--", "true")
    assert user.objects("why", later)[0]["reason"] == "delayed"


def test_why_at_a_terminal_is_aligned_and_safe(user: CommandLine) -> None:
    job_id = user.finish("/no/such\x1b[2Jthing")
    shown = at_terminal(user, "why", job_id)
    assert "\x1b" not in shown
    assert re.search(r"^\S{24}  attempt 1 could not begin: ", shown, re.MULTILINE)
