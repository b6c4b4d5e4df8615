"""The frame of the command line: exit codes, errors, JSON, and what is imported when."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airunner import __version__
from airunner.cli.application import COMMANDS, build_app
from airunner.cli.execution_options import ExecutionOptions
from airunner.cli.exit_codes import ExitCode, of_error, of_result
from airunner.cli.job_options import JobOptions
from airunner.cli.main import execute
from airunner.cli.printing import print_table
from airunner.config import ConfigError
from airunner.domain import errors
from airunner.domain.job import JobResult, Outcome, ProcessType
from airunner.domain.requests import BatchingOverride, ExecutionOverride
from airunner.reading.instants import format_duration, parse_instant, to_iso
from tests.support.plain_python import run_plain

ROOT = Path(__file__).resolve().parents[2]


def subcommands(name: str) -> list[str]:
    return [word for word in build_app(command=name)[name] if not word.startswith("-")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(["x"]), 2),
        (errors.InvalidArgument(), 2),
        (errors.Unauthenticated(), 4),
        (errors.PermissionDenied(), 4),
        (errors.JobNotFound(), 5),
        (errors.DeadlineExceeded(), 124),
        (errors.Unavailable(), 125),
        (errors.InternalError(), 125),
        (errors.FailedPrecondition(), 1),
        (errors.ResourceExhausted(), 1),
        (OSError(), 1),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert of_error(error) == code


@pytest.mark.parametrize(
    ("outcome", "exit_code", "code"),
    [
        (Outcome.SUCCESS, 0, 0),
        (Outcome.FAILURE, 7, 7),
        (Outcome.FAILURE, 137, 137),
        (Outcome.FAILURE, 0, 1),
        (Outcome.FAILURE, 256, 1),
        (Outcome.TIMEOUT, 143, 124),
        (Outcome.CANCELLED, 143, 130),
        (Outcome.LOST, 0, 125),
        (Outcome.INTERRUPTED, 0, 125),
    ],
)
def test_each_end_of_a_job_has_its_exit_code(outcome: Outcome, exit_code: int, code: int) -> None:
    result = JobResult(success=outcome is Outcome.SUCCESS, outcome=outcome, exit_code=exit_code)
    assert of_result(result) == code


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["version"]) == 0
    assert capsys.readouterr() == (f"{__version__}\n", "")
    assert execute(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == __version__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verson"], 'Did you mean "version"'),
        (["version", "--jsn"], "Did you mean --json"),
        (["monitor"], "requires an argument"),
        (["list", "--page", "many"], "--page"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_word(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == ExitCode.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert all(line.startswith("airunner: ") for line in told.err.splitlines())


def test_an_interruption_while_modules_are_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "cyclopts.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-m", "airunner.cli", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, b"")


def test_help_describes_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        line = next(line for line in shown.splitlines() if line.startswith(f"│ {name} "))
        assert len(line.strip("│ ")) > len(name) + 5, f"{name} has no description"


@pytest.mark.parametrize(
    "arguments",
    [["fleet"], ["fleet", "-h"], *([name, "--help"] for name in COMMANDS if subcommands(name))],
    ids=" ".join,
)
def test_the_help_of_a_group_describes_every_command_of_it(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 0
    shown = capsys.readouterr().out
    for name in subcommands(arguments[0]):
        line = next(line for line in shown.splitlines() if line.startswith(f"│ {name} "))
        assert len(line.strip("│ ")) > len(name) + 5, f"{name} has no description"


def test_a_command_of_a_group_loads_no_other() -> None:
    program = (
        "import sys; from airunner.cli.main import execute; execute(['fleet', 'runs', '--help']); "
        "print(sorted(name for name in sys.modules if '.commands.fleet' in name))"
    )
    shown = run_plain(program).splitlines()[-1]
    assert shown == "['airunner.cli.commands.fleet', 'airunner.cli.commands.fleet_runs']"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([name], *([name, word] for word in subcommands(name))):
        assert execute([*words, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"Usage: airunner {' '.join(words)}" in shown
        assert "•" not in shown, "a line of the docstring begins like an entry of a list"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["dev", "--port", "1"], "airunner dev --help"),
        (["outbox", "status", "--nonsense"], "airunner outbox status --help"),
        (["teleport"], "airunner --help"),
    ],
)
def test_a_wrong_option_names_the_help_of_its_command(
    arguments: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == ExitCode.USAGE
    assert f"see '{where}'" in capsys.readouterr().err


def test_every_command_is_documented() -> None:
    documentation = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"`airunner {name}" in documentation, name
    for code in ExitCode:
        assert f"| {code.value} |" in documentation, code


def test_there_is_one_file_per_command_and_none_imports_another() -> None:
    files = sorted((ROOT / "src/airunner/cli/commands").glob("*.py"))
    modules = {place.partition(":")[0] for place, _ in COMMANDS.values()}
    # Commands of a group may have files of their own, which begin with the name of the group.
    names = {file.stem for file in files if file.stem.partition("_")[0] not in modules - {file.stem}}
    assert names == modules | {"__init__"}
    importing = re.compile(r"^\s*(from|import) airunner\.cli\.commands", re.MULTILINE)
    assert [file.name for file in files if importing.search(file.read_text("utf-8"))] == []


def test_light_commands_load_nothing_heavy() -> None:
    program = (
        "import sys; from airunner.cli.main import execute; execute(['version']); "
        "heavy = {'pydantic', 'rich', 'asyncio', 'structlog', 'uvicorn', 'sqlite3'}; "
        "print(sorted(sys.modules.keys() & heavy))"
    )
    printed = run_plain(program)
    assert printed.splitlines()[1] == "[]"


def test_commands_begin_without_looking_for_cycles() -> None:
    program = (
        "import atexit, gc; from airunner.cli.main import main; before = gc.get_stats()[0]['collections']; "
        "atexit.register(lambda: print(gc.get_stats()[0]['collections'] - before)); "
        "main(['version'])"
    )
    assert run_plain(program).splitlines()[-1] == "0"


def test_the_parser_learns_of_the_command_that_is_meant_alone() -> None:
    assert [name for name in build_app(command="list") if name in COMMANDS] == ["list"]
    assert [name for name in build_app(command="lisst") if name in COMMANDS] == [*COMMANDS]


def test_client_commands_load_no_server() -> None:
    program = (
        "import os, sys; from airunner.cli.main import execute; "
        "execute(['list', '--server', 'http://127.0.0.1:1']); "
        "print(sorted(sys.modules.keys() & {'uvicorn', 'starlette', 'sqlite3', 'airunner.server.run'})); "
        "sys.stdout.flush(); os._exit(0)"
    )
    printed = run_plain(program)
    assert printed == "[]\n"


def test_tables_in_pipes_have_tabs_and_no_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value"), [("a", "line\nbreak\x1b[2J"), ("b", "")])
    assert capsys.readouterr().out == "a\tline break [2J\nb\t\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", ["Zo\u00eb \u65e5 \U0001f600", "\udcff"])
def test_text_that_a_terminal_has_no_letters_for_is_shown_all_the_same(
    encoding: str, name: str, tmp_path: Path
) -> None:
    def show(*options: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "airunner.cli", "config", "show", "--given", *options],
            env={**os.environ, "PYTHONIOENCODING": encoding, "AIRUNNER_WORKER__WORKER_ID": name},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        assert b"Traceback" not in done.stderr
        return done.stdout.decode(encoding)

    assert "worker.worker_id\t" in show()
    values = {line["path"]: line["value"] for line in json.loads(show("--json"))["settings"]}
    assert values["worker.worker_id"] == name


@pytest.mark.parametrize(
    ("text", "instant"),
    [("0", 0), ("1500", 1_500), ("1970-01-01T00:00:01.500Z", 1_500), ("1970-01-01T01:00:00+01:00", 0)],
)
def test_instants_can_be_written_in_two_ways(text: str, instant: int) -> None:
    assert parse_instant(text, "--since") == instant


def test_instants_are_shown_exactly() -> None:
    assert to_iso(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert to_iso(0) == ""
    with pytest.raises(errors.InvalidArgument, match="--since must be"):
        parse_instant("yesterday", "--since")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.0 s"), (2_500, "2.5 s"), (42_000, "42 s"), (61_000, "1 min 01 s"), (3_700_000, "1 h 01 min")],
)
def test_durations_are_for_people(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
    assert format_duration(90_000_000) == "1 d 1 h"


def test_job_options_become_a_request() -> None:
    options = JobOptions(queue="builds", env=("A=1", "B=x=y"), timeout=5, pty=True, delay=3, max_attempts=2)
    request = options.request(["--", "make", "all"])
    assert (request.queue, request.delay_seconds, request.max_attempts) == ("builds", 3, 2)
    params = request.params
    assert (params.command, params.args, params.timeout_seconds) == ("make", ("all",), 5)
    assert params.process_type is ProcessType.PTY
    assert params.environment == {"A": "1", "B": "x=y"}


def test_owner_and_metadata_are_those_of_the_job() -> None:
    options = JobOptions(owner="ann", metadata=("team=build", "note=a=b", "empty=", "team=web"))
    params = options.request(["--", "make"]).params
    assert (params.owner, params.metadata) == ("ann", {"team": "web", "note": "a=b", "empty": ""})


@pytest.mark.parametrize("entry", ["team", "=build", ""])
def test_metadata_without_a_key_or_a_value_is_refused(entry: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="--metadata must be KEY=VALUE"):
        JobOptions(metadata=(entry,)).request(["--", "make"])


@pytest.mark.parametrize(
    ("handler", "payload", "message"),
    [
        ("resize", "{'width': 1}", r"--payload must be JSON: .*line 1 column 2"),
        ("resize", "[" * 100_000, "--payload must be JSON"),
        ("", "{}", "--payload needs --handler"),
    ],
)
def test_a_payload_that_is_refused_names_its_option(handler: str, payload: str, message: str) -> None:
    command = [] if handler else ["--", "make"]
    with pytest.raises(errors.InvalidArgument, match=f"^{message}"):
        JobOptions(handler=handler, payload=payload).request(command)


def test_a_payload_in_a_file_that_is_not_json_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text("width: 1")
    with pytest.raises(errors.InvalidArgument, match=f"^--payload: {re.escape(str(file))} must be JSON: "):
        JobOptions(handler="resize", payload=f"@{file}").request([])
    file.write_text('{"width": 1}')
    assert JobOptions(handler="resize", payload=f"@{file}").request([]).params.payload_json == '{"width": 1}'


def test_execution_options_override_only_what_is_given() -> None:
    assert ExecutionOptions().override() is None
    assert ExecutionOptions(heartbeat_interval=7).override() == ExecutionOverride(
        heartbeat_interval_seconds=7
    )
    playback = ExecutionOptions(playback_interval=20).override()
    assert playback == ExecutionOverride(batching=BatchingOverride(playback_interval_millis=20))
    with pytest.raises(errors.InvalidArgument, match="--heartbeat-interval must be at least 1"):
        ExecutionOptions(heartbeat_interval=0).override()


def test_names_alone_take_the_callers_values() -> None:
    options = JobOptions(env=("HOME", "EMPTY="), secret=("TOKEN",))
    assert options.environment({"HOME": "/home/ann", "TOKEN": "t"}) == {
        "HOME": "/home/ann",
        "EMPTY": "",
        "TOKEN": "t",
    }
    with pytest.raises(errors.InvalidArgument, match="--secret TOKEN"):
        options.environment({"HOME": "/home/ann"})
