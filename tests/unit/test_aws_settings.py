"""Run-time settings on AWS, where a reply is lost, somebody is quicker, or somebody wrote by hand."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airunner.aws.calls import Aws, ConditionFailed
from airunner.domain.errors import Unavailable
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.rows import Rows
from airunner.stores.aws.settings import SettingItems

KEY = "setting#size"


class Table:
    """One item of the jobs table, and what a write meets there."""

    def __init__(self, item: dict[str, Any] | None = None) -> None:
        self.item = item or {}
        self.reply_is_lost = False
        self.others: list[dict[str, Any]] = []
        self.writes = 0

    async def read_many(self, keys: list[str]) -> dict[str, Any]:
        return {KEY: dict(self.item)} if self.item and KEY in keys else {}

    async def dynamodb(self, operation: str, **arguments: Any) -> None:
        assert operation == "UpdateItem"
        self.writes += 1
        if self.others:
            self.item = self.others.pop()
            raise ConditionFailed(dict(self.item))
        values = arguments["ExpressionAttributeValues"]
        self.item = {name: values[f":s_{name}"] for name in ("changes", "nonce", "value")}
        if self.reply_is_lost:
            raise ConditionFailed(dict(self.item))


def items_of(table: Table) -> SettingItems:
    layout = Layout(env="test", queues={}, jobs_table="jobs", events_table="events")
    return SettingItems(cast("Aws", table), layout, cast("Rows", table))


async def test_a_lost_reply_is_no_second_change() -> None:
    table = Table()
    table.reply_is_lost = True
    stored = await items_of(table).change("size", "5", by="ada", now=1)
    assert (table.writes, stored.value, len(stored.changes)) == (1, "5", 1)


async def test_who_was_quicker_is_the_old_value() -> None:
    table = Table()
    table.others = [{"value": {"S": "9"}, "nonce": {"S": "x"}, "changes": {"S": "[]"}}]
    stored = await items_of(table).change("size", "5", by="ada", now=1)
    assert (table.writes, stored.changes[0].old_value) == (2, "9")


async def test_it_gives_up_at_some_time() -> None:
    table = Table()
    table.others = [{"value": {"S": str(number)}} for number in range(6, 99)]
    with pytest.raises(Unavailable):
        await items_of(table).change("size", "5", by="ada", now=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [({"N": "7"}, "7"), ({"BOOL": True}, "true"), ({"NULL": True}, None), ({"L": []}, "[]")],
)
async def test_what_somebody_wrote_by_hand_is_a_text(value: dict[str, Any], text: str | None) -> None:
    table = Table({"value": value, "changes": {"N": "3"}})
    assert (await items_of(table).read(["size"]))["size"].value == text
