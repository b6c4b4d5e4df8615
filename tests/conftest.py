from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Whoever runs the tests in the background of a shell hands this down, and Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports them, so that their assertions explain themselves.
pytest.register_assert_rewrite("airunner.testing.conformance", "tests.crash.crowd", "tests.support")

# Here, since only the topmost conftest may name plug-ins: one emulator and one PostgreSQL serve all tests of
# a process. The last is for `make test-aws` alone.
pytest_plugins = (
    *("tests.support.aws", "tests.support.postgres"),
    *(["tests.support.account"] if "TEST_AWS_ENV" in os.environ else []),
)

_configure_logs = structlog.configure


def _configure_logs_of_a_test(**wishes: Any) -> None:
    """Do not cache loggers: one would keep how its first line was written for all tests of a process."""
    _configure_logs(**{**wishes, "cache_logger_on_first_use": False})


@pytest.fixture(autouse=True)
def logs_set_up_by_nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget how a test, or a command that it ran in this process, set up the logs."""
    monkeypatch.setattr(structlog, "configure", _configure_logs_of_a_test)
    yield
    structlog.reset_defaults()


# The examples of a machine that runs over a socket or a file differ in time with the load of the computer.
_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]

# How many examples: as many as one waits for, as many as find what is there to be found, and more.
for _profile, _examples in {"quick": 25, "ci": 100, "long": 1000}.items():
    settings.register_profile(
        _profile, deadline=None, print_blob=True, suppress_health_check=_PATIENT, max_examples=_examples
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
