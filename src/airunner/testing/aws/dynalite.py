"""dynalite, a second opinion on DynamoDB: it refuses much that moto lets pass, but has no transactions.

It needs Node. It is installed once, in the pinned version, into a folder that the caller names.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from airunner.stores.aws.emulator.loopback import EmulatorFailed, LoopbackProcess

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.0.0"

_INSTALL_SECONDS: Final = 180
_PACKAGE: Final = json.dumps({"private": True, "dependencies": {"dynalite": VERSION}})
_PROGRAM: Final = """
const server = require("dynalite")({createTableMs: 0, deleteTableMs: 0, updateTableMs: 0});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
"""


class DynaliteProcess(LoopbackProcess):
    """DynamoDB alone, in the memory of one process that ends with this one."""

    def __init__(self, folder: Path, *, start_seconds: float = 60) -> None:
        super().__init__("dynalite", start_seconds=start_seconds)
        self._folder = folder

    def command(self) -> tuple[str, ...]:
        """Return what starts dynalite, which is installed first where it is missing."""
        node = shutil.which("node")
        if node is None:
            raise EmulatorFailed("Node is not installed, and dynalite runs on it")
        install(self._folder)
        return node, str(self._folder / "serve.js")


def install(folder: Path) -> None:
    """Install the pinned version, unless it is there; of several processes one does, the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "serve.js").write_text(_PROGRAM, encoding="utf-8")
        installed = folder / ".installed"
        if installed.is_file() and installed.read_text(encoding="utf-8") == _PACKAGE:
            return
        (folder / "package.json").write_text(_PACKAGE, encoding="utf-8")
        _npm_install(folder)
        installed.write_text(_PACKAGE, encoding="utf-8")


def _npm_install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise EmulatorFailed("npm is not installed, and dynalite comes with it")
    options = ("--silent", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
    try:
        done = subprocess.run(  # noqa: S603 - pinned, and without its scripts
            (npm, "install", *options, "--prefix", str(folder)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise EmulatorFailed(f"npm did not install dynalite within {_INSTALL_SECONDS} s") from None
    if done.returncode:
        raise EmulatorFailed(f"npm could not install dynalite: {(done.stderr or done.stdout).strip()[-300:]}")
