"""The completion scripts, in a real shell where it is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from airunner.cli.main import COMMANDS, execute

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$(complete -p airunner | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert execute(["completion", "bash"]) == 0
    file = tmp_path / "airunner.bash"
    file.write_text(capsys.readouterr().out)
    return file


def complete(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    assert BASH
    asked = [BASH, "--norc", "-c", ASK, "bash", str(script), *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sorted(done.stdout.split())


@needs_bash
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["airunner", "mon"], ["monitor"]),
        (["airunner", ""], sorted(COMMANDS)),
        (["airunner", "logs", "--gr"], ["--grep"]),
        (["airunner", "queues", "pa"], ["pause"]),
        (["airunner", "logs", "--stream", ""], ["stderr", "stdout"]),
    ],
)
def test_bash_completes(script: Path, words: list[str], offered: list[str]) -> None:
    assert complete(script, *words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", shell]) == 0
    assert "monitor" in capsys.readouterr().out


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
