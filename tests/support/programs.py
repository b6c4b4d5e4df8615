"""Programs that a test runs beside Python: without them it is skipped, and says what to install."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from scripts.programs import PROGRAMS

# Set by .ci/run, which installs them first: there, nothing is skipped for want of a program.
REQUIRED = "REQUIRE_PROGRAMS"


def program(name: str) -> tuple[str, ...]:
    """Return the paths of a program's commands; skip the test where they are missing."""
    wanted = PROGRAMS[name]
    return wanted.paths or unavailable(wanted.excuse)


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where everything has to be there."""
    if os.environ.get(REQUIRED):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
