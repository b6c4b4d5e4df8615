"""`make fleet-demo` as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fleet_demo.py"


@pytest.mark.slow
@pytest.mark.timeout(330)
def test_a_fleet_works_breaks_and_cleans_up_after_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, timeout=310, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {line.partition("\t")[0] for line in done.stdout.splitlines() if "\t" in line}
    assert kinds >= {"marked", "terminated", "deleted", "purged"}
    assert "was killed in the midst of its job" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("all is clean")
