"""Batching by the server's settings and by the job's own, under a worker that knows of neither."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from airunner.client import Client
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from tests.acceptance.command_line import CommandLine
from tests.support.processes import unused_port


@contextmanager
def server_at(person: CommandLine, port: int, **batching: str) -> Iterator[None]:
    """The server of one data folder and address, with these settings."""
    variables = {f"AIRUNNER_EXECUTION__BATCHING__{name.upper()}": value for name, value in batching.items()}
    where = ("--listen", f"127.0.0.1:{port}", "--data-dir", "data")
    with person.start("server", "--no-auth", *where, **variables) as server:
        server.wait_for("airunner server listening on")
        yield


def stored_sizes(database: Path, job_id: str) -> list[int]:
    """How many events each stored entry of output holds."""
    rows = """
        SELECT stored.last_sequence - stored.first_sequence + 1
        FROM job_events AS stored JOIN jobs ON jobs.id = stored.job
        WHERE jobs.job_id = ? ORDER BY stored.first_sequence
    """
    with closing(sqlite3.connect(database)) as connection:
        return [size for (size,) in connection.execute(rows, (UUID(job_id).bytes,))][
            1:-1
        ]  # without start and end


def batching_of(url: str, job_id: str) -> BatchingConfig:
    with Client(url) as client:
        return client.get_job(job_id).execution.batching


@pytest.mark.slow
def test_new_settings_reach_the_next_job_and_no_worker_is_touched(tmp_path: Path) -> None:
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    person = CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})
    database = tmp_path / "data" / "airunner.db"
    with ExitStack() as until_the_end:
        with server_at(person, port, max_batch_size="40", adaptive="false"):
            worker = until_the_end.enter_context(person.start("worker"))
            worker.wait_for("airunner worker serves")
            first = person.text("submit", "--wait", "--", "seq", "80")
            person.text("queues", "pause", "default")
            waiting = person.text("submit", "--", "seq", "80")
        with server_at(person, port, max_batch_size="16", adaptive="true"):
            person.text("queues", "resume", "default")
            person.text("get", "--wait", waiting)
            following = person.text("submit", "--wait", "--", "seq", "80")
            batchings = [batching_of(url, job_id) for job_id in (first, waiting, following)]
        assert worker.process.poll() is None
    old, new = BatchingConfig(max_batch_size=40, adaptive=False), BatchingConfig(max_batch_size=16)
    assert batchings == [old, old, new]
    assert stored_sizes(database, first) == stored_sizes(database, waiting) == [40, 40]
    assert stored_sizes(database, following) == [16] * 5


def test_a_job_asks_for_other_batching_by_options(user: CommandLine) -> None:
    options = ("--flush-interval", "7", "--max-batch-size", "1", "--max-batch-bytes", "2048", "--no-adaptive")
    others = ("--playback-interval", "20", "--heartbeat-interval", "9")
    job_id = user.text("submit", "--wait", *options, *others, "--", "seq", "3")
    expected = BatchingConfig(
        flush_interval_seconds=7,
        max_batch_size=1,
        max_batch_bytes=2048,
        playback_interval_millis=20,
        adaptive=False,
    )
    with Client(user.variables["AIRUNNER_SERVER"]) as client:
        execution = client.get_job(job_id).execution
    assert execution == ExecutionConfig(batching=expected, heartbeat_interval_seconds=9)
    assert stored_sizes(user.folder / "data" / "airunner.db", job_id) == [1, 1, 1]
    plain = user.text("submit", "--wait", "--", "true")
    assert batching_of(user.variables["AIRUNNER_SERVER"], plain) == BatchingConfig()


def test_a_job_has_an_owner_and_metadata_by_options(user: CommandLine) -> None:
    told = ("--owner", "ann", "--metadata", "team=build", "--metadata", "note=two words")
    job_id = user.text("submit", *told, "--", "true")
    shown = user.text("get", job_id).splitlines()
    assert {"owner\tann", "metadata\t'note=two words' team=build"} <= set(shown)
    assert "by ann" in user.text("why", job_id)


def test_options_beyond_the_limits_are_refused(user: CommandLine) -> None:
    for option, value in (
        ("--max-batch-size", "51"),
        ("--flush-interval", "0"),
        ("--max-batch-bytes", "1"),
        ("--playback-interval", "60001"),
        ("--heartbeat-interval", "43201"),
        ("--metadata", "team"),
    ):
        done = user.run("run", option, value, "--", "true")
        assert done.returncode == 2
        assert b"must be" in done.stderr
