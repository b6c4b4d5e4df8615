"""Long lives on AWS with the clock of SQS moving too: messages come back, and end with their retention."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner.services.composition import ServiceRules
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.conformance.stores.holding import LongLivesConformance
from airunner.testing.factories import NEVER_SECONDS
from tests.conformance.conftest import in_process
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, ClockOfAll, make_store


@pytest.fixture
async def api(emulator: EmulatorProcess, aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Api]:
    clock = ClockOfAll(emulator)
    store = make_store(aws.url, await borrow_layout(bucket=True), clock)
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    async with in_process(store, clock, rules) as opened:
        yield opened


@pytest.mark.slow
class TestLongLives(LongLivesConformance):
    pass
