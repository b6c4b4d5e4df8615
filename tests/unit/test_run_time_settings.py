"""Run-time settings: what is refused, what others change, and what somebody writes by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import FailedPrecondition, InvalidArgument, PermissionDenied, Unavailable
from airunner.services.caller import Caller, current_caller
from airunner.services.composition import Services
from airunner.services.settings.registry import SETTINGS, Home, whole_number
from airunner.services.settings.service import REFRESH_SECONDS
from airunner.stores.memory import MemoryStore
from airunner.stores.settings import StoredSetting, changes_from_json
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services

SIZE = "execution.batching.max_batch_size"
ADAPTIVE = "execution.batching.adaptive"


class HandWritten(MemoryStore):
    """Has what somebody wrote into it by hand, and may be away."""

    away = False

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        if self.away:
            raise Unavailable("away")
        return await super().read_settings(names)

    def write(self, name: str, value: str) -> None:
        stored = self._settings.get(name, StoredSetting())
        self._settings[name] = StoredSetting(value=value, changes=stored.changes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> HandWritten:
    return HandWritten(clock)


@pytest.fixture
async def services(store: HandWritten, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(store, clock) as opened:
        yield opened


async def size_of_next_job(services: Services) -> int:
    (added,) = await services.jobs.enqueue_jobs([make_request()])
    assert not isinstance(added, Exception)
    return (await services.jobs.get_job(added.job_id)).execution.batching.max_batch_size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("execution.batching", "1"),
        ("execution.heartbeat_interval_seconds", "30"),
        ("listen", "0.0.0.0:1"),
        ("", "1"),
        (SIZE, "0"),
        (SIZE, "51"),
        (SIZE, "-1"),
        (SIZE, "1.5"),
        (SIZE, " 5"),
        (SIZE, "5\n"),
        (SIZE, "\u0665"),
        (SIZE, "1_0"),
        (SIZE, "9" * 5_000),
        (SIZE, ""),
        (ADAPTIVE, "1"),
        (ADAPTIVE, "yes"),
    ],
)
async def test_an_unknown_name_or_value_is_refused(services: Services, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await services.settings.set_setting(name, value)
    assert len(refused.value.text) < 500
    assert all(not setting.is_set for setting in await services.settings.list_settings())


async def test_a_setting_says_what_holds_who_set_it_and_what_is_allowed(services: Services) -> None:
    current_caller.set(Caller(principal="ada"))
    setting = await services.settings.set_setting(SIZE, "007")
    assert (setting.value, setting.configured, setting.is_set) == ("7", "50", True)
    assert setting.allowed == "a whole number from 1 to 50"
    assert (setting.changes[0].changed_by, setting.changes[0].old_value) == ("ada", None)
    in_store = sorted(name for name, setting in SETTINGS.items() if setting.home is Home.STORE)
    assert [one.name for one in await services.settings.list_settings()] == in_store
    unset = await services.settings.unset_setting(SIZE)
    assert (unset.value, unset.is_set, unset.changes[0].old_value) == ("50", False, "7")


async def test_a_key_that_is_bound_to_queues_has_no_say(services: Services) -> None:
    current_caller.set(Caller(principal="ada", queues=frozenset({"builds"})))
    for call in (
        services.settings.list_settings(),
        services.settings.set_setting(SIZE, "7"),
        services.settings.unset_setting(SIZE),
    ):
        with pytest.raises(PermissionDenied):
            await call


async def test_what_another_server_sets_holds_within_five_seconds(
    services: Services, store: HandWritten, clock: ManualClock
) -> None:
    assert REFRESH_SECONDS < 5
    async with make_services(store, clock) as other:
        await other.settings.set_setting(SIZE, "7")
        assert await size_of_next_job(other) == 7
        loop = services.settings.periodic()
        loop.start()
        # The maintenance of both servers, and this loop.
        await until(lambda: clock.waiting == 3)
        clock.advance(5)
        await until(lambda: loop.last_turn_at == clock.monotonic())
        assert await size_of_next_job(services) == 7
        await loop.stop()


async def test_a_server_that_starts_has_them_at_once(store: HandWritten, clock: ManualClock) -> None:
    store.write(SIZE, "7")
    async with make_services(store, clock) as services:
        assert await size_of_next_job(services) == 7


async def test_a_value_by_hand_is_taken_and_a_bad_one_leaves_the_last_good_one(
    services: Services, store: HandWritten
) -> None:
    store.write(SIZE, "9")
    await services.settings.refresh()
    with capture_logs() as logs:
        for _ in range(3):
            store.write(SIZE, "many")
            await services.settings.refresh()
    assert [entry["event"] for entry in logs] == ["setting.refused"]
    assert await size_of_next_job(services) == 9
    (setting,) = [one for one in await services.settings.list_settings() if one.name == SIZE]
    assert (setting.value, setting.is_set) == ("9", True)
    store.write(SIZE, "11")
    await services.settings.refresh()
    assert await size_of_next_job(services) == 11


async def test_after_a_restart_the_last_good_one_is_the_last_change(
    services: Services, store: HandWritten, clock: ManualClock
) -> None:
    await services.settings.set_setting(SIZE, "7")
    store.write(SIZE, "many")
    store.write(ADAPTIVE, "perhaps")
    async with make_services(store, clock) as restarted:
        assert await size_of_next_job(restarted) == 7
        (adaptive,) = [one for one in await restarted.settings.list_settings() if one.name == ADAPTIVE]
        assert (adaptive.value, adaptive.is_set) == ("true", False)


async def test_a_store_that_is_away_changes_nothing(services: Services, store: HandWritten) -> None:
    await services.settings.set_setting(SIZE, "7")
    store.away = True
    with pytest.raises(Unavailable):
        await services.settings.refresh()
    assert await size_of_next_job(services) == 7


async def test_a_server_starts_without_an_answer(store: HandWritten, clock: ManualClock) -> None:
    store.away = True
    store.write(SIZE, "7")
    async with make_services(store, clock) as services:
        assert await size_of_next_job(services) == 50


async def test_a_setting_of_another_home_needs_it(
    services: Services, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "gears", whole_number("gears", Home.POSTGRES, 1, 10))
    with pytest.raises(FailedPrecondition, match="postgres"):
        await services.settings.set_setting("gears", "3")
    elsewhere = MemoryStore(clock)
    services.settings.add_home(Home.POSTGRES, elsewhere, {"gears": 5})
    assert (await services.settings.set_setting("gears", "3")).configured == "5"
    assert (await elsewhere.read_settings(["gears"]))["gears"].value == "3"
    assert await size_of_next_job(services) == 50


async def test_a_home_that_is_away_hides_nothing_of_the_others(
    services: Services, store: HandWritten, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "gears", whole_number("gears", Home.POSTGRES, 1, 10))
    monkeypatch.delitem(SETTINGS, "gen_worker_concurrency")
    elsewhere = HandWritten(clock)
    services.settings.add_home(Home.POSTGRES, elsewhere, {"gears": 5})
    await services.settings.set_setting(SIZE, "7")
    await services.settings.set_setting("gears", "3")
    elsewhere.away = True
    found = {setting.name: setting for setting in await services.settings.list_settings()}
    assert list(found) == sorted(SETTINGS)
    assert (found[SIZE].value, found[SIZE].unread_reason) == ("7", "")
    # What holds there is not known, whatever held before.
    gears = found["gears"]
    assert (gears.value, gears.is_set, gears.configured, gears.unread_reason) == ("", False, "5", "away")
    elsewhere.away = False
    found = {setting.name: setting for setting in await services.settings.list_settings()}
    assert (found["gears"].value, found["gears"].unread_reason) == ("3", "")
    # Without its store a server has nothing to say.
    store.away = True
    with pytest.raises(Unavailable):
        await services.settings.list_settings()


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[1]", '[{"value": 1}]', "[" * 100_000, json.dumps([{"value": "a"}])]
)
def test_changes_that_cannot_be_read_are_left_out(text: str) -> None:
    assert changes_from_json(text) == ()
