"""The examples of the pages, as printed: one shell, one folder, one server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import LIMIT_SECONDS, CommandLine, environment
from tests.support.programs import program

ROOT = Path(__file__).resolve().parents[2]
# What the pages say; a server at that port may be somebody's.
PRINTED = "127.0.0.1:8080"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A program, and what it prints if it prints anything.
PROGRAM = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
MARK = "\x1e"


@dataclass(frozen=True, slots=True)
class Stack:
    """`airunner dev` at an address of its own, which stands for the printed one."""

    folder: Path
    address: str

    def shell(self, script: str) -> str:
        """Run a script that must succeed; return what it printed."""
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", self.translate(script)],
            cwd=self.folder,
            env=environment(
                PATH=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                AIRUNNER_SERVER=f"http://{self.address}",
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def python(self, program: str) -> str:
        """Run a program that must succeed and complain of nothing; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", self.translate(program)],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), program
        return done.stdout

    def translate(self, text: str) -> str:
        return text.replace(PRINTED, self.address)


def sdk_programs() -> dict[str, tuple[str, str]]:
    """Return the programs of the page with the text right below them, by their section and number."""
    sections = (ROOT / "docs" / "sdk.md").read_text().split("\n## ")[1:]
    return {
        f"{section.partition(chr(10))[0]} {number}": found
        for section in sections
        for number, found in enumerate(PROGRAM.findall(section), start=1)
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    program("curl")
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    with CommandLine(folder=folder).start("dev", "--listen", "127.0.0.1:0") as dev:
        url = dev.wait_for("airunner dev ready on").partition(",")[0]
        yield Stack(folder, url.removeprefix("http://"))


def test_curl_takes_a_job_through_its_life(stack: Stack) -> None:
    examples = curl_blocks("README.md")
    answers = [json.loads(answer) for answer in run_in_one_shell(stack, examples)]
    enqueued, got, taken, published, completed, listed = answers
    job_id = enqueued["jobId"]
    assert enqueued["state"] == "JOB_STATE_SCHEDULED"
    assert got["job"]["jobId"] == job_id
    assert [entry["job"]["jobId"] for entry in taken["jobs"]] == [job_id]
    assert published["nextSequence"] == "2"
    assert completed["state"] == "JOB_STATE_COMPLETED"
    assert [job["jobId"] for job in listed["jobs"]] == [job_id]
    # What curl published can be watched like any other job.
    assert stack.shell(f"airunner monitor {job_id}") == "hello\n"


def test_curl_examples_of_the_api_page_work(stack: Stack) -> None:
    examples = curl_blocks("docs/api.md")
    assert examples
    for answer in run_in_one_shell(stack, examples):
        assert error_code(json.loads(answer)) is None


@pytest.mark.slow
def test_commands_of_the_tour_do_what_the_page_says(stack: Stack) -> None:
    run, monitor, reading, cancel, handlers = [
        script for script in blocks("README.md", "sh") if re.search(r"airunner (run|monitor|cancel)", script)
    ]
    assert stack.shell(run) == "out\nexit code 3\n"
    shown = stack.shell(monitor)
    assert shown.startswith("line 1\nline 2\nline 3\n")
    assert re.search(r"^\S+ line 2\n\S+ line 3\n", shown.removeprefix("line 1\nline 2\nline 3\n"))
    assert "COMPLETED" in shown
    found, because, played = stack.shell(reading).partition("because its process ended with exit code 3.\n")
    assert found.startswith("line 2\nline 3\n")
    assert because
    assert played == "line 3\n"
    assert "CANCELLED" in stack.shell(cancel)
    assert stack.shell(handlers) == "a.png: 100 pixels wide\nb.png: 100 pixels wide\n"


def test_the_python_example_prints_what_the_job_printed(stack: Stack) -> None:
    (example,) = blocks("README.md", "python")
    assert stack.python(example) == "2 b'hello\\n'\n3 b'world\\n'\nCOMPLETED\n"


@pytest.mark.parametrize(("program", "printed"), list(sdk_programs().values()), ids=list(sdk_programs()))
def test_programs_of_the_sdk_page_print_what_is_below_them(stack: Stack, program: str, printed: str) -> None:
    assert stack.python(program) == printed


def run_in_one_shell(stack: Stack, scripts: list[str]) -> list[str]:
    """Run examples one after the other, with their variables kept; return what each printed."""
    script = "\n".join(f"{example}\nprintf '{MARK}'" for example in scripts)
    return stack.shell(script).split(MARK)[:-1]


def curl_blocks(page: str) -> list[str]:
    return [script for script in blocks(page, "sh") if script.startswith("curl")]


def blocks(page: str, language: str) -> list[str]:
    found = BLOCK.findall((ROOT / page).read_text())
    return [script for kind, script in found if kind == language]


def error_code(answer: dict[str, Any]) -> str | None:
    code: str | None = answer.get("code")
    return code
