"""The commands about jobs: submit, get, list, monitor, cancel, retry, queues, workers."""

from __future__ import annotations

import json
import uuid

from tests.acceptance.command_line import CommandLine, eventually


def test_submit_prints_the_id_and_nothing_else(user: CommandLine) -> None:
    done = user.run("submit", "--", "echo", "hello")
    job_id = done.stdout.decode().removesuffix("\n")
    assert str(uuid.UUID(job_id)) == job_id
    assert done.stderr == b""
    [job] = user.objects("get", job_id, "--wait")
    assert (job["job_id"], job["state"], job["queue"]) == (job_id, "COMPLETED", "default")
    assert job["params"] == {"command": "echo", "args": ["hello"], "process_type": "PIPE"}


def test_submit_with_wait_exits_as_the_job(user: CommandLine) -> None:
    done = user.run("submit", "--wait", "--", "sh", "-c", "echo not shown; exit 9")
    assert done.returncode == 9
    assert len(done.stdout.splitlines()) == 1


def test_the_same_request_id_gives_the_same_job(user: CommandLine) -> None:
    options = ("submit", "--request-id", str(uuid.uuid4()), "--", "true")
    assert user.text(*options) == user.text(*options)


def test_list_filters_and_pages(user: CommandLine) -> None:
    jobs = [user.text("submit", "--queue", "listed", "--", "true") for _ in range(3)]
    *page, more = user.objects("list", "--queue", "listed", "--state", "scheduled", "--page-size", "2")
    assert [job["job_id"] for job in page] == jobs[:0:-1]
    *rest, end = user.objects("list", "--queue", "listed", "--cursor", more["next_cursor"])
    assert [job["job_id"] for job in rest] == jobs[:1]
    assert (end["type"], end["next_cursor"]) == ("page", "")
    assert user.text("list", "--queue", "listed", "--state", "failed") == ""
    assert len(user.text("list", "--queue", "listed").splitlines()[0].split("\t")) == 5


def test_a_list_says_which_of_its_jobs_are_abridged(user: CommandLine) -> None:
    small = user.text("submit", "--queue", "abridged", "--", "true")
    large = user.text("submit", "--queue", "abridged", "--", "echo", "x" * 5_000)
    *jobs, _ = user.objects("list", "--queue", "abridged")
    assert [(job["job_id"], job["abridged"]) for job in jobs] == [(large, True), (small, False)]
    assert jobs[0]["params"] == {"command": "echo", "process_type": "PIPE"}
    [whole] = user.objects("get", large)
    assert (whole["abridged"], whole["params"]["args"]) == (False, ["x" * 5_000])


def test_an_unknown_state_is_a_usage_error(user: CommandLine) -> None:
    done = user.run("list", "--state", "sleeping")
    assert done.returncode == 2
    assert b"scheduled, running, completed, failed, cancelled" in done.stderr


def test_a_running_job_is_cancelled(user: CommandLine) -> None:
    job_id = user.text("submit", "--", "sleep", "600")
    eventually(lambda: user.objects("get", job_id)[0]["state"] == "RUNNING", "the job runs")
    assert user.run("cancel", job_id).returncode == 0
    [job] = user.objects("get", job_id, "--wait")
    assert (job["state"], job["result"]["outcome"]) == ("CANCELLED", "CANCELLED")


def test_a_job_that_has_ended_can_be_retried(user: CommandLine) -> None:
    job_id = user.text("submit", "--", "sh", "-c", "exit 4")
    user.text("get", job_id, "--wait")
    again = user.text("retry", job_id)
    [job] = user.objects("get", again, "--wait")
    assert again != job_id
    assert (job["retried_from"], job["result"]["exit_code"]) == (job_id, 4)


def test_monitor_replays_a_job_from_anywhere(user: CommandLine) -> None:
    job_id = user.text("submit", "--", "sh", "-c", "seq 1 100; echo bad >&2")
    done = user.run("monitor", job_id)
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 101)).encode()
    assert done.stderr == b"bad\n"
    events = user.objects("monitor", job_id, "--from-sequence", "99", "--event-type", "output")
    assert [event["sequence"] for event in events] == [99, 100, 101, 102]
    assert [event["output"] for event in events] == ["98\n", "99\n", "100\n", "bad\n"]
    assert {event["stream"] for event in events} == {"stdout", "stderr"}
    since = events[-1]["timestamp"]
    later = user.objects("monitor", job_id, "--from-timestamp", since, "--event-type", "process_end")
    assert [event["event_type"] for event in later] == ["PROCESS_END"]
    assert user.run("monitor", job_id, "--attempt", "2").stdout == b""


def test_monitor_without_follow_shows_what_is_there(user: CommandLine) -> None:
    job_id = user.text("submit", "--", "sh", "-c", "echo begun; exec sleep 600")

    def shown() -> bytes:
        return user.run("monitor", "--no-follow", job_id).stdout

    eventually(lambda: shown() == b"begun\n", "the first line is stored")
    user.text("cancel", job_id)


def test_monitor_can_show_the_time_and_play_back(user: CommandLine) -> None:
    job_id = user.text("submit", "--wait", "--", "sh", "-c", "echo one; echo two")
    first, second = user.text("monitor", "--timestamps", job_id).splitlines()
    assert (first[10], first[23:], second[23:]) == ("T", "Z one", "Z two")
    assert user.text("monitor", "--speed", "4x", job_id) == "one\ntwo"
    assert user.run("monitor", "--slow", "--fast", job_id).returncode == 2


def test_a_queue_can_be_paused_and_resumed(user: CommandLine) -> None:
    user.text("queues", "pause", "default")
    job_id = user.text("submit", "--", "true")
    [queue] = [queue for queue in user.objects("queues") if queue["name"] == "default"]
    assert (queue["paused"], queue["scheduled"], queue["paused_by"]) == (True, 1, "anonymous")
    assert "paused by anonymous" in user.text("queues")
    user.text("queues", "resume", "default")
    [queue] = [queue for queue in user.objects("queues") if queue["name"] == "default"]
    assert (queue["paused"], queue["paused_by"], queue["paused_at"]) == (False, "", "")
    assert user.objects("get", job_id, "--wait")[0]["state"] == "COMPLETED"


def test_workers_shows_who_is_there(user: CommandLine) -> None:
    user.text("submit", "--wait", "--", "true")
    (shared,) = [worker for worker in user.objects("workers") if worker["worker_id"] == "shared"]
    assert (shared["handlers"], shared["more_handlers"], shared["commands"]) == ([], 0, True)


def test_an_unknown_job_is_exit_code_5(user: CommandLine) -> None:
    for command in ("get", "cancel", "monitor", "retry"):
        done = user.run(command, str(uuid.uuid4()))
        assert (done.returncode, done.stdout) == (5, b""), done.stderr
        assert done.stderr.startswith(b"airunner: ")


def test_a_malformed_id_is_exit_code_2(user: CommandLine) -> None:
    done = user.run("get", "not-a-uuid")
    assert done.returncode == 2
    assert done.stderr == b"airunner: job_id must be a UUID\n"


def test_a_server_that_is_not_there_is_exit_code_125(person: CommandLine) -> None:
    done = person.run("list", "--server", "http://127.0.0.1:1")
    assert done.returncode == 125
    assert b"127.0.0.1:1" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_disaster(user: CommandLine) -> None:
    job_id = user.text("submit", "--wait", "--", "seq", "1", "20000")
    done = user.run("monitor", job_id, "--json")
    assert json.loads(done.stdout.splitlines()[0])["event_type"] == "PROCESS_START"
    assert len(done.stdout.splitlines()) == 20_002
