"""Run-time settings to and from the messages of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from airunner.codec.building import refusing
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant, set_instant
from airunner.domain.answers import Setting, SettingChange

if TYPE_CHECKING:
    from collections.abc import Sequence


class SetArguments(TypedDict):
    """The arguments of `set_setting`."""

    name: str
    value: str


def list_to_pb() -> pb.ListSettingsRequest:
    """Return the message that asks for all settings."""
    return pb.ListSettingsRequest()


@refusing
def set_to_pb(**arguments: Unpack[SetArguments]) -> pb.SetSettingRequest:
    """Return the message that sets a setting."""
    return pb.SetSettingRequest(**arguments)


def set_from_pb(message: pb.SetSettingRequest) -> SetArguments:
    """Return which setting is to be set, and to what."""
    return SetArguments(name=message.name, value=message.value)


@refusing
def unset_to_pb(name: str) -> pb.UnsetSettingRequest:
    """Return the message that unsets a setting."""
    return pb.UnsetSettingRequest(name=name)


def unset_from_pb(message: pb.UnsetSettingRequest) -> str:
    """Return the name of the setting to unset."""
    return message.name


def settings_to_pb(settings: Sequence[Setting]) -> pb.ListSettingsResponse:
    """Return the message of all settings."""
    return pb.ListSettingsResponse(settings=map(_setting_to_pb, settings))


def settings_from_pb(message: pb.ListSettingsResponse) -> list[Setting]:
    """Return all settings."""
    return list(map(_setting_from_pb, message.settings))


def set_answer_to_pb(setting: Setting) -> pb.SetSettingResponse:
    """Return the answer with a setting that was set."""
    return pb.SetSettingResponse(setting=_setting_to_pb(setting))


def unset_answer_to_pb(setting: Setting) -> pb.UnsetSettingResponse:
    """Return the answer with a setting that was unset."""
    return pb.UnsetSettingResponse(setting=_setting_to_pb(setting))


def changed_from_pb(message: pb.SetSettingResponse | pb.UnsetSettingResponse) -> Setting:
    """Return a setting that was set or unset."""
    return _setting_from_pb(message.setting)


def _setting_to_pb(setting: Setting) -> pb.Setting:
    return pb.Setting(
        name=setting.name,
        value=setting.value,
        configured=setting.configured,
        is_set=setting.is_set,
        allowed=setting.allowed,
        changes=map(_change_to_pb, setting.changes),
        unread_reason=setting.unread_reason,
    )


def _setting_from_pb(message: pb.Setting) -> Setting:
    return Setting(
        name=message.name,
        value=message.value,
        configured=message.configured,
        is_set=message.is_set,
        allowed=message.allowed,
        changes=tuple(map(_change_from_pb, message.changes)),
        unread_reason=message.unread_reason,
    )


def _change_to_pb(change: SettingChange) -> pb.SettingChange:
    message = pb.SettingChange(value=change.value, old_value=change.old_value, changed_by=change.changed_by)
    set_instant(message.changed_at, change.changed_at)
    return message


def _change_from_pb(message: pb.SettingChange) -> SettingChange:
    return SettingChange(
        value=message.value if message.HasField("value") else None,
        old_value=message.old_value if message.HasField("old_value") else None,
        changed_by=message.changed_by,
        changed_at=instant(message.changed_at, "changed_at"),
    )
