"""What others install: the wheel, built from this tree and put into an environment of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_IMPORTS = """
import airunner, pathlib, sys
for name in airunner.__all__:
    getattr(airunner, name)
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request
print(pathlib.Path(airunner.__file__).is_relative_to(sys.prefix), len(airunner.__all__))
"""
# What users' tests import; everything else of ours stays in tests/.
TESTING = {"__init__.py", "clock.py", "conditions.py", "factories.py", "conformance"}
FOREIGN = {"tests", "hypothesis", "dynalite", "npm", "npx", "node"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the locked build backend and nothing fetched."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel and its locked core requirements."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    python = venv / "bin" / "python"
    uv("venv", "--python", sys.executable, venv)
    requirements = ("--require-hashes", "--requirement", ROOT / "requirements" / "core.txt")
    uv("pip", "install", "--python", python, *requirements)
    uv("pip", "install", "--python", python, "--no-deps", wheel)
    return python.parent


def test_every_public_name_comes_with_the_core_requirements(installed: Path, tmp_path: Path) -> None:
    printed = run(installed / "python", "-I", "-c", PUBLIC_IMPORTS, cwd=tmp_path)
    assert printed.split()[0] == "True"


def test_the_command_line_is_installed_and_works(installed: Path, tmp_path: Path) -> None:
    from airunner import __version__

    assert run(installed / "airunner", "version", cwd=tmp_path) == f"{__version__}\n"
    assert "SQLite in" in run(installed / "airunner", "demo", cwd=tmp_path)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    package = {name for name in names if name.startswith("airunner/")}
    assert all(".dist-info/" in name for name in set(names) - package)
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "src/airunner")
    sources = [name for name in listing.splitlines() if (ROOT / name).exists()]
    assert package == {name.removeprefix("src/") for name in sources}
    assert "airunner/py.typed" in package


def test_of_the_tests_it_holds_what_users_tests_import(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    testing = {name.split("/")[2] for name in names if name.startswith("airunner/testing/")}
    assert testing == TESTING
    assert [name for name in names if "double" in name or "strict" in name] == []


def test_no_module_of_it_knows_our_tests_or_runs_npm(wheel: Path) -> None:
    found = [
        (name, known) for name, tree in modules_of(wheel) for known in known_to(tree) if known in FOREIGN
    ]
    assert found == []


def test_pytest_comes_with_an_extra_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needs = [line for line in lines if line.startswith("Requires-Dist: pytest")]
    assert needs
    assert all("extra == 'testing'" in line for line in needs)


def modules_of(wheel: Path) -> Iterator[tuple[str, ast.Module]]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                yield name, ast.parse(archive.read(name))


def known_to(tree: ast.Module) -> Iterator[str]:
    """Yield the packages that a module imports, and its single-word texts, which may be programs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def uv(*arguments: str | Path) -> None:
    """Run uv as the Makefile does, with what the machine says about its packages."""
    program = (sys.executable, ROOT / "scripts" / "uv.py")
    run(*program, *arguments, "--quiet", variables=dict(os.environ))


def run(*command: str | Path, cwd: Path = ROOT, variables: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment() if variables is None else variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
