"""`airunner settings` against a server: changed while it runs, and refused in a line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from airunner.client import Client
from airunner.domain.job import JobParams
from tests.acceptance.command_line import CommandLine, eventually
from tests.support.processes import unused_port

SIZE = "execution.batching.max_batch_size"
FLUSH = "execution.batching.flush_interval_seconds"


def batch_size_of_next_job(client: Client) -> int:
    job_id = client.enqueue(JobParams(command="true")).job_id
    return client.get_job(job_id).execution.batching.max_batch_size


@pytest.mark.slow
def test_settings_are_changed_while_a_server_runs(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    person = CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})
    address = ("--listen", url.removeprefix("http://"), "--data-dir", "data")
    with person.start("server", "--no-auth", *address) as server, Client(url) as client:
        server.wait_for("airunner server listening on")
        assert person.run("settings", "set", SIZE, "7").stderr.decode() == f"airunner: {SIZE} is 7\n"
        assert batch_size_of_next_job(client) == 7
        refused = person.run("settings", "set", SIZE, "51")
        assert refused.returncode != 0
        assert f"{SIZE} must be a whole number from 1 to 50, not '51'" in refused.stderr.decode()
        with closing(sqlite3.connect(tmp_path / "data" / "airunner.db")) as database, database:
            # As a person would: one a number, one nonsense.
            database.execute("INSERT INTO settings VALUES (?, 9, '')", (FLUSH,))
            database.execute("UPDATE settings SET value = 'many' WHERE name = ?", (SIZE,))
        eventually(lambda: "setting.refused" in server.err, "the value is refused")
        listed = {entry["name"]: entry for entry in person.objects("settings", "list")}
        assert (listed[FLUSH]["value"], listed[SIZE]["value"]) == ("9", "7")
        assert listed[SIZE]["changes"][0]["changed_by"] == "anonymous"
        assert batch_size_of_next_job(client) == 7
        assert client.unset_setting(SIZE).value == "50"
        assert person.text("settings", "get", SIZE) == "50"
        assert batch_size_of_next_job(client) == 50
