"""Run-time settings, a row for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.stores.settings import StoredSetting, changed, changes_from_json, changes_to_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection


def read_settings(connection: sqlite3.Connection, names: Collection[str]) -> dict[str, StoredSetting]:
    """Return those of the settings that were ever set."""
    marks = ", ".join("?" * len(names))
    rows = connection.execute(
        f"SELECT name, value, changes FROM settings WHERE name IN ({marks})",
        tuple(names),
    )
    return {name: _setting(value, changes) for name, value, changes in rows}


def change_setting(
    connection: sqlite3.Connection, name: str, value: str | None, *, by: str, now: int
) -> StoredSetting:
    """Set or unset a setting."""
    stored = read_settings(connection, [name]).get(name, StoredSetting())
    new = changed(stored, value, by=by, now=now)
    if new is not stored:
        connection.execute(
            "INSERT OR REPLACE INTO settings (name, value, changes) VALUES (?, ?, ?)",
            (name, new.value, changes_to_json(new.changes)),
        )
    return new


def _setting(value: object, changes: object) -> StoredSetting:
    # What somebody wrote by hand may be a number, or anything else.
    return StoredSetting(value=None if value is None else str(value), changes=changes_from_json(str(changes)))
