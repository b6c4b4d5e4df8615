"""`airunner run`: a job that behaves like the command itself."""

from __future__ import annotations

import json
import os
import signal

from tests.acceptance.command_line import CommandLine, eventually


def test_output_comes_on_its_streams_and_the_exit_code_is_the_job_s(user: CommandLine) -> None:
    done = user.run("run", "--", "sh", "-c", "echo out; echo err >&2; printf 'no newline'; exit 7")
    assert done.stdout == b"out\nno newline"
    assert done.stderr == b"err\n"
    assert done.returncode == 7


def test_every_byte_arrives_as_it_was_written(user: CommandLine) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40)"
    done = user.run("run", "--", "python3", "-c", script)
    assert done.stdout == bytes(range(256)) * 40
    assert done.stderr == b""
    assert done.returncode == 0


def test_what_is_piped_in_is_refused_and_not_swallowed(user: CommandLine) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"echo hi\n")
    os.close(writer)
    for command in ("run", "submit"):
        done = user.run_reading(reader, command, "--queue", "piped-in", "--", "sh")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"airunner: there is data on standard input" in done.stderr
    os.close(reader)
    [page] = user.objects("list", "--queue", "piped-in")
    assert page["type"] == "page", "nothing was added"


def test_a_pipe_that_is_open_and_silent_keeps_nobody_waiting(user: CommandLine) -> None:
    reader, writer = os.pipe()
    done = user.run_reading(reader, "run", "--", "cat")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    os.close(reader)
    os.close(writer)


def test_arguments_after_the_dashes_belong_to_the_command(user: CommandLine) -> None:
    done = user.run("run", "--", "printf", "%s|", "--json", "--help", "", "a b", "--", "-x")
    assert done.stdout == b"--json|--help||a b|--|-x|"


def test_a_command_that_cannot_start_is_a_clear_failure(user: CommandLine) -> None:
    done = user.run("run", "--", "/no/such/command")
    assert done.returncode == 127
    assert done.stdout == b""
    assert b"/no/such/command" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_job_that_takes_too_long_ends_with_124(user: CommandLine) -> None:
    done = user.run("run", "--timeout", "1", "--", "sh", "-c", "echo begun; exec sleep 600")
    assert done.returncode == 124
    assert done.stdout == b"begun\n"
    assert b"TIMEOUT" in done.stderr


def test_variables_reach_the_job_and_secrets_do_not_show(user: CommandLine) -> None:
    show = 'echo "$PLAIN $PASSED $HIDDEN $AIRUNNER_SERVER"'
    options = ("--env", "PLAIN=one", "--env", "PASSED", "--secret", "HIDDEN")
    done = user.run("run", *options, "--json", "--", "sh", "-c", show, PASSED="two", HIDDEN="three-secret")
    *_, job = map(json.loads, done.stdout.splitlines())
    events = [json.loads(line) for line in done.stdout.splitlines()]
    output = [event["output"] for event in events if event.get("event_type") == "OUTPUT"]
    assert output[0].startswith("one two ")
    assert job["type"] == "job"
    assert job["params"]["environment"] == {"PLAIN": "one", "PASSED": "two", "HIDDEN": "********"}


def test_a_secret_that_is_not_set_is_a_usage_error(user: CommandLine) -> None:
    done = user.run("run", "--secret", "NOT_SET_ANYWHERE", "--", "true")
    assert done.returncode == 2
    assert b"NOT_SET_ANYWHERE" in done.stderr


def test_no_command_is_a_usage_error(user: CommandLine) -> None:
    done = user.run("run")
    assert done.returncode == 2
    assert b"no command" in done.stderr


def test_a_terminal_can_be_asked_for(user: CommandLine) -> None:
    done = user.run("run", "--pty", "--", "sh", "-c", "test -t 1 && echo terminal; echo also >&2")
    assert done.stdout.splitlines() == [b"terminal", b"also"]
    assert done.returncode == 0


def test_the_last_line_of_json_is_the_job(user: CommandLine) -> None:
    done = user.run("run", "--json", "--", "sh", "-c", "echo hello; exit 3")
    *events, job = map(json.loads, done.stdout.splitlines())
    assert [event["event_type"] for event in events] == ["PROCESS_START", "OUTPUT", "PROCESS_END"]
    assert [event["sequence"] for event in events] == [1, 2, 3]
    assert job["state"] == "FAILED"
    assert job["result"]["outcome"] == "FAILURE"
    assert done.returncode == job["result"]["exit_code"] == 3


def test_ctrl_c_detaches_and_tells_how_to_go_on(user: CommandLine) -> None:
    with user.start("run", "--", "sh", "-c", "echo begun; exec sleep 600") as running:
        eventually(lambda: running.out == b"begun\n", "the job has begun")
        running.send(signal.SIGINT)
        assert running.ended() == 130
        job_id = running.err.partition("airunner cancel ")[2].partition("'")[0]
        assert user.objects("get", job_id)[0]["state"] == "RUNNING"
        assert "Traceback" not in running.err
        user.text("cancel", job_id)
