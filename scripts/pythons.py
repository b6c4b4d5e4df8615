"""Run a target of the Makefile on each Python that is installed: python3 scripts/pythons.py TARGET.

From 3.11 to 3.13, each in an environment of its own, `.venv-3.12` or so. They are looked for on the PATH,
by uv and in the folders of pyenv; none is fetched. Runs on any Python 3.8 or newer, as uv.py does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
ROOT = Path(__file__).resolve().parent.parent
VERSION_PROGRAM = "import sys; print('%d.%d' % sys.version_info[:2])"


def main(target: str) -> None:
    """Run the target on each, all of them whatever becomes of one; exit with 1 unless all succeed."""
    found = {version: python for version in VERSIONS for python in [find(version)] if python}
    if not found:
        sys.exit(f"there is no Python {' or '.join(VERSIONS)}")
    outcomes = {version: run(target, version, python) for version, python in found.items()}
    for version in VERSIONS:
        print(f"Python {version}: {outcomes.get(version, 'not installed')}", flush=True)
    if set(outcomes.values()) != {"passed"}:
        sys.exit(1)


def find(version: str) -> str | None:
    """Return the path of an interpreter of this version, if there is one."""
    return next((python for python in candidates(version) if is_of(version, python)), None)


def candidates(version: str) -> list[str]:
    """Return where such an interpreter may be; what is there may be of another version, or broken."""
    uv = [sys.executable, str(ROOT / "scripts" / "uv.py"), "python", "find", "--system", version]
    told_by_uv = subprocess.run(uv, capture_output=True, text=True, check=False).stdout.strip()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    newest_first = sorted(pyenv.glob(f"{version}.*"), key=patch_of, reverse=True)
    of_pyenv = [str(folder / "bin" / "python") for folder in newest_first]
    return [path for path in (shutil.which(f"python{version}"), told_by_uv, *of_pyenv) if path]


def patch_of(folder: Path) -> int:
    patch = folder.name.rpartition(".")[2]
    return int(patch) if patch.isdigit() else -1


def is_of(version: str, python: str) -> bool:
    """Whether this is an interpreter of the version; a shim of pyenv may be none."""
    try:
        answer = subprocess.run([python, "-c", VERSION_PROGRAM], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def run(target: str, version: str, python: str) -> str:
    """Run the target in the environment of a version; return how it went."""
    print(f"Python {version}: {python}", flush=True)
    make = [os.environ.get("MAKE", "make"), "--no-print-directory", target]
    chosen = [f"VENV=.venv-{version}", f"VENV_PYTHON={python}"]
    done = subprocess.run([*make, *chosen], cwd=ROOT, check=False)
    return "failed" if done.returncode else "passed"


if __name__ == "__main__":
    main(sys.argv[1])
