"""Run-time settings: kept with who changed them, by as many at once as there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airunner.domain.answers import SettingChange
from airunner.stores.settings import MAX_CHANGES

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api

NAME = "execution.batching.max_batch_size"
OTHER = "execution.batching.adaptive"


class SettingsConformance:
    async def test_what_was_never_set_is_not_there(self, api: Api) -> None:
        store, now = api.services.store, api.clock.now()
        assert await store.read_settings([NAME]) == {}
        assert (await store.change_setting(NAME, None, by="ada", now=now)).changes == ()

    async def test_a_change_is_kept_with_who_when_and_the_old_value(self, api: Api) -> None:
        store, now = api.services.store, api.clock.now()
        await store.change_setting(NAME, "5", by="ada", now=now)
        await store.change_setting(NAME, "7", by="böb \u2603", now=now + 1)
        cleared = await store.change_setting(NAME, None, by="ada", now=now + 2)
        assert cleared.value is None
        assert cleared.changes == (
            SettingChange(value=None, old_value="7", changed_by="ada", changed_at=now + 2),
            SettingChange(value="7", old_value="5", changed_by="böb \u2603", changed_at=now + 1),
            SettingChange(value="5", old_value=None, changed_by="ada", changed_at=now),
        )
        assert await store.read_settings([NAME, OTHER]) == {NAME: cleared}

    async def test_the_same_value_again_changes_nothing(self, api: Api) -> None:
        store, now = api.services.store, api.clock.now()
        first = await store.change_setting(NAME, "5", by="ada", now=now)
        assert await store.change_setting(NAME, "5", by="bob", now=now + 1) == first

    async def test_changes_at_the_same_time_are_all_kept(self, api: Api) -> None:
        store, now = api.services.store, api.clock.now()
        await asyncio.gather(
            *(store.change_setting(NAME, str(number), by="ada", now=now) for number in range(1, 5))
        )
        kept = (await store.read_settings([NAME]))[NAME]
        assert sorted(change.value or "" for change in kept.changes) == ["1", "2", "3", "4"]
        assert kept.value == kept.changes[0].value
        assert [change.old_value for change in kept.changes] == [
            *(change.value for change in kept.changes[1:]),
            None,
        ]

    async def test_the_last_hundred_are_kept(self, api: Api) -> None:
        store, now = api.services.store, api.clock.now()
        for number in range(MAX_CHANGES + 2):
            await store.change_setting(NAME, str(number), by="ada", now=now + number)
        kept = (await store.read_settings([NAME]))[NAME]
        assert len(kept.changes) == MAX_CHANGES
        assert (kept.value, kept.changes[-1].value) == (str(MAX_CHANGES + 1), "2")

    async def test_jobs_have_what_is_set_and_then_what_is_configured(self, api: Api) -> None:
        settings = api.services.settings
        await settings.set_setting(NAME, "7")
        await settings.set_setting(OTHER, "false")
        job = await api.jobs.get_job(await api.enqueue())
        assert (job.execution.batching.max_batch_size, job.execution.batching.adaptive) == (7, False)
        await settings.unset_setting(NAME)
        await settings.unset_setting(OTHER)
        again = await api.jobs.get_job(await api.enqueue())
        assert (again.execution.batching.max_batch_size, again.execution.batching.adaptive) == (50, True)
