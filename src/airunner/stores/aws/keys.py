"""API keys, as items of the jobs table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.aws.calls import ConditionFailed
from airunner.stores.aws.items import blob, blob_at, number, number_at, text, text_at, update_expression
from airunner.stores.records import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.unreadable import UnreadableRows

_PREFIX = "key#"
# No queue can be called so; one called `keys` shares the second, under which older versions list keys.
_LIST_KEY = "#keys#0"
_FORMER_LIST_KEY = "keys#0"


class Keys:
    """Keeps API keys; only the hashes of their secrets."""

    def __init__(self, aws: Aws, layout: Layout, rows: Rows, unreadable: UnreadableRows) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._unreadable = unreadable

    async def add(self, key: ApiKey) -> None:
        """Keep a new key."""
        item: Item = {
            "job_id": text(_key_of(key.key_id)),
            "key_id": text(key.key_id),
            "name": text(key.name),
            "secret_hash": blob(key.secret_hash),
            "scopes": text(" ".join(sorted(key.scopes))),
            "queues": text(" ".join(sorted(key.queues))),
            "created_at": number(key.created_at),
            "revoked_at": number(key.revoked_at),
            "list_key": text(_LIST_KEY),
            "order_key": text(f"{key.created_at:013d}-{key.key_id}"),
        }
        await self._aws.dynamodb("PutItem", TableName=self._layout.jobs_table, Item=item)

    async def find(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""
        items = await self._rows.read_many([_key_of(key_id)])
        with self._unreadable.reading("key", key_id):
            return _key(items[_key_of(key_id)]) if items else None

    async def list(self) -> list[ApiKey]:
        """Return all keys, oldest first, those of older versions too."""
        names = [*await self._names(_FORMER_LIST_KEY), *await self._names(_LIST_KEY)]
        items = await self._rows.read_many(names) if names else {}
        found = self._unreadable.readable("key", (items[name] for name in names if name in items), _key)
        return sorted(found, key=lambda key: (key.created_at, key.key_id))

    async def _names(self, list_key: str) -> Sequence[str]:
        """Return the keys of what is listed, but for jobs of a queue that is called `keys`."""
        names = [text_at(entry, "job_id") for entry in await self._rows.read_listed(list_key)]
        return [name for name in names if name.startswith(_PREFIX)]

    async def revoke(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it exists."""
        conditions = {"key_id": text(key_id), "revoked_at": number(0)}
        try:
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(_key_of(key_id))},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **update_expression({"revoked_at": number(now)}, conditions=conditions),
            )
        except ConditionFailed as refused:
            return bool(refused.item)
        return True


def _key_of(key_id: str) -> str:
    return f"{_PREFIX}{key_id}"


def _key(item: Item) -> ApiKey:
    return ApiKey(
        key_id=text_at(item, "key_id"),
        name=text_at(item, "name"),
        secret_hash=blob_at(item, "secret_hash"),
        scopes=frozenset(text_at(item, "scopes").split()),
        queues=frozenset(text_at(item, "queues").split()),
        created_at=number_at(item, "created_at"),
        revoked_at=number_at(item, "revoked_at"),
    )
