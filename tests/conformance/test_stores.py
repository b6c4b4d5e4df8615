"""Every subject of the conformance suite, on every backend of the conftest."""

from __future__ import annotations

from airunner.testing.conformance.stores.abilities import AbilitiesConformance
from airunner.testing.conformance.stores.cancelling import CancelConformance
from airunner.testing.conformance.stores.dequeue import DequeueConformance
from airunner.testing.conformance.stores.enqueue import EnqueueConformance
from airunner.testing.conformance.stores.holding import (
    FencingConformance,
    FirstLeaseConformance,
    LongLivesConformance,
    VisibilityConformance,
)
from airunner.testing.conformance.stores.listing import (
    BoundedListingConformance,
    ListingConformance,
    OverviewConformance,
    RetryConformance,
    SecretsConformance,
)
from airunner.testing.conformance.stores.publishing import PublishConformance
from airunner.testing.conformance.stores.retention import RetentionConformance
from airunner.testing.conformance.stores.running import RunningConformance
from airunner.testing.conformance.stores.settings import SettingsConformance
from airunner.testing.conformance.stores.settling import CompleteConformance, ReleaseConformance
from airunner.testing.conformance.stores.streaming import LiveConformance, ReplayConformance
from airunner.testing.conformance.stores.waiting import WaitingGetConformance, WaitingUpdateConformance


class TestEnqueue(EnqueueConformance):
    pass


class TestDequeue(DequeueConformance):
    pass


class TestAbilities(AbilitiesConformance):
    pass


class TestVisibility(VisibilityConformance):
    pass


class TestLongLives(LongLivesConformance):
    pass


class TestFirstLease(FirstLeaseConformance):
    pass


class TestFencing(FencingConformance):
    pass


class TestRelease(ReleaseConformance):
    pass


class TestComplete(CompleteConformance):
    pass


class TestCancel(CancelConformance):
    pass


class TestListing(ListingConformance):
    pass


class TestBoundedListing(BoundedListingConformance):
    pass


class TestSecrets(SecretsConformance):
    pass


class TestOverview(OverviewConformance):
    pass


class TestRetry(RetryConformance):
    pass


class TestPublish(PublishConformance):
    pass


class TestReplay(ReplayConformance):
    pass


class TestLive(LiveConformance):
    pass


class TestWaitingUpdate(WaitingUpdateConformance):
    pass


class TestWaitingGet(WaitingGetConformance):
    pass


class TestRetention(RetentionConformance):
    pass


class TestSettings(SettingsConformance):
    pass


class TestRunning(RunningConformance):
    pass
