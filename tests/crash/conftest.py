from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.crowd import Crowd, gathered_crowd
from tests.support.processes import Stack, running_stack


@pytest.fixture
def seed() -> int:
    """The seed of everything random in a test; CRASH_SEED repeats one."""
    chosen = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={chosen}")  # noqa: T201  pytest shows it with a failure
    return chosen


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as running:
        yield running


@pytest.fixture
async def crowd(stack: Stack, seed: int) -> AsyncIterator[Crowd]:
    await stack.start_server()
    async with gathered_crowd(stack, seed) as gathered:
        yield gathered
