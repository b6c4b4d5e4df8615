"""Running commands as somebody who is not root, also where the tests are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NOBODY = 65534
# It may read files, since the interpreter may be in a folder of root's, but not look into other processes.
_BECOME_NOBODY = (
    *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
)


def through_nobody() -> tuple[str, ...]:
    """Return the command that runs another one without root's rights; skip where there is none."""
    if os.getuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    if subprocess.run([*_BECOME_NOBODY, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us become somebody else")
    return _BECOME_NOBODY


def folder_of_nobody(path: Path) -> Path:
    """Make a folder in which such a command may write."""
    path.mkdir()
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path
