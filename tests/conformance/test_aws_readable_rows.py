"""The contract with rows that people can read, `store.aws.row_format: 2`: where parameters and ends count."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner.services.composition import ServiceRules
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.conformance.stores.listing import RetryConformance, SecretsConformance
from airunner.testing.conformance.stores.settling import CompleteConformance
from airunner.testing.factories import NEVER_SECONDS
from tests.conformance.conftest import in_process
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store


@pytest.fixture
async def api(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Api]:
    clock = ManualClock()
    store = make_store(aws.url, await borrow_layout(bucket=True), clock, row_format=2)
    async with in_process(store, clock, ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)) as opened:
        yield opened


@pytest.mark.slow
class TestRetry(RetryConformance):
    pass


class TestSecrets(SecretsConformance):
    pass


@pytest.mark.slow
class TestComplete(CompleteConformance):
    pass
