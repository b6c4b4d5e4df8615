"""Run uv with this machine's own package settings: python3 scripts/uv.py ARGUMENTS.

An installed uv is used when it is new enough; otherwise a pinned one is put into .tools. uv does not read
pip's configuration, so where uv has none, pip's is handed to it in the environment; nothing of it is written
down. Runs on any Python 3.8 or newer, since it starts before the project's environment exists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

UV_VERSION = "0.13.7"
OLDEST_UV = (0, 8, 0)
TOOLS = Path(__file__).resolve().parent.parent / ".tools"
UV_INDEX_SETTINGS = ("UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
UV_CONFIGURATION_FILES = ("/etc/uv/uv.toml", "~/.config/uv/uv.toml")


def main(arguments: list[str]) -> None:
    """Replace this process by uv."""
    uv = find_uv() or install_uv()
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    if not uv_is_configured():
        # A lock lists every file of a release; the extra places of a machine may hold only some of them.
        locking = arguments[:2] == ["pip", "compile"]
        environment = {**uv_settings(pip_settings(), extra_places=not locking), **environment}
    os.execve(uv, [str(uv), *arguments], environment)  # noqa: S606 - no shell is wanted


def find_uv() -> Path | None:
    """Find a uv that is new enough: the one in .tools, or one on the PATH."""
    for candidate in (*uv_in_tools(), shutil.which("uv")):
        if candidate and uv_version(candidate) >= OLDEST_UV:
            return Path(candidate)
    return None


def install_uv() -> Path:
    """Put the pinned uv into .tools, by the first way that this machine's Python offers."""
    requirement = f"uv=={UV_VERSION}"
    venv = [sys.executable, "-m", "venv", "--clear", str(TOOLS / "uv")]
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    by_venv = [venv, [str(TOOLS / "uv/bin/python"), *pip, requirement]]
    by_pip = [[sys.executable, *pip, "--upgrade", "--target", str(TOOLS / "uv"), requirement]]
    by_apt = [["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", "python3-venv"], *by_venv]
    may_use_apt = os.geteuid() == 0 and shutil.which("apt-get")
    failures = []
    for commands in (by_venv, by_pip, by_apt if may_use_apt else []):
        failure = first_failure(commands)
        uv = find_uv()
        if uv:
            return uv
        failures.append(failure)
    shown = "\n".join(filter(None, failures))
    sys.exit(
        f"{shown}\n\nuv could not be installed. Either install it so that `uv` is on the PATH, or give "
        "Python its venv module (Debian, Ubuntu: sudo apt-get install python3-venv) and try again."
    )


def uv_in_tools() -> list[Path]:
    return [path for path in (TOOLS / "uv/bin/uv", TOOLS / "uv/uv") if path.is_file()]


def uv_version(uv: str | Path) -> tuple[int, ...]:
    answer = subprocess.run([str(uv), "--version"], capture_output=True, text=True, check=False)
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else (0,)


def first_failure(commands: list[list[str]]) -> str:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"$ {' '.join(command)}\n{done.stdout}{done.stderr}".strip()
    return ""


def uv_is_configured() -> bool:
    """Whether this machine tells uv itself where packages come from."""
    if any(os.environ.get(name) for name in UV_INDEX_SETTINGS):
        return True
    return any(Path(path).expanduser().is_file() for path in UV_CONFIGURATION_FILES)


def pip_settings() -> dict[str, str]:
    """Read pip's effective settings: the global section, above it the one for installing, above it PIP_*."""
    pythons = [sys.executable, str(TOOLS / "uv/bin/python")]
    answers = (
        subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
        for python in pythons
        if Path(python).is_file()
    )
    listing = next((answer.stdout for answer in answers if answer.returncode == 0), "")
    settings = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)='(.*)'$", listing, flags=re.MULTILINE):
            settings[name] = value.replace("\\n", " ").strip()
    return settings


def uv_settings(pip: dict[str, str], *, extra_places: bool) -> dict[str, str]:
    """Translate pip's settings to the variables that uv reads."""
    translated = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_NO_INDEX": "1" if pip.get("no-index", "").lower() in {"1", "true", "yes", "on"} else "",
        "UV_INSECURE_HOST": pip.get("trusted-host", ""),
        "UV_HTTP_TIMEOUT": pip.get("timeout", pip.get("default-timeout", "")),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "ALL_PROXY": pip.get("proxy", ""),
    }
    if extra_places:
        translated["UV_INDEX"] = pip.get("extra-index-url", "")
        # pip looks at every index for the best version; the hashes of the lock decide what is accepted.
        translated["UV_INDEX_STRATEGY"] = "unsafe-best-match"
        translated["UV_FIND_LINKS"] = ",".join(pip.get("find-links", "").split())
    return {name: value for name, value in translated.items() if value}


if __name__ == "__main__":
    main(sys.argv[1:])
