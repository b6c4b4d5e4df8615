"""No test changes the machine that it runs on: none calls a package manager, nor pip for its own Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
INSTALLERS = {
    "apk",
    "apt",
    "apt-get",
    "aptitude",
    "brew",
    "dnf",
    "dpkg",
    "pip",
    "pip3",
    "snap",
    "sudo",
    "yum",
}
# One tries the script that .ci/run installs with, on a PATH where apt-get is a script of its own; the other
# installs the wheel into an environment that it makes and removes.
TRIES_THE_INSTALLER = {"unit/test_programs.py", "acceptance/test_wheel.py"}


def installations(source: str) -> Iterator[str]:
    """Find what a module installs: commands as lists or as texts, and calls of our own installer."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first, words = node.elts[0], [_text(element) for element in node.elts]
            if words[0] in INSTALLERS or (_is_this_python(first) and words[1:3] == ["-m", "pip"]):
                yield f"line {node.lineno}: {words}"
        if isinstance(node, ast.Call) and node.args:
            text = _text(node.args[0])
            if text.split()[:1] and text.split()[0] in INSTALLERS:
                yield f"line {node.lineno}: {text}"
        if isinstance(node, ast.ImportFrom) and "programs" in _imported_from_scripts(node):
            yield f"line {node.lineno}: the script that installs programs"


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['apt-get', 'install', 'chromium'])",
        "subprocess.run(('pip', 'install', 'thing'))",
        "subprocess.run([sys.executable, '-m', 'pip', 'install', 'thing'])",
        "os.system('sudo apt-get install chromium')",
        "from scripts import programs",
        "from scripts.programs import install",
    ],
)
def test_an_installation_is_found(source: str) -> None:
    assert list(installations(source))


@pytest.mark.parametrize(
    "source",
    [
        "print('what to run: sudo apt-get install chromium')",
        "raises(Missing, match='sudo apt-get install chromium')",
        "subprocess.run([fresh_python, '-m', 'pip', 'install', wheel])",
        "from scripts.programs import PROGRAMS",
    ],
)
def test_what_only_speaks_of_one_or_changes_another_environment_is_not(source: str) -> None:
    assert list(installations(source)) == []


def test_no_test_installs_anything() -> None:
    found = {
        name: list(installations(file.read_text()))
        for file in sorted(TESTS.rglob("*.py"))
        if (name := str(file.relative_to(TESTS))) not in TRIES_THE_INSTALLER
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_this_python(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "executable"


def _imported_from_scripts(node: ast.ImportFrom) -> set[str]:
    """Return what an import takes of the scripts; "programs" stands for more of that one than its table."""
    names = {alias.name for alias in node.names}
    if node.module == "scripts.programs":
        return {"programs"} if names != {"PROGRAMS"} else set()
    return names if node.module == "scripts" else set()
