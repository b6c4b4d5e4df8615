"""Run-time settings, as items of the jobs table: each write on the condition that nobody else was quicker."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from airunner.aws.calls import ConditionFailed
from airunner.domain.errors import Unavailable
from airunner.stores.aws.forms.values import from_value
from airunner.stores.aws.items import text, update_expression
from airunner.stores.settings import StoredSetting, changed, changes_from_json, changes_to_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.aws.calls import Aws
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows

_PREFIX: Final = "setting#"
_RACES: Final = 20


class SettingItems:
    """Keeps run-time settings. A write sets a new nonce, so that a lost reply is told from a lost race."""

    def __init__(self, aws: Aws, layout: Layout, rows: Rows) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows

    async def read(self, names: Collection[str]) -> dict[str, StoredSetting]:
        """Return those of the settings that were ever set."""
        items = await self._rows.read_many([f"{_PREFIX}{name}" for name in names])
        return {key.removeprefix(_PREFIX): _setting(item) for key, item in items.items()}

    async def change(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set or unset a setting."""
        key, nonce = f"{_PREFIX}{name}", secrets.token_hex(8)
        item: Item = (await self._rows.read_many([key])).get(key, {})
        for _ in range(_RACES):
            stored = _setting(item)
            new = changed(stored, value, by=by, now=now)
            if new is stored:
                return stored
            try:
                await self._write(key, new, nonce, item)
            except ConditionFailed as refused:
                item = refused.item or {}
                if item.get("nonce") == text(nonce):
                    return new
            else:
                return new
        raise Unavailable(f"too many others change the setting {name} at the same time")

    async def _write(self, key: str, new: StoredSetting, nonce: str, item: Item) -> None:
        changes: Item = {"changes": text(changes_to_json(new.changes)), "nonce": text(nonce)}
        if new.value is not None:
            changes["value"] = text(new.value)
        # Somebody who writes by hand sets no nonce: what the value was is a condition, too.
        conditions = {"nonce": item.get("nonce"), "value": item.get("value")}
        await self._aws.dynamodb(
            "UpdateItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(key)},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **update_expression(changes, () if new.value is not None else ("value",), conditions),
        )


def _setting(item: Item) -> StoredSetting:
    # What somebody wrote by hand may be a number, or anything else.
    value = from_value(item["value"]) if "value" in item else None
    changes = from_value(item["changes"]) if "changes" in item else ""
    return StoredSetting(value=_text(value), changes=changes_from_json(str(changes)))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
