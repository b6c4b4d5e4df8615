"""Run-time settings in the application's database: the tables `app_settings` and `app_settings_history`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airunner.domain.answers import SettingChange
from airunner.postgres.identifiers import quote_identifier
from airunner.stores.settings import MAX_CHANGES, StoredSetting, changed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airunner.postgres.pool import Database, PooledConnection

# Of all that airunner may ever lock in a database of somebody else.
_LOCK: Final = 0x6169_7275_6E04

_VALUE: Final = "SELECT value #>> '{}' FROM {schema}.app_settings WHERE name = $1"
_CHANGES: Final = """\
SELECT new_value #>> '{}' AS value, old_value #>> '{}' AS old_value, by, at
FROM {schema}.app_settings_history WHERE name = $1 ORDER BY number DESC LIMIT $2
"""
_SET: Final = """\
INSERT INTO {schema}.app_settings (name, value, by, at)
VALUES ($1, $2::text::jsonb, $3, to_timestamp($4::double precision / 1000))
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, by = EXCLUDED.by, at = EXCLUDED.at
"""
_UNSET: Final = "DELETE FROM {schema}.app_settings WHERE name = $1"
# What somebody wrote by hand may be any JSON value: its text is kept.
_NOTE: Final = """\
INSERT INTO {schema}.app_settings_history (name, old_value, new_value, by, at)
VALUES ($1, to_jsonb($2::text), to_jsonb($3::text), $4, to_timestamp($5::double precision / 1000))
"""
_FORGET: Final = """\
DELETE FROM {schema}.app_settings_history WHERE name = $1 AND number NOT IN (
    SELECT number FROM {schema}.app_settings_history WHERE name = $1 ORDER BY number DESC LIMIT $2
)
"""


class AppSettings:
    """Implements SettingStore. `open_database` gives a database to open for each call: they are rare."""

    def __init__(self, open_database: Callable[[], Database], schema: str) -> None:
        self._open_database = open_database
        self._schema = quote_identifier(schema)

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        """Return those of the settings that were ever set."""
        async with self._open_database() as database, database.transaction() as connection:
            found = {name: await self._read(connection, name) for name in names}
        return {name: stored for name, stored in found.items() if stored != StoredSetting()}

    async def change_setting(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set a setting, or unset it with None, and note that. May be repeated; one change at a time."""
        async with self._open_database() as database, database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            before = await self._read(connection, name)
            after = changed(before, value, by=by, now=now)
            if after != before:
                if value is None:
                    await connection.execute(self._text(_UNSET), name)
                else:
                    await connection.execute(self._text(_SET), name, value, by, float(now))
                await connection.execute(self._text(_NOTE), name, before.value, value, by, float(now))
                await connection.execute(self._text(_FORGET), name, MAX_CHANGES)
        return after

    async def _read(self, connection: PooledConnection, name: str) -> StoredSetting:
        rows = await connection.fetch(self._text(_CHANGES), name, MAX_CHANGES)
        value = await connection.fetchval(self._text(_VALUE), name)
        return StoredSetting(value=value, changes=tuple(map(_change, rows)))

    def _text(self, statement: str) -> str:
        return statement.replace("{schema}", self._schema)


def _change(row: Any) -> SettingChange:
    return SettingChange(
        value=row["value"],
        old_value=row["old_value"],
        changed_by=row["by"],
        changed_at=round(row["at"].timestamp() * 1000),
    )
