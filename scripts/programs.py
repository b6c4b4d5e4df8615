"""The programs that tests run beside Python: python3 scripts/programs.py says which are missing.

A test whose program is missing is skipped with the same sentence; no test installs anything. With --install,
root on Debian and its kin gets what is missing from the packages of the system, and the exit code tells
whether all of it is there then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

LIMIT_SECONDS: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What some tests run, the names that it may have on the PATH, and the packages that bring it."""

    title: str
    tests: str
    commands: tuple[tuple[str, ...], ...]
    packages: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The path of each of its commands; None unless all are there."""
        found = [_first(names) for names in self.commands]
        return tuple(path for path in found if path) if all(found) else None

    @property
    def excuse(self) -> str:
        """Why tests are skipped without it, and what to run."""
        command = f"sudo apt-get install {' '.join(self.packages)}"
        return f"{self.tests} need {self.title}, which is not installed (Debian, Ubuntu: {command})"


CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PROGRAMS: Final = {
    "browser": Program(
        title="Chromium with its driver",
        tests="Tests of pages",
        commands=(CHROMIUM, ("chromedriver",)),
        packages=("chromium", "chromium-driver"),
    ),
    "node": Program(
        title="Node with npm",
        tests="Tests of TypeScript and of a second emulator",
        commands=(("node",), ("npm",)),
        packages=("nodejs", "npm"),
    ),
    "bash": Program(
        title="bash", tests="Tests of bash completion", commands=(("bash",),), packages=("bash",)
    ),
    "zsh": Program(title="zsh", tests="Tests of zsh completion", commands=(("zsh",),), packages=("zsh",)),
    "fish": Program(
        title="fish", tests="Tests of fish completion", commands=(("fish",),), packages=("fish",)
    ),
    "git": Program(title="git", tests="Tests of repositories", commands=(("git",),), packages=("git",)),
    "curl": Program(
        title="curl", tests="Tests of the examples of the README", commands=(("curl",),), packages=("curl",)
    ),
    "systemd-analyze": Program(
        title="systemd-analyze",
        tests="Tests of the units",
        commands=(("systemd-analyze",),),
        packages=("systemd",),
    ),
    "strace": Program(
        title="strace",
        tests="Tests of the order of system calls",
        commands=(("strace",),),
        packages=("strace",),
    ),
}


class InstallationFailed(Exception):
    """Nothing can be installed here, or it did not work; the text says why."""


def main(arguments: list[str]) -> None:
    """Say what is missing; install it where that is asked for."""
    if "--install" in arguments and missing():
        try:
            install()
        except InstallationFailed as error:
            sys.exit("\n".join([str(error), *(program.excuse for program in missing())]))
    for program in missing():
        print(f"note: {program.excuse}")
    if "--install" in arguments and missing():
        sys.exit("the packages did not bring all of it")


def missing() -> list[Program]:
    """Return the programs that are not on the PATH."""
    return [program for program in PROGRAMS.values() if program.paths is None]


def install(limit_seconds: float = LIMIT_SECONDS) -> None:
    """Install the packages of all that is missing; raises InstallationFailed."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallationFailed("only root on Debian and its kin can install packages with this script")
    packages = [package for program in missing() for package in program.packages]
    _apt_get("update", limit_seconds=limit_seconds)
    _apt_get("install", "--yes", "--no-install-recommends", *packages, limit_seconds=limit_seconds)


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def _apt_get(*arguments: str, limit_seconds: float) -> None:
    # Another apt-get that runs is waited for.
    patient = ("--option", "DPkg::Lock::Timeout=120", "--option", "Acquire::Retries=3")
    command = ["apt-get", "--quiet", "--quiet", *patient, *arguments]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_seconds, env=quiet
        )
    except subprocess.TimeoutExpired:
        raise InstallationFailed(f"`{' '.join(command)}` did not end within {limit_seconds:g} s") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).strip()[-1000:]
        raise InstallationFailed(f"`{' '.join(command)}` failed: {printed}")


if __name__ == "__main__":
    main(sys.argv[1:])
