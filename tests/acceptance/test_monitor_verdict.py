"""What `airunner monitor` proves about a log, on a real server whose database somebody damages."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from uuid import UUID

from tests.acceptance.command_line import AIRUNNER, LIMIT_SECONDS, CommandLine, environment, eventually

FIND = """
    SELECT job_events.id, payload FROM job_events JOIN jobs ON jobs.id = job
    WHERE jobs.job_id = ? AND ? BETWEEN first_sequence AND job_events.last_sequence
"""


def damage(user: CommandLine, job_id: str, sequence: int, change: Callable[[bytes], bytes | None]) -> None:
    """Change what is stored with this event, behind the server's back; None deletes it."""
    file = user.folder / "data" / "airunner.db"
    with closing(sqlite3.connect(file, timeout=LIMIT_SECONDS)) as database, database:
        row, payload = database.execute(FIND, (UUID(job_id).bytes, sequence)).fetchone()
        changed = change(payload)
        assert changed != payload
        if changed is None:
            database.execute("DELETE FROM job_events WHERE id = ?", (row,))
        else:
            database.execute("UPDATE job_events SET payload = ? WHERE id = ?", (changed, row))


def hundred_lines(user: CommandLine) -> str:
    """A job of 102 events, whose output is in batches of 50."""
    return user.finish("seq", "100")


def test_a_whole_log_is_complete(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    done = user.run("monitor", job_id, "--verify")
    assert done.stderr == b"airunner: complete: 102 events, output digest matches\n"
    assert done.returncode == 0
    *events, verdict = user.objects("monitor", job_id, "--verify")
    assert {event["type"] for event in events} == {"event"}
    assert len(events) == 102
    assert verdict == {
        "v": 1,
        "type": "verdict",
        "job_id": job_id,
        "verdict": "complete",
        "text": "complete: 102 events, output digest matches",
        "attempt": 1,
        "events": 102,
        "missing": [],
    }
    quiet = user.run("monitor", job_id)
    assert (quiet.stderr, quiet.returncode) == (b"", 0)


def test_a_job_that_cannot_start_has_a_whole_log_too(user: CommandLine) -> None:
    job_id = user.finish("/no/such/command")
    assert user.objects("monitor", job_id, "--verify")[-1]["verdict"] == "complete"


def test_whoever_asks_for_less_has_a_part(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    later = user.run("monitor", job_id, "--verify", "--from-sequence", "90")
    assert later.stderr == b"airunner: partial: from event 90\n"
    some = user.run("monitor", job_id, "--verify", "--event-type", "output")
    assert some.stderr == b"airunner: partial: only some types of events\n"
    none = user.run("monitor", job_id, "--verify", "--from-timestamp", "2200-01-01")
    assert none.stderr == b"airunner: partial: there are no such events\n"
    assert later.returncode == some.returncode == none.returncode == 0


def test_an_attempt_that_still_runs_is_unfinished(user: CommandLine) -> None:
    job_id = user.enqueue("sh", "-c", "echo begun; exec sleep 600")
    expected = b"airunner: unfinished: attempt 1 has no end, 2 events so far\n"

    def told() -> bool:
        return user.run("monitor", job_id, "--verify", "--no-follow").stderr == expected

    eventually(told, "both events are stored")
    user.text("cancel", job_id)


def test_what_is_missing_is_told_without_asking(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    damage(user, job_id, 60, lambda _: None)
    done = user.run("monitor", job_id)
    assert done.stderr == b"airunner: gap: events 52 to 101 of attempt 1 are missing\n"
    assert done.returncode == 1
    told = user.run("monitor", job_id, "--json")
    verdict = json.loads(told.stdout.splitlines()[-1])
    assert (verdict["type"], verdict["verdict"]) == ("verdict", "gap")
    assert verdict["missing"] == [{"attempt": 1, "first": 52, "last": 101}]
    assert told.returncode == 1


def test_of_several_logs_the_worst_decides(user: CommandLine) -> None:
    whole, holed = hundred_lines(user), hundred_lines(user)
    damage(user, holed, 60, lambda _: None)
    done = user.run("monitor", holed, whole)
    label = holed[-6:]
    assert f"airunner: {label}: gap: events 52 to 101 of attempt 1 are missing\n" in done.stderr.decode()
    assert done.returncode == 1


def test_a_log_that_lost_its_end_has_a_gap(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    damage(user, job_id, 102, lambda _: None)
    done = user.run("monitor", job_id)
    assert done.stderr == b"airunner: gap: event 102 of attempt 1 is missing\n"
    assert done.returncode == 1


def test_a_batch_that_cannot_be_decoded_is_a_gap(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    damage(user, job_id, 2, lambda _: b"\xff")
    done = user.run("monitor", job_id)
    assert done.stdout == b"".join(b"%d\n" % number for number in range(51, 101))
    assert done.stderr.splitlines()[-1] == b"airunner: gap: events 2 to 51 of attempt 1 are missing"
    assert done.returncode == 1


def test_output_that_was_changed_is_noticed(user: CommandLine) -> None:
    job_id = user.finish("echo", "hello")
    damage(user, job_id, 2, lambda payload: payload.replace(b"hello", b"hallo"))
    done = user.run("monitor", job_id)
    assert done.stdout == b"hallo\n"
    assert done.stderr == b"airunner: mismatch: the output of attempt 1 has another digest than its end\n"
    assert done.returncode == 1


def test_at_a_terminal_the_verdict_is_the_last_line(user: CommandLine) -> None:
    job_id = hundred_lines(user)
    assert on_terminal(user, "monitor", job_id)[-1] == "complete: 102 events, output digest matches"
    assert not any("complete" in line for line in on_terminal(user, "run", "--", "true"))


def on_terminal(user: CommandLine, *arguments: str) -> list[str]:
    """Run a command whose standard error is a terminal; return what it said there."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(
            [*AIRUNNER, *arguments],
            cwd=user.folder,
            env=environment(**user.variables, NO_COLOR="1", TERM="dumb"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        printed = terminal.read(65_536)
        os.close(theirs)
    assert done.returncode == 0
    return printed.decode().splitlines()
