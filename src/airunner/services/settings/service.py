"""Reading and changing run-time settings, and following what others change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.answers import Setting
from airunner.domain.errors import AirunnerError, FailedPrecondition, InvalidArgument, PermissionDenied
from airunner.services.call_log import log_setting_changed
from airunner.services.caller import current_caller
from airunner.services.periodic import READING_SECONDS, Periodic
from airunner.services.settings.registry import SETTINGS, Home, RunTimeSetting, SettingValue, value_text
from airunner.stores.settings import StoredSetting
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.domain.clock import Clock
    from airunner.stores.settings import SettingStore

_log = get_logger("airunner.settings")

REFRESH_SECONDS: Final = 4.0
"""How often a server looks at what is kept in its store: a change holds everywhere after 5 s."""


class RunTimeSettings:
    """The settings of one server. `on_values` is called with those that are set, after each look and change.

    A value that somebody wrote into a home by hand and that is not allowed is logged once; the last good one
    stays in effect.
    """

    def __init__(
        self,
        store: SettingStore,
        clock: Clock,
        *,
        configured: Mapping[str, SettingValue],
        on_values: Callable[[Mapping[str, SettingValue]], None],
    ) -> None:
        """`configured` has what holds while a setting is not set."""
        self._homes: dict[Home, SettingStore] = {Home.STORE: store}
        self._clock = clock
        self._configured = dict(configured)
        self._on_values = on_values
        self._values: dict[str, SettingValue] = {}
        self._refused: dict[str, str] = {}

    def add_home(self, home: Home, store: SettingStore, configured: Mapping[str, SettingValue]) -> None:
        """Serve the settings of another home, too; who uses these looks at them by itself."""
        self._homes[home] = store
        self._configured.update(configured)

    def periodic(self) -> Periodic:
        """Return the loop that looks at what other servers, or somebody by hand, have changed."""
        return Periodic(
            "settings",
            self.refresh,
            clock=self._clock,
            interval_seconds=REFRESH_SECONDS,
            failure_event="settings.refresh_failed",
            turn_seconds=READING_SECONDS,
        )

    async def open(self) -> None:
        """Look for the first time; where that fails, what is configured holds until the loop has looked."""
        try:
            await self.refresh()
        except AirunnerError as error:
            _log.warning("settings.refresh_failed", error=error.text)

    async def refresh(self) -> None:
        """Take what the store has now."""
        settings = [setting for setting in SETTINGS.values() if setting.home is Home.STORE]
        stored = await self._homes[Home.STORE].read_settings([setting.name for setting in settings])
        for setting in settings:
            self._take(setting, stored.get(setting.name, StoredSetting()))
        self._on_values(self._values)

    async def list_settings(self) -> list[Setting]:
        """Return all settings whose homes this server has, by name.

        Those of a home that does not answer say why; only without its store a server raises.
        """
        _check_unbound()
        found = [setting for home in self._homes for setting in await self._list_home(home)]
        return sorted(found, key=lambda setting: setting.name)

    async def set_setting(self, name: str, value: str) -> Setting:
        """Set a setting; InvalidArgument if there is none of that name, or the value is not allowed."""
        setting = _known(name)
        return await self._change(setting, value_text(setting.parse(value)))

    async def unset_setting(self, name: str) -> Setting:
        """Let what is configured hold again."""
        return await self._change(_known(name), None)

    async def _list_home(self, home: Home) -> list[Setting]:
        settings = [setting for setting in SETTINGS.values() if setting.home is home]
        try:
            stored = await self._homes[home].read_settings([setting.name for setting in settings])
        except AirunnerError as error:
            if home is Home.STORE:
                raise
            return [self._unread(setting, error.text) for setting in settings]
        return [self._shown(setting, stored.get(setting.name, StoredSetting())) for setting in settings]

    async def _change(self, setting: RunTimeSetting, value: str | None) -> Setting:
        _check_unbound()
        by = current_caller.get().principal
        store = self._home_of(setting)
        stored = await store.change_setting(setting.name, value, by=by, now=self._clock.now())
        log_setting_changed(setting.name, stored)
        shown = self._shown(setting, stored)
        if setting.home is Home.STORE:
            self._on_values(self._values)
        return shown

    def _home_of(self, setting: RunTimeSetting) -> SettingStore:
        if setting.home not in self._homes:
            raise FailedPrecondition(
                f"{setting.name} is kept in {setting.home.value}, which this server does not have"
            )
        return self._homes[setting.home]

    def _shown(self, setting: RunTimeSetting, stored: StoredSetting) -> Setting:
        self._take(setting, stored)
        configured = value_text(self._configured[setting.name])
        value = self._values.get(setting.name)
        return Setting(
            name=setting.name,
            value=configured if value is None else value_text(value),
            configured=configured,
            is_set=value is not None,
            allowed=setting.allowed,
            changes=stored.changes,
        )

    def _unread(self, setting: RunTimeSetting, reason: str) -> Setting:
        return Setting(
            name=setting.name,
            value="",
            configured=value_text(self._configured[setting.name]),
            is_set=False,
            allowed=setting.allowed,
            unread_reason=reason,
        )

    def _take(self, setting: RunTimeSetting, stored: StoredSetting) -> None:
        """Take a stored value; in place of one that is not allowed, the last good one."""
        name = setting.name
        if stored.value is None:
            self._values.pop(name, None)
            self._refused.pop(name, None)
            return
        try:
            self._values[name] = setting.parse(stored.value)
        except InvalidArgument as error:
            self._keep_last_good(setting, stored)
            if self._refused.get(name) != stored.value:
                self._refused[name] = stored.value
                _log.warning("setting.refused", name=name, error=error.text)
        else:
            self._refused.pop(name, None)

    def _keep_last_good(self, setting: RunTimeSetting, stored: StoredSetting) -> None:
        last = stored.changes[0].value if stored.changes else None
        if setting.name in self._values or last is None:
            return
        try:
            self._values[setting.name] = setting.parse(last)
        except InvalidArgument:
            return


def _known(name: str) -> RunTimeSetting:
    if name in SETTINGS:
        return SETTINGS[name]
    raise InvalidArgument(
        f"there is no run-time setting {name[:80]!r}; the settings are {', '.join(sorted(SETTINGS))}"
    )


def _check_unbound() -> None:
    """Refuse a caller that is bound to queues: settings are for all of them."""
    if current_caller.get().queues:
        raise PermissionDenied("this API key is bound to queues, but settings affect all queues")
