"""The programs that tests run: what a machine without them says, and how .ci/run comes by them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import programs
from tests.support.programs import REQUIRED, program, unavailable

COMMANDS = [names[0] for known in programs.PROGRAMS.values() for names in known.commands]
INSTALLS = """case "$*" in *install*) for name in $COMMANDS; do
  printf '#!/bin/sh' >"$HERE/$name"; chmod +x "$HERE/$name"; done; esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The PATH of root on a machine with nothing installed."""
    for name in ("PATH", "HERE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("COMMANDS", " ".join(COMMANDS))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv(REQUIRED, raising=False)
    return tmp_path


def put(folder: Path, name: str, script: str = "") -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}")
    file.chmod(0o755)


def test_a_test_is_skipped_with_the_sentence_of_make_setup(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        program("browser")
    assert "sudo apt-get install chromium chromium-driver" in str(skipped.value)
    programs.main([])
    assert f"note: {skipped.value}\n" in capsys.readouterr().out


def test_nothing_is_skipped_where_all_is_required(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="sudo apt-get install zsh"):
        program("zsh")
    with pytest.raises(pytest.fail.Exception, match="no network"):
        unavailable("no network")


def test_a_program_is_there_when_all_of_its_commands_are(machine: Path) -> None:
    put(machine, "google-chrome")
    with pytest.raises(pytest.skip.Exception):
        program("browser")
    put(machine, "chromedriver")
    assert program("browser") == (str(machine / "google-chrome"), str(machine / "chromedriver"))


def test_of_a_whole_machine_nothing_is_said(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        put(machine, name)
    programs.main(["--install"])  # there is no apt-get
    assert capsys.readouterr().out == ""


def test_root_gets_what_is_missing_from_the_packages_of_the_system(machine: Path) -> None:
    put(machine, "apt-get", f'echo "$*" >>"$HERE/asked"\n{INSTALLS}')
    for name in ("bash", "git", "curl"):
        put(machine, name)
    programs.main(["--install"])
    update, install = (machine / "asked").read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith(" chromium chromium-driver nodejs npm zsh fish systemd strace")


@pytest.mark.parametrize("has_apt", [True, False])
def test_who_may_not_install_is_told_what_to_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch, has_apt: bool
) -> None:
    if has_apt:
        put(machine, "apt-get", INSTALLS)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match=r"only root[\s\S]*sudo apt-get install chromium chromium-driver"):
        programs.main(["--install"])


def test_an_installation_that_fails_is_said_to(machine: Path) -> None:
    put(machine, "apt-get", "echo E: no such package >&2; exit 100")
    with pytest.raises(SystemExit, match="E: no such package"):
        programs.main(["--install"])


def test_an_installation_that_hangs_is_given_up(machine: Path) -> None:
    put(machine, "apt-get", "exec sleep 1000")
    with pytest.raises(programs.InstallationFailed, match="did not end within"):
        programs.install(limit_seconds=0.1)


def test_packages_without_the_programs_are_a_failure(machine: Path) -> None:
    put(machine, "apt-get")
    with pytest.raises(SystemExit, match="did not bring"):
        programs.main(["--install"])
