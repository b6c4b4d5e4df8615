"""Packages of npm for tests: what is missing is said to be, and what is there is not fetched again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.node_packages import NodePackageMissing, install
from tests.support.esbuild import strip_types


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The PATH of a machine with nothing installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return folder


def put(folder: Path, name: str, script: str = "") -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}")
    file.chmod(0o755)


def test_what_is_missing_is_named(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(NodePackageMissing, match=r"esbuild: .* need Node with npm"):
        strip_types(tmp_path / "a.ts", tmp_path / "a.js", tmp_path / "esbuild")
    put(machine, "node")
    with pytest.raises(NodePackageMissing, match=r"esbuild: .* apt-get install nodejs npm"):
        strip_types(tmp_path / "a.ts", tmp_path / "a.js", tmp_path / "esbuild")
    with pytest.raises(NodePackageMissing, match=r"esbuild: .* apt-get install nodejs npm"):
        install(tmp_path / "esbuild", "esbuild", "1.0.0")
    put(machine, "npm", "echo no network; exit 1")
    with pytest.raises(NodePackageMissing, match="npm could not install esbuild: no network"):
        strip_types(tmp_path / "a.ts", tmp_path / "a.js", tmp_path / "esbuild")


def test_a_version_is_installed_once_and_without_a_lock_or_scripts(machine: Path, tmp_path: Path) -> None:
    put(machine, "npm", 'echo "$*" >>"$ASKED"')
    for version in ("1.0.0", "1.0.0", "1.0.1"):
        install(tmp_path / "thing", "thing", version)
    requested = (tmp_path / "asked").read_text().splitlines()
    assert len(requested) == 2
    assert "--no-package-lock" in requested[0]
    assert "--ignore-scripts" in requested[0]
    assert '"thing": "1.0.1"' in (tmp_path / "thing" / "package.json").read_text()


def test_an_installation_that_failed_is_tried_again(machine: Path, tmp_path: Path) -> None:
    put(machine, "npm", "exit 1")
    with pytest.raises(NodePackageMissing):
        install(tmp_path / "thing", "thing", "1.0.0")
    put(machine, "npm", 'echo "$*" >>"$ASKED"')
    install(tmp_path / "thing", "thing", "1.0.0")
    assert (tmp_path / "asked").is_file()
