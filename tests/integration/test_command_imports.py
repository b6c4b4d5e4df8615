"""What client commands load: neither the server's library nor others that are slow to import."""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.serving import serve_in_thread

HEAVY = {"connectrpc", "structlog", "pydantic", "pydantic_core", "rich", "pyqwest", "yaml", "dotenv"}
# What only those need that add jobs, hold them or show settings: each class of it takes its time to build.
OF_OTHERS = {
    "airunner.codec.answers",
    "airunner.codec.requests",
    "airunner.config.display",
    "airunner.config.parameter",
    "airunner.domain.answers",
    "airunner.domain.repository",
    "airunner.domain.requests",
    "airunner.services.api",
    "random",
    "uuid",
}
PROGRAM = """
import ast, os, sys
from airunner.cli.main import execute
commands, heavy, report = ast.literal_eval(sys.argv[1])
loaded = lambda: {*sys.modules, *(name.partition(".")[0] for name in sys.modules)}
found = [[words, execute(words), sorted(loaded() & set(heavy))]
         for words in commands]
with open(report, "w") as file:
    file.write(repr(found))
sys.stdout.flush()
os._exit(0)
"""


def test_client_commands_leave_heavy_modules_unloaded(tmp_path: Path) -> None:
    with serve_in_thread() as (url, _):
        job_id = _run(tmp_path, [["submit", "--server", url, "--", "true"]], url).strip()
        commands = [
            ["list"],
            ["get", job_id],
            ["queues"],
            ["workers"],
            ["cancel", job_id],
            ["retry", job_id],
            ["submit", "--", "true"],
            ["logs", job_id],
            ["list", "--json"],
            ["get", job_id, "--json"],
        ]
        shown = _run(tmp_path, commands, url)
    assert job_id in shown
    # On a terminal, tables have a head.
    assert "oldest scheduled" in shown


def test_who_only_looks_at_jobs_loads_nothing_of_who_adds_or_holds_them(tmp_path: Path) -> None:
    with serve_in_thread() as (url, _):
        job_id = _run(tmp_path, [["submit", "--server", url, "--", "true"]], url).strip()
        commands = [["list"], ["get", job_id], ["cancel", job_id]]
        _run(tmp_path, commands, url, heavy=OF_OTHERS)


def test_plain_settings_of_the_environment_need_no_heavy_modules(tmp_path: Path) -> None:
    variables = {
        "AIRUNNER_API_KEY": "k1",
        "AIRUNNER_CLIENT__TIMEOUT_SECONDS": "2.5",
        "AIRUNNER_WORKER__CONCURRENCY": "4",
        "AWS_REGION": "eu-west-1",
        "RUNS_FLEET_TERMINATION_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/1/q",
    }
    with serve_in_thread() as (url, _):
        _run(tmp_path, [["list"]], url, variables)


def _run(
    folder: Path,
    commands: list[list[str]],
    url: str,
    more: dict[str, str] | None = None,
    heavy: Iterable[str] = HEAVY,
) -> str:
    """Run the commands on a terminal, in one Python of its own, and return what they print."""
    report = folder / "report.json"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
    environment |= {"AIRUNNER_SERVER": url, "TERM": "xterm", **(more or {})}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, repr([commands, sorted(heavy), str(report)])],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
    )
    os.close(theirs)
    shown = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    assert ast.literal_eval(report.read_text()) == [[words, 0, []] for words in commands], shown
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # nobody has it open any more
        return b""
