"""`make test-aws`, rehearsed on the emulator with a few of its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.aws import clients, new_env

ROOT = Path(__file__).parents[2]
STAYS = "test_a_repeat_within_one_call_makes_one_job"
MOVES = "test_a_delayed_job_is_claimable_when_it_is_due"


@pytest.mark.slow
async def test_a_run_counts_what_it_leaves_out_and_leaves_nothing_behind(emulator: EmulatorProcess) -> None:
    env = new_env()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"),
            *("tests/conformance/test_stores.py", "-k", f"[aws] and ({STAYS} or {MOVES})"),
        ],
        cwd=ROOT,
        env={**os.environ, "TEST_AWS_ENV": env, "TEST_AWS_ENDPOINT": emulator.url},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (
        f"account: environment test-{env} on {emulator.url}: 2 tables, 18 queues and a bucket" in done.stdout
    )
    assert "account: a whole run is about 5,000 requests of dynamodb" in done.stdout
    assert "account: 1 tests that move time were left out" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    async with clients(emulator.url) as (dynamodb, sqs):
        assert not [name for name in (await dynamodb.list_tables())["TableNames"] if env in name]
        assert "QueueUrls" not in await sqs.list_queues(QueueNamePrefix=f"airunner-test-{env}")
