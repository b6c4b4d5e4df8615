"""Programs in a Python of their own, of which nothing is measured: what a module loads is its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_plain(program: str) -> str:
    """Run a program and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout
