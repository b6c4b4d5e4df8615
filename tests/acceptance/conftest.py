from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, serving


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    """Somebody in an empty folder, without a server."""
    return CommandLine(folder=tmp_path)


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Somebody whose variables name a server that has a worker; both are shared by all tests of a process.

    A test leaves them as it found them: its own jobs end, and what it pauses it resumes.
    """
    folder = tmp_path_factory.mktemp("stack")
    nobody = CommandLine(folder=folder)
    with serving(nobody, "--no-auth") as (_, url):
        anybody = CommandLine(folder=folder, variables={"AIRUNNER_SERVER": url})
        with anybody.start("worker", "--concurrency", "4", "--worker-id", "shared") as worker:
            worker.wait_for("airunner worker serves")
            yield anybody
