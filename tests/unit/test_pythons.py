"""Which Pythons `make test-pythons` finds, and what it does with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import pythons


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Pythons: its PATH is the folder `bin`, and nothing is known to uv or pyenv."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.delenv("MAKE", raising=False)
    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    return tmp_path


def put(file: Path, script: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}")
    file.chmod(0o755)
    return str(file)


def test_one_on_the_path_is_found(machine: Path) -> None:
    python = put(machine / "bin" / "python3.12", "echo 3.12")
    assert pythons.find("3.12") == python
    assert pythons.find("3.13") is None


def test_a_shim_that_runs_nothing_is_passed_over_for_the_newest_of_pyenv(machine: Path) -> None:
    put(machine / "bin" / "python3.12", "echo pyenv: python3.12: command not found >&2; exit 127")
    versions = machine / "pyenv" / "versions"
    for patch in ("3.12.10", "3.12.9"):
        put(versions / patch / "bin" / "python", "echo 3.12")
    assert pythons.find("3.12") == str(versions / "3.12.10" / "bin" / "python")


def test_one_that_uv_knows_is_found(machine: Path) -> None:
    python = put(machine / "elsewhere" / "python", "echo 3.11")
    (machine / "scripts").mkdir()
    (machine / "scripts" / "uv.py").write_text(f"print({python!r})")
    assert pythons.find("3.11") == python
    assert pythons.find("3.12") is None


def test_the_target_runs_on_each_in_an_environment_of_its_own(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version in ("3.11", "3.13"):
        put(machine / "bin" / f"python{version}", f"echo {version}")
    put(machine / "bin" / "make", 'echo "$*" >>"$ASKED"; case "$*" in *3.11*) exit 2; esac')
    with pytest.raises(SystemExit) as ended:
        pythons.main("test")
    assert ended.value.code == 1
    chosen = [
        f"--no-print-directory test VENV=.venv-{version} VENV_PYTHON={machine}/bin/python{version}"
        for version in ("3.11", "3.13")
    ]
    assert (machine / "asked").read_text().splitlines() == chosen
    told = "Python 3.11: failed\nPython 3.12: not installed\nPython 3.13: passed\n"
    assert capfd.readouterr().out.endswith(told)


def test_a_machine_without_any_is_no_success(machine: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no Python 3\.11 or 3\.12 or 3\.13"):
        pythons.main("test")
