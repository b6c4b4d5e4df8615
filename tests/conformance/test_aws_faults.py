"""The conformance suite on the production store while AWS misbehaves: nothing of it may show.

All chance is from one seed. A call has tries enough that none of them fails to the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from airunner.aws.calls import Aws
from airunner.domain.retry import RetryPolicy
from airunner.services.composition import ServiceRules
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api, OpenApi
from airunner.testing.conformance.stores.cancelling import CancelConformance
from airunner.testing.conformance.stores.dequeue import DequeueConformance
from airunner.testing.conformance.stores.enqueue import EnqueueConformance
from airunner.testing.conformance.stores.holding import FencingConformance, VisibilityConformance
from airunner.testing.conformance.stores.listing import (
    ListingConformance,
    OverviewConformance,
    RetryConformance,
)
from airunner.testing.conformance.stores.publishing import PublishConformance
from airunner.testing.conformance.stores.retention import RetentionConformance
from airunner.testing.conformance.stores.settings import SettingsConformance
from airunner.testing.conformance.stores.settling import CompleteConformance, ReleaseConformance
from airunner.testing.conformance.stores.streaming import LiveConformance, ReplayConformance
from airunner.testing.conformance.stores.waiting import WaitingGetConformance, WaitingUpdateConformance
from tests.conformance.conftest import in_process
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws
from tests.support.aws_stores import BorrowLayout, more_names, options_of

SEED = 4711
PATIENT = RetryPolicy(first_seconds=0.001, max_seconds=0.004, attempts=12)
WRITES = (
    "TransactWriteItems",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "SendMessage",
    "SendMessageBatch",
    "DeleteMessageBatch",
    "ChangeMessageVisibilityBatch",
)


def for_each(operations: tuple[str, ...], kind: FaultKind, probability: float) -> tuple[Fault, ...]:
    return tuple(Fault(operation=name, kind=kind, probability=probability) for name in operations)


LOST_REPLIES = for_each(WRITES, FaultKind.EXECUTE_THEN_DROP, 0.1)
THROTTLING = (Fault(kind=FaultKind.THROTTLE, probability=0.1),)
RESETS = (Fault(kind=FaultKind.RESET, probability=0.1),)
CONFLICTS = for_each(WRITES[:4], FaultKind.CONFLICT, 0.1)
DUPLICATES = for_each(("ReceiveMessage",), FaultKind.DUPLICATE, 0.2)
DISORDER = (*DUPLICATES, *for_each(("ReceiveMessage",), FaultKind.REORDER, 0.5))
STALE = (Fault(kind=FaultKind.STALE_READ),)
PARTS = for_each(("BatchGetItem", "BatchWriteItem"), FaultKind.UNPROCESSED, 0.5)


class Faulty:
    """What befalls the store under test."""

    faults: tuple[Fault, ...]


class LosesReplies(Faulty):
    faults = LOST_REPLIES


@pytest.fixture
def open_api(request: pytest.FixtureRequest, strict_aws: StrictAws, borrow_layout: BorrowLayout) -> OpenApi:
    faults: tuple[Fault, ...] = request.cls.faults

    @asynccontextmanager
    async def opened(rules: ServiceRules) -> AsyncIterator[Api]:
        clock = ManualClock()
        async with strict_aws.proxy(SEED) as proxy:
            layout = await borrow_layout(more_names(request), bucket=True)
            options = replace(options_of(proxy.url), bucket=layout.bucket, call_seconds=5)
            aws = Aws(options, policy=PATIENT)
            for fault in faults:
                proxy.faults.add(fault)
            async with in_process(
                AwsStore(aws, layout, clock, short_poll_seconds=0, watches_parts=False), clock, rules
            ) as api:
                yield api

    return opened


@pytest.mark.slow
class TestEnqueueWithLostReplies(LosesReplies, EnqueueConformance):
    # What is refused before AWS is asked meets none of its faults.
    test_what_is_out_of_range_is_refused_and_adds_nothing = None  # type: ignore[assignment]  # not a test here


class TestFencingWithLostReplies(LosesReplies, FencingConformance):
    pass


class TestCompleteWithLostReplies(LosesReplies, CompleteConformance):
    pass


class TestReleaseWithLostReplies(LosesReplies, ReleaseConformance):
    pass


class TestPublishWithLostReplies(LosesReplies, PublishConformance):
    pass


class TestCancelWithLostReplies(LosesReplies, CancelConformance):
    pass


class TestSettingsWithLostReplies(LosesReplies, SettingsConformance):
    # A hundred calls that are all alike.
    test_the_last_hundred_are_kept = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestRetentionWithLostReplies(LosesReplies, RetentionConformance):
    # Thousands of calls that are all alike.
    test_many_old_jobs_are_purged_in_one_pass = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestDequeueWithLostReplies(LosesReplies, DequeueConformance):
    pass


@pytest.mark.slow
class TestVisibilityWithLostReplies(LosesReplies, VisibilityConformance):
    pass


@pytest.mark.slow
class TestRetryWithLostReplies(LosesReplies, RetryConformance):
    pass


@pytest.mark.slow
class TestListingWithLostReplies(LosesReplies, ListingConformance):
    pass


@pytest.mark.slow
class TestOverviewWithLostReplies(LosesReplies, OverviewConformance):
    pass


@pytest.mark.slow
class TestReplayWithLostReplies(LosesReplies, ReplayConformance):
    # Thousands of calls that are all alike.
    test_more_than_a_page_of_events_is_replayed = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestLiveWithLostReplies(LosesReplies, LiveConformance):
    pass


@pytest.mark.slow
class TestWaitingUpdateWithLostReplies(LosesReplies, WaitingUpdateConformance):
    pass


@pytest.mark.slow
class TestWaitingGetWithLostReplies(LosesReplies, WaitingGetConformance):
    pass


@pytest.mark.slow
class TestDequeueWithDuplicates(Faulty, DequeueConformance):
    faults = DUPLICATES


@pytest.mark.slow
class TestReleaseInDisorder(Faulty, ReleaseConformance):
    faults = DISORDER


@pytest.mark.slow
class TestVisibilityInDisorder(Faulty, VisibilityConformance):
    faults = DISORDER


@pytest.mark.slow
class TestCancelWhenThrottled(Faulty, CancelConformance):
    faults = THROTTLING


@pytest.mark.slow
class TestCompleteWhenThrottled(Faulty, CompleteConformance):
    faults = THROTTLING


@pytest.mark.slow
class TestReplayWithResets(Faulty, ReplayConformance):
    faults = RESETS
    # Thousands of calls that are all alike.
    test_more_than_a_page_of_events_is_replayed = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestFencingWithResets(Faulty, FencingConformance):
    faults = RESETS


@pytest.mark.slow
class TestEnqueueWithConflicts(Faulty, EnqueueConformance):
    faults = CONFLICTS
    # One has hundreds of calls that are all alike, the other none.
    test_a_call_has_1_to_500_entries = None  # type: ignore[assignment]  # not a test here
    test_what_is_out_of_range_is_refused_and_adds_nothing = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestRetentionInParts(Faulty, RetentionConformance):
    faults = PARTS
    test_many_old_jobs_are_purged_in_one_pass = None  # type: ignore[assignment]  # not a test here


@pytest.mark.slow
class TestListingInParts(Faulty, ListingConformance):
    faults = PARTS


@pytest.mark.slow
class TestFencingWithStaleReads(Faulty, FencingConformance):
    faults = STALE


@pytest.mark.slow
class TestReleaseWithStaleReads(Faulty, ReleaseConformance):
    faults = STALE
