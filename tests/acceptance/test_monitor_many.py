"""`airunner monitor` with several jobs, and with the keys of a playback, at a real terminal."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.acceptance.command_line import AIRUNNER, CommandLine, environment
from tests.support.terminals import Terminal, terminal

RECORDED = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.25; done"


@contextmanager
def at_terminal(user: CommandLine, *arguments: str, **variables: str) -> Iterator[Terminal]:
    with terminal([*AIRUNNER, *arguments], user.folder, environment(**user.variables), **variables) as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(user: CommandLine) -> str:
    """A job that took two seconds."""
    return user.finish("sh", "-c", RECORDED)


def submit(user: CommandLine, script: str) -> str:
    return user.enqueue("sh", "-c", script)


def test_several_jobs_are_told_apart(user: CommandLine) -> None:
    jobs = [
        submit(user, f"for i in $(seq 50); do echo {name} $i; done; echo bad {name} >&2") for name in "ab"
    ]
    done = user.run("monitor", *jobs, jobs[0])
    lines = done.stdout.decode().splitlines()
    for name, job_id in zip("ab", jobs, strict=True):
        label = job_id[-6:]
        assert [line for line in lines if line.startswith(f"{label} │ ")] == [
            f"{label} │ {name} {number}" for number in range(1, 51)
        ]
        assert f"{label} │ bad {name}\n" in done.stderr.decode()
        assert f"airunner: job {job_id} is COMPLETED\n" in done.stderr.decode()
    assert len(lines) == 100
    assert done.returncode == 0


def test_lines_of_several_jobs_never_mix(user: CommandLine) -> None:
    pieces = "for i in 1 2 3 4 5; do printf 'some '; sleep 0.1; done; echo done"
    jobs = [submit(user, pieces) for _ in range(3)]
    lines = user.run("monitor", *jobs).stdout.decode().splitlines()
    assert sorted(line.partition(" │ ")[2] for line in lines) == ["some " * 5 + "done"] * 3


def test_several_jobs_as_objects_and_verdicts(user: CommandLine) -> None:
    jobs = [submit(user, "echo hello") for _ in range(2)]
    done = user.run("monitor", *jobs, "--json", "--verify")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = {entry["job_id"]: entry["verdict"] for entry in objects if entry["type"] == "verdict"}
    assert verdicts == dict.fromkeys(jobs, "complete")
    plain = user.run("monitor", *jobs, "--verify")
    for job_id in jobs:
        assert f"airunner: {job_id[-6:]}: complete: 3 events, " in plain.stderr.decode()


def test_a_job_that_is_not_there_is_told_before_anything(user: CommandLine, recorded: str) -> None:
    done = user.run("monitor", recorded, "00000000-0000-0000-0000-000000000000")
    assert (done.returncode, done.stdout) == (5, b"")
    assert user.run("monitor", recorded, recorded, "--playback").returncode == 2


def test_prefixes_have_colours_of_their_own(user: CommandLine) -> None:
    one, two = (submit(user, f"echo {name}; echo {name} >&2") for name in "ab")
    with at_terminal(user, "monitor", one, two) as shown:
        assert shown.ended() == 0
    assert f"\x1b[36m{one[-6:]} │ \x1b[0ma\n" in shown.screen
    assert f"\x1b[32m{two[-6:]} │ \x1b[0mb\n" in shown.screen
    assert f"\x1b[32m{two[-6:]} │ \x1b[0m\x1b[31mb\x1b[0m\n" in shown.screen
    with at_terminal(user, "monitor", one, two, NO_COLOR="1") as plain:
        assert plain.ended() == 0
    assert f"{one[-6:]} │ a\n" in plain.screen
    assert "\x1b[3" not in plain.screen


@pytest.mark.parametrize(("seek", "first"), [("1", 5), ("1.2s", 6), ("100%", 9), ("50%", 5)])
def test_a_playback_begins_where_it_is_told_to(
    user: CommandLine, recorded: str, seek: str, first: int
) -> None:
    done = user.run("monitor", recorded, "--seek", seek, "--speed", "100x", "--verify")
    shown = [int(line.removeprefix("line ")) for line in done.stdout.decode().splitlines()]
    # The job's own sleeps are not exact.
    assert shown in ([*range(first, 9)], [*range(first + 1, 9)])
    assert done.stderr == b"airunner: complete: 10 events, output digest matches\n"


def test_keys_govern_a_playback(user: CommandLine, recorded: str) -> None:
    with at_terminal(user, "monitor", recorded, "--playback", "--speed", "0.1x") as shown:
        shown.until_shown("line 1\n")
        assert shown.settings != shown.settings_before
        shown.type(b" ")
        shown.until_shown("paused, 0.1x")
        shown.type(b"++++++++")
        shown.until_shown("paused, 25.6x")
        shown.type(b" ")
        shown.until_shown("is COMPLETED")
        assert shown.ended() == 0
        assert shown.settings == shown.settings_before
    assert re.findall(r"line \d", shown.screen) == [f"line {number}" for number in range(1, 9)]
    assert "complete: 10 events" in shown.screen


def test_keys_seek_and_quit(user: CommandLine, recorded: str) -> None:
    with at_terminal(user, "monitor", recorded, "--playback", "--seek", "1") as shown:
        shown.until_shown("line 6\n")
        shown.type(b"\x1b[D")
        shown.until_shown("at 0.0 s")
        shown.until_shown("line 2\n")
        shown.type(b"q")
        assert shown.ended() == 0
        assert shown.settings == shown.settings_before
    assert "line 8" not in shown.screen
    assert "COMPLETED" not in shown.screen


def test_right_skips_to_the_end(user: CommandLine, recorded: str) -> None:
    with at_terminal(user, "monitor", recorded, "--playback", "--speed", "0.1x") as shown:
        shown.until_shown("line 1\n")
        shown.type(b"\x1b[C")
        shown.until_shown("is COMPLETED")
        assert shown.ended() == 0
    assert "line 4" not in shown.screen


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], ids=["SIGINT", "SIGTERM"]
)
def test_signals_leave_the_terminal_as_it_was(
    user: CommandLine, recorded: str, number: signal.Signals, code: int
) -> None:
    with at_terminal(user, "monitor", recorded, "--playback", "--speed", "0.1x") as shown:
        shown.until_shown("line 1\n")
        shown.process.send_signal(number)
        assert shown.ended() == code
        assert shown.settings == shown.settings_before
