"""Find a Chromium with its driver, or get them: python3 scripts/browser.py prints their two paths.

They are taken from the PATH. Where they are missing, root on Debian and its kin gets them from the system's
own packages; everybody else is told what to run. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
DRIVER_NAMES = ("chromedriver",)
PACKAGES = ("chromium", "chromium-driver")
LIMIT_SECONDS = 300
TOOLS = Path(__file__).resolve().parent.parent / ".tools"


class BrowserMissing(Exception):
    """There is no browser to be had; the text says why, and what to run."""


def main() -> None:
    try:
        print(*(find() or install()), sep="\n")
    except BrowserMissing as error:
        sys.exit(str(error))


def find() -> tuple[str, str] | None:
    """Return the paths of a Chromium and its driver, if both are there."""
    chromium, driver = _first(CHROMIUM_NAMES), _first(DRIVER_NAMES)
    return (chromium, driver) if chromium and driver else None


def may_install() -> bool:
    """Whether this user of this machine can install packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(limit_seconds: float = LIMIT_SECONDS) -> tuple[str, str]:
    """Install both and return their paths; raises BrowserMissing, also when it takes too long."""
    if not may_install():
        raise BrowserMissing(
            "there is no Chromium with its driver on the PATH; "
            f"Debian, Ubuntu: sudo apt-get install {' '.join(PACKAGES)}"
        )
    give_up_at = time.monotonic() + limit_seconds
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one installs, the others find what it did
        if not find():
            _install_packages(give_up_at, unpack_seconds=limit_seconds / 3)
    found = find()
    if found is None:
        raise BrowserMissing(f"the packages {' and '.join(PACKAGES)} brought no Chromium with its driver")
    return found


def _install_packages(give_up_at: float, unpack_seconds: float) -> None:
    # Fetched first, since that takes long and may be stopped without leaving half a package behind.
    wanted = ("install", "--yes", "--no-install-recommends", *PACKAGES)
    _apt_get(("update",), give_up_at - unpack_seconds)
    _apt_get(("--download-only", *wanted), give_up_at - unpack_seconds)
    _apt_get(("--no-download", *wanted), give_up_at)


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def _apt_get(arguments: tuple[str, ...], give_up_at: float) -> None:
    # Another apt-get that runs is waited for.
    command = ["apt-get", "--quiet", "--quiet", "--option", "DPkg::Lock::Timeout=60", *arguments]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    left = max(give_up_at - time.monotonic(), 0)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left, env=quiet)
    except subprocess.TimeoutExpired:
        raise BrowserMissing(f"`{' '.join(command)}` did not end in time") from None
    if done.returncode:
        raise BrowserMissing(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-300:]}")


if __name__ == "__main__":
    main()
