"""How tests come by a browser, on machines that have one, may install one, or neither."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import browser
from tests.support.browser import chromium_or_excuse

INSTALLS = """case "$*" in *--no-download*) for name in chromium chromedriver; do
  printf '#!/bin/sh' >"$HERE/$name"; chmod +x "$HERE/$name"; done; esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The PATH of root on a machine with nothing installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def put(folder: Path, name: str, script: str = "") -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}")
    file.chmod(0o755)


def excuse() -> str:
    """Return why a test that wants a browser is skipped."""
    with pytest.raises(pytest.skip.Exception) as caught:
        chromium_or_excuse()
    return str(caught.value)


def test_what_is_on_the_path_is_taken(machine: Path) -> None:
    put(machine, "google-chrome")
    assert browser.find() is None
    put(machine, "chromedriver")
    assert browser.find() == (str(machine / "google-chrome"), str(machine / "chromedriver"))


def test_root_gets_it_from_the_packages_of_the_system(machine: Path) -> None:
    put(machine, "apt-get", f'echo "$*" >>"$HERE/asked"\n{INSTALLS}')
    assert browser.install() == (str(machine / "chromium"), str(machine / "chromedriver"))
    requested = (machine / "asked").read_text().splitlines()
    assert [line.endswith("chromium chromium-driver") for line in requested] == [False, True, True]
    assert "update" in requested[0]


@pytest.mark.parametrize("has_apt", [True, False])
def test_who_may_not_install_is_told_what_to_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch, has_apt: bool
) -> None:
    if has_apt:
        put(machine, "apt-get", INSTALLS)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo apt-get install chromium chromium-driver" in excuse()


def test_an_installation_that_fails_is_the_excuse(machine: Path) -> None:
    put(machine, "apt-get", "echo E: no such package >&2; exit 100")
    assert "E: no such package" in excuse()


def test_an_installation_that_hangs_is_given_up(machine: Path) -> None:
    put(machine, "apt-get", "exec sleep 1000")
    with pytest.raises(browser.BrowserMissing, match="did not end in time"):
        browser.install(limit_seconds=0.1)


def test_packages_without_a_browser_are_said_to_be(machine: Path) -> None:
    put(machine, "apt-get")
    with pytest.raises(browser.BrowserMissing, match="brought no Chromium"):
        browser.install()
