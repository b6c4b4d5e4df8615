"""What batching saves, counted in the database of a real server."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.acceptance.command_line import CommandLine


def test_ten_thousand_lines_of_an_unwatched_job_are_at_most_205_event_writes(tmp_path: Path) -> None:
    person = CommandLine(folder=tmp_path)
    with person.start("server", "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", "data") as server:
        url = server.wait_for("airunner server listening on ")
        job_id = person.text("submit", "--server", url, "--", "seq", "10000")
        assert person.run("worker", "--server", url, "--once").returncode == 0
        shown = person.run("monitor", "--server", url, job_id)
        assert shown.stdout == b"".join(b"%d\n" % number for number in range(1, 10_001))
    with closing(sqlite3.connect(tmp_path / "data" / "airunner.db")) as database:
        writes, last = database.execute("SELECT count(*), max(last_sequence) FROM job_events").fetchone()
    assert writes <= 205
    assert last == 10_002
