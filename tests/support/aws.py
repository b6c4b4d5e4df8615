"""AWS for tests: one emulator for each test process, a proxy and names of its own for each test."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.doubles.aws.dynalite import DynaliteProcess
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorFailed, EmulatorProcess
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.programs import unavailable

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

    from airunner.stores.aws.layout import Layout
    from tests.support.aws_stores import BorrowLayout, LayoutPool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def emulator() -> Iterator[EmulatorProcess]:
    """One for each process of the tests; what the tests leave in it differs by `aws_env`."""
    with EmulatorProcess() as running:
        yield running


@pytest.fixture
def aws_env() -> str:
    """The name of an environment that no other test has: part of the names of tables, queues and buckets."""
    return new_env()


@pytest.fixture(scope="session")
def layout_pool(emulator: EmulatorProcess) -> LayoutPool:
    # Late, as below.
    from tests.support.aws_stores import LayoutPool

    return LayoutPool(emulator)


@pytest.fixture
def borrow_layout(layout_pool: LayoutPool) -> Iterator[BorrowLayout]:
    """Lends tables, queues and a bucket that are empty, and that the next test has when this one is over."""
    from tests.support.aws_stores import FEW_MORE, lent

    borrowed: list[Layout] = []

    async def borrow(more: Sequence[str] = FEW_MORE, *, bucket: bool = False) -> Layout:
        borrowed.append(await layout_pool.borrow())
        return lent(borrowed[-1], more, bucket=bucket)

    yield borrow
    for layout in borrowed:
        layout_pool.give_back(layout)


@pytest.fixture
def strict_aws(emulator: EmulatorProcess) -> StrictAws:
    """The rules of AWS over the emulator: `async with strict_aws.proxy()` is one more replica's way to it."""
    return StrictAws(emulator.url, lambda: time.monotonic() + emulator.ahead_seconds)


@pytest.fixture
async def aws(strict_aws: StrictAws) -> AsyncIterator[StrictProxy]:
    """A strict proxy before the emulator: what the code under test shall take for AWS, at `aws.url`.

    `aws.faults` lets calls go wrong, `aws.counts` says what was asked.
    """
    async with strict_aws.proxy() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def dynalite() -> Iterator[DynaliteProcess]:
    """The second opinion on DynamoDB; tests that want it are skipped where it cannot be had."""
    process = DynaliteProcess(ROOT / ".tools" / "dynalite")
    try:
        process.start()
    except EmulatorFailed as error:
        unavailable(str(error))
    yield process
    process.stop()


def new_env() -> str:
    """Return the name of an environment that nobody else has."""
    return f"t{secrets.token_hex(4)}"


def client(
    service: Literal["dynamodb", "sqs", "s3", "ec2", "ssm", "cloudwatch"],
    url: str,
    *,
    read_timeout: float = 60,
) -> AbstractAsyncContextManager[Any]:
    """Return a plain SDK client of the endpoint. It tries once: tests see each answer as it came."""
    # Late, since this module is a plug-in of all tests and the SDK takes its time.
    from aiobotocore.config import AioConfig

    return _session().create_client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=AioConfig(
            retries={"total_max_attempts": 1}, read_timeout=read_timeout, s3={"addressing_style": "path"}
        ),
    )


@asynccontextmanager
async def clients(url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Open clients of DynamoDB and SQS."""
    async with client("dynamodb", url) as dynamodb, client("sqs", url) as sqs:
        yield dynamodb, sqs


@cache
def _session() -> AioSession:
    """One for all clients: reading what it knows of a service takes longer than most tests."""
    from aiobotocore.session import get_session

    return get_session()
