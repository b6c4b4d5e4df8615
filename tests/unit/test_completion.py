"""The completion scripts, in a real shell where it is there."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from airunner.cli.application import COMMANDS
from airunner.cli.main import execute
from tests.support.programs import program
from tests.support.terminals import Terminal, terminal

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$(complete -p airunner | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')"
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Like a person's own, but for a key that shows what stands on the line.
ZSHRC = """
stty rows 100
fpath=({folder} $fpath)
autoload -Uz compinit; compinit -u -D
{more}
show() {{ zle -I; print -r -- "<$BUFFER>"; BUFFER=; }}
zle -N show; bindkey '^G' show
PS1='ready> '
"""
SHOW = b"\a"


@cache
def generated(shell: str) -> str:
    """Return the script for a shell; it takes a while to make."""
    with redirect_stdout(io.StringIO()) as out:
        assert execute(["completion", shell]) == 0
    return out.getvalue()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "airunner.bash"
    file.write_text(generated("bash"))
    return file


def complete(script: Path, *arguments: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    requested = [*program("bash"), "--norc", "-c", ASK, "bash", str(script), *arguments]
    done = subprocess.run(requested, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sorted(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        (["airunner", "mon"], ["monitor"]),
        (["airunner", ""], sorted(COMMANDS)),
        (["airunner", "logs", "--gr"], ["--grep"]),
        (["airunner", "queues", "pa"], ["pause"]),
        (["airunner", "logs", "--stream", ""], ["stderr", "stdout"]),
        (["airunner", "run", "--metad"], ["--metadata"]),
        (["airunner", "submit", "--heart"], ["--heartbeat-interval"]),
    ],
)
def test_bash_completes(script: Path, arguments: list[str], offered: list[str]) -> None:
    assert complete(script, *arguments) == offered


Zsh = Callable[..., Terminal]


@pytest.fixture
def zsh(tmp_path: Path) -> Iterator[Zsh]:
    """Starts zsh at a terminal, with the script saved as it is told to and more lines of ~/.zshrc."""
    # Without the machine's own settings.
    command = [*program("zsh"), "--no-globalrcs", "-i"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    with ExitStack() as opened:

        def start(name: str, more: str = "") -> Terminal:
            (tmp_path / name).write_text(generated("zsh"))
            (tmp_path / ".zshrc").write_text(ZSHRC.format(folder=tmp_path, more=more))
            shell = opened.enter_context(terminal(command, tmp_path, environment))
            shell.until_shown("ready> ")
            return shell

        yield start


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("airunner mon", "airunner monitor "),
        ("airunner logs --gr", "airunner logs --grep "),
        ("airunner logs --ti", "airunner logs --timestamps "),
        ("airunner queues pa", "airunner queues pause "),
        ("airunner logs --stream stdo", "airunner logs --stream stdout "),
    ],
)
def test_zsh_completes(zsh: Zsh, typed: str, completed: str) -> None:
    shell = zsh("_airunner")
    shell.type(typed.encode() + b"\t" + SHOW)
    shell.until_shown(">\n")
    assert f"<{completed}>" in shell.screen


def test_zsh_lists_every_command(zsh: Zsh) -> None:
    shell = zsh("_airunner")
    shell.type(b"airunner \t")
    width = max(map(len, COMMANDS))
    for command in COMMANDS:
        shell.until_shown(f"{command:{width}}  -- ")


def test_zsh_may_source_the_script(zsh: Zsh) -> None:
    shell = zsh("sourced.zsh", "source ~/sourced.zsh")
    shell.type(b"airunner get --js\t" + SHOW)
    shell.until_shown("<airunner get --json >")


def complete_in_fish(folder: Path, line: str) -> list[str]:
    """Return what fish offers at the end of a line."""
    ask = 'source airunner.fish; complete --do-complete="$argv"'
    requested = [*program("fish"), "--no-config", "-c", ask, line]
    home = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(requested, cwd=folder, env=home, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sorted(offered.split("\t")[0] for offered in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("airunner mon", ["monitor"]),
        ("airunner ", sorted(COMMANDS)),
        ("airunner logs --gr", ["--grep"]),
        ("airunner queues ", ["pause", "resume"]),
        ("airunner logs --stream ", ["stderr", "stdout"]),
    ],
)
def test_fish_completes(tmp_path: Path, line: str, offered: list[str]) -> None:
    (tmp_path / "airunner.fish").write_text(generated("fish"))
    assert complete_in_fish(tmp_path, line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    assert "monitor" in generated(shell)


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
