"""Programs for tests that come from npm: each in one pinned version, in a folder that the caller names.

npm asks the registry that this machine is configured for. No lock is written, since it would hold addresses.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from scripts.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

_INSTALL_SECONDS: Final = 180


class NodePackageMissing(Exception):
    """Node, npm or the package cannot be had on this machine; the text says which, and why."""


def node_for(name: str) -> str:
    """Return the path of Node, which the named program runs on; raises NodePackageMissing."""
    paths = PROGRAMS["node"].paths
    if paths is None:
        raise NodePackageMissing(f"{name}: {PROGRAMS['node'].excuse}")
    return paths[0]


def install(folder: Path, name: str, version: str) -> None:
    """Install that version, unless it is there; of several processes one does, the others wait.

    No script of the package runs. Raises NodePackageMissing.
    """
    package = json.dumps({"private": True, "dependencies": {name: version}})
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = folder / ".installed"
        if installed.is_file() and installed.read_text(encoding="utf-8") == package:
            return
        (folder / "package.json").write_text(package, encoding="utf-8")
        _npm_install(folder, name)
        installed.write_text(package, encoding="utf-8")


def _npm_install(folder: Path, name: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NodePackageMissing(f"{name}: {PROGRAMS['node'].excuse}")
    options = ("--silent", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
    try:
        done = subprocess.run(
            (npm, "install", *options, "--prefix", str(folder)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise NodePackageMissing(f"npm did not install {name} within {_INSTALL_SECONDS} s") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).strip()[-300:]
        raise NodePackageMissing(f"npm could not install {name}: {printed}")
