"""The fleet's records in DynamoDB: one table, a key prefix for each kind; see `layout`.

A conditional write that must be told from another's carries a nonce: when its reply is lost and it is made
again, the item that refuses it shows whether the first one was ours.
"""

from __future__ import annotations

import secrets
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.calls import ConditionFailed
from airunner.aws.paging import Pages, read_items
from airunner.domain.errors import FailedPrecondition
from airunner.domain.splitting import split_by_count
from airunner.fleet.aws.items import expiry, number, number_at, record_key, text
from airunner.fleet.aws.layout import KEY, LIST_INDEX, POOL_KEY, TTL_ATTRIBUTE
from airunner.fleet.aws.run_items import audit_from_item, audit_item, run_from_item, run_item
from airunner.fleet.records import InstanceRecord, Pool

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.fleet.aws.items import Item
    from airunner.fleet.aws.layout import FleetLayout
    from airunner.fleet.messages.housekeeping import TaskType
    from airunner.fleet.records import HousekeepingRun, PoolAudit

_DAY_MS: Final = 24 * 3600 * 1000
_INSTANCES_KEPT_MS: Final = 30 * _DAY_MS
# Longer than a message can lie in the queue and then in its dead-letter queue.
_COUNTED_KEPT_MS: Final = 35 * _DAY_MS
_RUNS_KEPT_MS: Final = 30 * _DAY_MS
_PUT_AT_ONCE: Final = 25


class DynamoDbRecords:
    """Implements FleetRecords."""

    def __init__(self, aws: Aws, layout: FleetLayout) -> None:
        self._aws = aws
        self._table = layout.fleet_table
        self._pool_table = layout.pool_table

    async def read_instances(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        """Return the record of each of these instances."""
        keys = [record_key(f"instance#{name}") for name in instance_ids]
        items = await read_items(self._aws, self._table, keys, ConsistentRead=True)
        found = {item[KEY]["S"].removeprefix("instance#"): item for item in items}
        return {name: _instance_record(name, found.get(name, {})) for name in instance_ids}

    async def assign(self, instance_id: str, queue: str, now: int) -> InstanceRecord:
        """Note what an instance is to work on, unless it is draining."""
        item = await self._change(
            instance_id,
            "SET assigned_queue = :queue, assigned_at = :now, nonce = :nonce, #ttl = :ttl",
            "attribute_not_exists(draining_since)",
            {":queue": text(queue), ":now": number(now), ":ttl": expiry(now, _INSTANCES_KEPT_MS)},
        )
        if item is None:
            raise FailedPrecondition(f"instance {instance_id} is draining")
        return _instance_record(instance_id, item)

    async def mark_draining(self, record: InstanceRecord, now: int) -> bool:
        """Let an instance get no more work, if it is as the record says."""
        condition, values = "attribute_not_exists(assigned_at)", {}
        if record.assigned_at:
            condition, values = "assigned_at = :assigned_at", {":assigned_at": number(record.assigned_at)}
        marked = await self._change(
            record.instance_id,
            "SET draining_since = :now, nonce = :nonce, #ttl = :ttl",
            f"attribute_not_exists(draining_since) AND {condition}",
            {**values, ":now": number(now), ":ttl": expiry(now, _INSTANCES_KEPT_MS)},
        )
        return marked is not None

    async def undrain(self, instance_id: str, *, draining_since: int = 0) -> bool:
        """Take the mark of an instance back."""
        condition, values = "attribute_exists(draining_since)", {}
        if draining_since:
            condition, values = "draining_since = :since", {":since": number(draining_since)}
        unmarked = await self._change(
            instance_id, "SET nonce = :nonce REMOVE draining_since", condition, values
        )
        return unmarked is not None

    async def note_stale(self, instance_id: str, now: int) -> None:
        """Note when a parameter was first seen without its instance."""
        await self._update(
            f"instance#{instance_id}",
            UpdateExpression="SET stale_since = if_not_exists(stale_since, :now), #ttl = :ttl",
            ExpressionAttributeNames={"#ttl": TTL_ATTRIBUTE},
            ExpressionAttributeValues={":now": number(now), ":ttl": expiry(now, _INSTANCES_KEPT_MS)},
        )

    async def forget_stale(self, instance_id: str) -> None:
        """Forget that."""
        await self._update(f"instance#{instance_id}", UpdateExpression="REMOVE stale_since")

    async def count_once(self, job_id: str, attempt: str, now: int, *, by: str = "") -> bool:
        """Return whether nobody else has counted this attempt."""
        marks = {TTL_ATTRIBUTE: expiry(now, _COUNTED_KEPT_MS), **({"nonce": text(by)} if by else {})}
        try:
            await self._put_new(
                f"counted#{job_id}#{attempt}", marks, ReturnValuesOnConditionCheckFailure="ALL_OLD"
            )
        except ConditionFailed as refused:
            return bool(by) and _nonce(refused) == by
        return True

    async def take_lease(self, task: TaskType, holder: str, now: int, until: int) -> str:
        """Take the lease of a task if nobody has it now; return who has it then."""
        try:
            await self._update(
                f"lease#{task.value}",
                UpdateExpression="SET holder = :holder, lasts_until = :until",
                ConditionExpression=f"attribute_not_exists({KEY}) OR holder = :holder OR lasts_until <= :now",
                ExpressionAttributeValues={
                    ":holder": text(holder),
                    ":until": number(until),
                    ":now": number(now),
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as refused:
            return str((refused.item or {}).get("holder", {}).get("S", "somebody"))
        return holder

    async def extend_lease(self, task: TaskType, holder: str, until: int) -> bool:
        """Keep a lease for longer; return whether it is still this holder's."""
        try:
            await self._update(
                f"lease#{task.value}",
                UpdateExpression="SET lasts_until = :until",
                ConditionExpression="holder = :holder",
                ExpressionAttributeValues={":holder": text(holder), ":until": number(until)},
            )
        except ConditionFailed:
            return False
        return True

    async def leave_lease(self, task: TaskType, holder: str) -> None:
        """Give a lease back, if it is this holder's."""
        try:
            await self._aws.dynamodb(
                "DeleteItem",
                TableName=self._table,
                Key=record_key(f"lease#{task.value}"),
                ConditionExpression="holder = :holder",
                ExpressionAttributeValues={":holder": text(holder)},
            )
        except ConditionFailed:
            return

    async def find_run(self, slot: str) -> HousekeepingRun | None:
        """Return the run that a slot has had."""
        answer = await self._aws.dynamodb(
            "GetItem", TableName=self._table, Key=record_key(f"run#{slot}"), ConsistentRead=True
        )
        return run_from_item(answer["Item"]) if "Item" in answer else None

    async def put_run(self, run: HousekeepingRun) -> None:
        """Keep a run; one of the same slot is replaced."""
        item = {**record_key(f"run#{run.slot}"), **_run_attributes(run)}
        await self._aws.dynamodb("PutItem", TableName=self._table, Item=item)

    async def add_run(self, run: HousekeepingRun) -> bool:
        """Keep a run unless its slot has one already."""
        try:
            await self._put_new(f"run#{run.slot}", _run_attributes(run))
        except ConditionFailed:
            return False
        return True

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first."""
        keys = await self._newest("run", limit)
        items = await read_items(self._aws, self._table, [record_key(key) for key in keys])
        runs = {item[KEY]["S"]: run_from_item(item) for item in items}
        return [runs[key] for key in keys if key in runs]

    async def list_pools(self) -> Sequence[Pool]:
        """Return the pools that operators have described, by name."""
        pages = Pages(self._aws.dynamodb, "Scan", TableName=self._pool_table, ConsistentRead=True)
        pools = [_pool(item) async for page in pages for item in page["Items"]]
        return sorted(pools, key=lambda pool: pool.name)

    async def put_pool(self, pool: Pool) -> None:
        """Keep what an operator says of a pool."""
        item = {
            POOL_KEY: text(pool.name),
            "instance_type": text(pool.instance_type),
            "desired_running": number(pool.desired_running),
            "desired_stopped": number(pool.desired_stopped),
        }
        await self._aws.dynamodb("PutItem", TableName=self._pool_table, Item=item)

    async def put_audits(self, audits: Sequence[PoolAudit]) -> None:
        """Keep what one audit found."""
        items = [
            {
                **record_key(f"audit#{audit.audited_at}#{audit.pool}"),
                **audit_item(audit),
                **_listed("audit", audit.audited_at),
            }
            for audit in audits
        ]
        for some in split_by_count(items, _PUT_AT_ONCE):
            await self._aws.batch_write(self._table, [{"PutRequest": {"Item": item}} for item in some])

    async def last_audits(self, limit: int) -> Sequence[Sequence[PoolAudit]]:
        """Return the last audits, newest first, each with all its pools."""
        keys: list[str] = []
        async for page in self._list_pages("audit"):
            keys += [item[KEY]["S"] for item in page["Items"]]
            if len({_audited_at(key) for key in keys}) > limit:
                break
        instants = list(dict.fromkeys(map(_audited_at, keys)))[:limit]
        wanted = [record_key(key) for key in keys if _audited_at(key) in instants]
        items = await read_items(self._aws, self._table, wanted)
        audits = sorted(map(audit_from_item, items), key=lambda audit: (-audit.audited_at, audit.pool))
        return [list(group) for _, group in groupby(audits, key=lambda audit: audit.audited_at)]

    async def _change(self, instance_id: str, update: str, condition: str, values: Item) -> Item | None:
        """Change the record of an instance on a condition; return it, or None where that did not hold."""
        nonce = secrets.token_hex(8)
        try:
            answer = await self._update(
                f"instance#{instance_id}",
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeValues={**values, ":nonce": text(nonce)},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **({"ExpressionAttributeNames": {"#ttl": TTL_ATTRIBUTE}} if "#ttl" in update else {}),
            )
        except ConditionFailed as refused:
            return refused.item if _nonce(refused) == nonce else None
        return dict(answer["Attributes"])

    async def _update(self, key: str, **arguments: Any) -> dict[str, Any]:
        return await self._aws.dynamodb("UpdateItem", TableName=self._table, Key=record_key(key), **arguments)

    async def _put_new(self, key: str, attributes: Item, **options: Any) -> None:
        """Put an item, or raise ConditionFailed where there is one."""
        await self._aws.dynamodb(
            "PutItem",
            TableName=self._table,
            Item={**record_key(key), **attributes},
            ConditionExpression=f"attribute_not_exists({KEY})",
            **options,
        )

    async def _newest(self, list_key: str, limit: int) -> list[str]:
        keys: list[str] = []
        async for page in self._list_pages(list_key, Limit=limit):
            keys += [item[KEY]["S"] for item in page["Items"]]
            if len(keys) >= limit:
                break
        return keys[:limit]

    def _list_pages(self, list_key: str, **options: Any) -> Pages:
        return Pages(
            self._aws.dynamodb,
            "Query",
            TableName=self._table,
            IndexName=LIST_INDEX,
            KeyConditionExpression="list_key = :key",
            ExpressionAttributeValues={":key": text(list_key)},
            ScanIndexForward=False,
            **options,
        )


def _nonce(refused: ConditionFailed) -> str:
    """Return whose write the item is that stood in the way."""
    return str((refused.item or {}).get("nonce", {}).get("S", ""))


def _instance_record(instance_id: str, item: Item) -> InstanceRecord:
    return InstanceRecord(
        instance_id=instance_id,
        queue=item.get("assigned_queue", {}).get("S", ""),
        assigned_at=number_at(item, "assigned_at"),
        draining_since=number_at(item, "draining_since"),
        stale_since=number_at(item, "stale_since"),
    )


def _run_attributes(run: HousekeepingRun) -> Item:
    return {**run_item(run), **_listed("run", run.started_at)}


def _listed(list_key: str, instant: int) -> Item:
    """Return what puts an item into a list, and when it expires."""
    return {
        "list_key": text(list_key),
        "listed_at": number(instant),
        TTL_ATTRIBUTE: expiry(instant, _RUNS_KEPT_MS),
    }


def _pool(item: Item) -> Pool:
    return Pool(
        name=item[POOL_KEY]["S"],
        instance_type=item.get("instance_type", {}).get("S", ""),
        desired_running=number_at(item, "desired_running"),
        desired_stopped=number_at(item, "desired_stopped"),
    )


def _audited_at(key: str) -> str:
    return key.split("#", 2)[1]
