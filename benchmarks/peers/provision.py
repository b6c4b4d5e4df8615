"""What the peers need: environments of their own in .bench, and a Redis in a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, end, folder, free_port

_HERE = Path(__file__).parent
_BENCH = ROOT / ".bench"
# A copy of the list of versions, made when all of it is installed.
_INSTALLED = ".installed"

PEERS_BIN = _BENCH / "peers/bin"
NODE_MODULES = _BENCH / "bullmq/node_modules"
# Redis as it comes, and Redis that has on disk what it acknowledged.
AS_IT_COMES: tuple[str, ...] = ()
ALWAYS_ON_DISK = ("--appendonly", "yes", "--appendfsync", "always")


class Missing(Exception):
    """Something that a peer needs is not on this machine; the text says what, and how to get it."""


@dataclass(frozen=True, slots=True)
class Redis:
    """A running Redis."""

    url: str
    pid: int


def install_python_peers() -> None:
    """Make the environment of the Python peers, unless the one that is there has the pinned versions."""
    wanted = _HERE / "requirements.txt"
    if _is_current(_BENCH / "peers", wanted):
        return
    uv = (sys.executable, str(ROOT / "scripts/uv.py"))
    _call(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(_BENCH / "peers"))
    _call(*uv, "pip", "install", "--quiet", "--python", str(PEERS_BIN / "python"), "-r", str(wanted))
    _mark(_BENCH / "peers", wanted)


def install_bullmq() -> None:
    """Install BullMQ, unless the pinned version is there."""
    for tool in ("node", "npm"):
        _require(tool, "nodejs and npm")
    target, wanted = _BENCH / "bullmq", _HERE / "package.json"
    if _is_current(target, wanted):
        return
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(wanted, target)
    _call("npm", "install", "--silent", "--no-package-lock", "--ignore-scripts", "--prefix", str(target))
    _mark(target, wanted)


@contextmanager
def redis(*options: str) -> Iterator[Redis]:
    """Run a Redis in a folder of its own."""
    program = _require("redis-server", "redis-server")
    with folder() as directory:
        port = free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _until_listening(process, port)
            yield Redis(f"redis://127.0.0.1:{port}", process.pid)
        finally:
            end(process)


def _is_current(target: Path, wanted: Path) -> bool:
    installed = target / _INSTALLED
    return installed.is_file() and installed.read_bytes() == wanted.read_bytes()


def _mark(target: Path, wanted: Path) -> None:
    shutil.copy(wanted, target / _INSTALLED)


def _require(tool: str, packages: str) -> str:
    found = shutil.which(tool)
    if not found:
        raise Missing(f"{tool} is not on the PATH (Debian, Ubuntu: sudo apt-get install {packages})")
    return found


def _call(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command[:3])} failed: {(done.stderr or done.stdout).strip()[-300:]}")


def _until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise Missing(f"redis-server ended at once with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Missing("redis-server did not come up")
