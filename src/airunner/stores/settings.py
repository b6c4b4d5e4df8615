"""The SettingStore: where run-time settings are kept, beside the jobs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain.answers import SettingChange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MAX_CHANGES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSetting:
    """A setting as a store keeps it. Somebody may have written the value by hand: it can be any text."""

    value: str | None = None
    """None if it is not set."""
    changes: tuple[SettingChange, ...] = ()
    """The last MAX_CHANGES, the newest first."""


class SettingStore(Protocol):
    """Where run-time settings are kept. It knows neither their names nor which values they may have."""

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        """Return those of the settings that were ever set."""

    async def change_setting(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set a setting, or unset it with None, and note that; see `changed`. May be repeated."""


def changed(stored: StoredSetting, value: str | None, *, by: str, now: int) -> StoredSetting:
    """Return a setting with another value and the change noted; one that has it already stays as it is."""
    if value == stored.value:
        return stored
    change = SettingChange(value=value, old_value=stored.value, changed_by=by, changed_at=now)
    return StoredSetting(value=value, changes=(change, *stored.changes)[:MAX_CHANGES])


def changes_to_json(changes: Sequence[SettingChange]) -> str:
    """Return changes as stores keep them: a text that people can read."""
    return json.dumps([asdict(change) for change in changes], separators=(",", ":"), ensure_ascii=False)


def changes_from_json(text: str) -> tuple[SettingChange, ...]:
    """Return the changes of such a text, without those that cannot be read."""
    try:
        entries = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return ()
    changes = map(_change, entries) if isinstance(entries, list) else ()
    return tuple(change for change in changes if change)[:MAX_CHANGES]


def _change(entry: object) -> SettingChange | None:
    match entry:
        case {
            "value": str() | None as value,
            "old_value": str() | None as old_value,
            "changed_by": str(changed_by),
            "changed_at": int(changed_at),
        }:
            return SettingChange(
                value=value, old_value=old_value, changed_by=changed_by, changed_at=changed_at
            )
    return None
