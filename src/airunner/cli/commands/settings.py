"""`airunner settings`: what can be changed while servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.json_schema import setting_to_json
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import announce, moment, one_line, print_json, print_table, say
from airunner.cli.session import with_client
from airunner.domain.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from airunner.domain.answers import Setting, SettingChange

settings = App(name="settings", help="Read and change settings while servers run.")

SettingName = Annotated[str, Parameter(help="The name of the setting.")]


@settings.command(name="list")
def list_settings(*, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> int:
    """List the settings, their values in effect, and who set them."""
    found = with_client(connection, lambda client: client.list_settings())
    if as_json:
        for setting in found:
            print_json("setting", setting_to_json(setting))
    else:
        rows = [(setting.name, _value(setting), setting.configured, *_origin(setting)) for setting in found]
        print_table(("setting", "value", "configured", "set by", "at"), rows)
    unread = [setting for setting in found if setting.unread_reason]
    for setting in unread:
        say(_unread(setting))
    return ExitCode.AIRUNNER_FAILED if unread else ExitCode.OK


@settings.command
def get(name: SettingName, /, *, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> None:
    """Print the value of a setting, and on standard error its allowed values and last changes."""
    found = with_client(connection, lambda client: client.list_settings())
    setting = next((one for one in found if one.name == name), None)
    if setting is None:
        names = ", ".join(one.name for one in found)
        raise InvalidArgument(f"there is no run-time setting {name!r}; the settings are {names}")
    if setting.unread_reason:
        raise Unavailable(_unread(setting))
    if as_json:
        print_json("setting", setting_to_json(setting))
        return
    print(setting.value)
    announce(f"{name}: allowed is {setting.allowed}; configured is {setting.configured}")
    for change in setting.changes:
        announce(f"  {moment(change.changed_at)} {one_line(change.changed_by)}: {one_line(_step(change))}")


@settings.command(name="set")
def set_setting(
    name: SettingName,
    value: Annotated[str, Parameter(help="The new value.")],
    /,
    *,
    connection: ConnectionOptions = ANY_SERVER,
) -> None:
    """Set a setting on all servers. After 5 seconds it is in effect for jobs that are enqueued from then on.

    Generation workers read theirs every generation.settings_refresh_millis, by default 30 seconds.
    """
    setting = with_client(connection, lambda client: client.set_setting(name, value))
    say(f"{name} is {setting.value}")


@settings.command
def unset(name: SettingName, /, *, connection: ConnectionOptions = ANY_SERVER) -> None:
    """Put the configured value of a setting back into effect."""
    setting = with_client(connection, lambda client: client.unset_setting(name))
    say(f"{name} is {setting.value}, as configured")


def _value(setting: Setting) -> str:
    return "?" if setting.unread_reason else setting.value


def _unread(setting: Setting) -> str:
    return f"{setting.name} could not be read: {one_line(setting.unread_reason)}"


def _origin(setting: Setting) -> tuple[str, str]:
    """Return who set a setting, and when; nothing where it is not set."""
    if not (setting.is_set and setting.changes):
        return "", ""
    return setting.changes[0].changed_by, moment(setting.changes[0].changed_at)


def _step(change: SettingChange) -> str:
    old = "not set" if change.old_value is None else change.old_value
    new = "not set" if change.value is None else change.value
    return f"{old} -> {new}"
