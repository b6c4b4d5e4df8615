"""One replica of the production store whose calls are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_services
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store

pytest_plugins = ("tests.support.aws",)


class Metered:
    """One replica, and what it has asked since `begin`."""

    def __init__(self, store: AwsStore, api: Api, aws: StrictProxy) -> None:
        self.store = store
        self.aws = aws
        self.api = api

    async def begin(self) -> None:
        """Count from now, once nothing is under way any more."""
        await self.settle()
        self.aws.counts.reset()

    async def settle(self) -> None:
        """Wait for all that follows answers."""
        await self.store._background_tasks.finish()

    async def calls(self) -> dict[str, int]:
        """What was asked, with all that followed the answers."""
        await self.settle()
        return dict(self.aws.counts.calls)

    @property
    def items_read(self) -> int:
        return self.aws.counts.items_read

    @property
    def items_written(self) -> int:
        return self.aws.counts.items_written


@pytest.fixture
async def metered(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Metered]:
    clock = ManualClock()
    layout = await borrow_layout()
    # A pass of the maintenance looks at each queue that has a name.
    layout = replace(layout, queues={QUEUE: layout.queues[QUEUE]})
    store = make_store(aws.url, layout, clock)
    async with make_services(store, clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        # The first job of a queue notes that the queue is used; all others find that done.
        await api.complete(await api.new_claim())
        metered = Metered(store, api, aws)
        await metered.begin()
        yield metered
