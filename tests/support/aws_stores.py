"""AwsStores on the emulator: empty tables and queues for each test, made the quick way or used again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import pytest

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.clients import OF_A_STORE
from airunner.domain.clock import Clock
from airunner.domain.retry import RetryPolicy
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.listing import ListingBounds
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.aws import new_env
from tests.support.aws_queues import make_queues

QUEUES = ("builds", "other", "one", "two", "three", "third", "high", "low")
# Names that only occur: one queue serves them all. SQS has no room for the long one behind our prefix.
FEW_MORE = ("none",)
MANY_MORE = (*FEW_MORE, "q" * 80, *(f"q{number}" for number in range(20)))

QUICK = RetryPolicy(first_seconds=0.001, max_seconds=0.002, attempts=2)
"""For calls that fail anyway, so that a test need not wait for their tries."""

# The queue behind those names.
_MORE = "more"


class ClockOfAll(ManualClock):
    """A clock of a store that SQS goes by as well."""

    def __init__(self, emulator: EmulatorProcess) -> None:
        super().__init__()
        self._emulator = emulator

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._emulator.advance(seconds)


@contextmanager
def outage(
    emulator: EmulatorProcess, *services: str, breaks_connections: bool = False
) -> Iterator[EmulatorProcess]:
    """Let services of AWS be away, all of them where none is named; move a ClockOfAll meanwhile.

    ```
    with outage(emulator, "dynamodb"):
        clock.advance(600)
    ```
    """
    emulator.set_away(*(services or ("*",)), breaks_connections=breaks_connections)
    try:
        yield emulator
    finally:
        emulator.set_away()


class BorrowLayout(Protocol):
    """Lends the test an empty environment, with or without its bucket; see `LayoutPool`."""

    def __call__(self, more: Sequence[str] = FEW_MORE, *, bucket: bool = False) -> Awaitable[Layout]: ...


class LayoutPool:
    """Environments that the tests of a process use one after the other.

    Each comes back as it was lent but for its contents, which are removed before it is lent again. One that
    anything else was done to is not lent again. Who wants other attributes, more queues or a stream of
    changes uses `make_resources`.
    """

    def __init__(self, emulator: EmulatorProcess) -> None:
        self._emulator = emulator
        self._idle: deque[Layout] = deque()

    async def borrow(self) -> Layout:
        """Return an empty environment, a new one where none is idle; nobody may be connected meanwhile."""
        if self._idle:
            # The one that rests longest: what its test still had under way is over.
            idle = self._idle.popleft()
            if self._empty(idle):
                return idle
        made = await make_resources(self._emulator.url, new_env(), more=(_MORE,), bucket=True)
        self._empty(made)  # from now on it must stay as it is
        return made

    def give_back(self, layout: Layout) -> None:
        self._idle.append(layout)

    def _empty(self, layout: Layout) -> bool:
        queues = [url.rpartition("/")[2] for url in layout.queues.values()]
        names = [*queues, *(f"{name}-dlq" for name in queues)]
        tables = (layout.jobs_table, layout.events_table)
        return self._emulator.empty(layout.env, tables=tables, queues=names, bucket=layout.bucket)


def lent(layout: Layout, more: Sequence[str], *, bucket: bool) -> Layout:
    """Return an environment of the pool as a test wants to see it."""
    named = {queue: layout.queues[queue] for queue in QUEUES} | dict.fromkeys(more, layout.queues[_MORE])
    return replace(layout, queues=named, bucket=layout.bucket if bucket else "")


def more_names(test: pytest.FixtureRequest) -> Sequence[str]:
    """Return what queues a conformance test speaks of beside the usual ones."""
    return MANY_MORE if test.node.originalname == "test_the_limits_themselves_are_accepted" else FEW_MORE


def options_of(url: str) -> AwsOptions:
    """Return options for the emulator.

    Throttles have few tries, since tests wait for the pauses between. Tables have more time than DynamoDB
    needs: on a machine that is busy the emulator needs it.
    """
    return AwsOptions(
        region=REGION,
        endpoint_url=url,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        throttled_attempts=4,
        table_seconds=10.0,
    )


async def make_resources(
    url: str,
    env: str,
    *,
    queues: Sequence[str] = QUEUES,
    more: Sequence[str] = FEW_MORE,
    bucket: bool = False,
    streams: bool = False,
) -> Layout:
    """Make tables and queues of one environment, each queue with its dead-letter queue.

    Every pass of upkeep looks at each queue that has a name.
    """
    layout = Layout(
        env=env,
        jobs_table=f"{env}_jobs",
        events_table=f"{env}_events",
        bucket=f"{env}-payloads" if bucket else "",
        listing_shards=2,
        streams=streams,
    )
    clients = ("dynamodb", "sqs", *(["s3"] if bucket else []))
    async with Aws(replace(options_of(url), clients=clients)) as aws:
        await asyncio.gather(*(aws.dynamodb("CreateTable", **table) for table in shapes.tables(layout)))
        made = await asyncio.gather(
            *(
                make_queues(aws, layout.queue_name(queue), shapes.MAX_RECEIVE_COUNT)
                for queue in (*queues, _MORE)
            )
        )
        if bucket:
            region = {"LocationConstraint": REGION}
            await aws.s3("CreateBucket", Bucket=layout.bucket, CreateBucketConfiguration=region)
    urls = [url for _, url in made]
    named = dict(zip(queues, urls, strict=False)) | dict.fromkeys(more, urls[-1])
    return replace(layout, queues=named)


def make_store(
    url: str,
    layout: Layout,
    clock: Clock,
    list_bounds: ListingBounds | None = None,
    *,
    drop_secrets: bool = False,
    policy: RetryPolicy | None = None,
    watches_parts: bool = False,
    row_format: int = 1,
    address: str = "",
    real_clock: Clock | None = None,
) -> AwsStore:
    """Return a store on the emulator; `policy` is how its calls are repeated, QUICK where AWS is away.

    Its polls go by `real_clock`, by default that of the machine.

    It is for a clock that jumps, unless it `watches_parts`: to such a store a jump is an outage.
    """
    clients = (
        *(name for name in OF_A_STORE if layout.bucket or name != "s3"),
        *(["streams"] if layout.streams else []),
    )
    options = replace(options_of(url), bucket=layout.bucket, clients=clients)
    return AwsStore(
        Aws(options, policy=policy),
        layout,
        clock,
        short_poll_seconds=0,
        list_bounds=list_bounds,
        drop_secrets=drop_secrets,
        watches_parts=watches_parts,
        row_format=row_format,
        address=address,
        real_clock=real_clock,
    )
