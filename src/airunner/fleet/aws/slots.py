"""The slots of the schedule in DynamoDB: one item each, in the fleet's table."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from airunner.aws.calls import ConditionFailed
from airunner.fleet.aws.items import expiry, number, record_key, text
from airunner.fleet.aws.layout import KEY, TTL_ATTRIBUTE
from airunner.fleet.ports import SlotState

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.fleet.aws.layout import FleetLayout

_KEPT_MS: Final = 3 * 24 * 3600 * 1000
_STALE: Final = "(attribute_exists(claimed_at) AND attribute_not_exists(sent_at) AND claimed_at <= :before)"


class DynamoDbSlots:
    """Implements Slots."""

    def __init__(self, aws: Aws, layout: FleetLayout) -> None:
        self._aws = aws
        self._table = layout.fleet_table

    async def claim(self, slot: str, now: int, *, stale_before: int, new: bool) -> SlotState:
        """Claim a slot. The nonce tells a claim of ours whose reply was lost from that of somebody else."""
        nonce = secrets.token_hex(8)
        try:
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._table,
                Key=record_key(f"slot#{slot}"),
                UpdateExpression="SET claimed_at = :now, nonce = :nonce, #ttl = :ttl",
                ConditionExpression=f"attribute_not_exists({KEY}) OR {_STALE}" if new else _STALE,
                ExpressionAttributeNames={"#ttl": TTL_ATTRIBUTE},
                ExpressionAttributeValues={
                    ":now": number(now),
                    ":nonce": text(nonce),
                    ":ttl": expiry(now, _KEPT_MS),
                    ":before": number(stale_before),
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as refused:
            if not refused.item or "sent_at" in refused.item:
                return SlotState.OVER
            is_ours = refused.item.get("nonce", {}).get("S") == nonce
            return SlotState.CLAIMED if is_ours else SlotState.PENDING
        return SlotState.CLAIMED

    async def mark_sent(self, slot: str, now: int) -> None:
        """Say that the message of a slot is in its queue."""
        await self._aws.dynamodb(
            "UpdateItem",
            TableName=self._table,
            Key=record_key(f"slot#{slot}"),
            UpdateExpression="SET sent_at = :now, #ttl = :ttl",
            ExpressionAttributeNames={"#ttl": TTL_ATTRIBUTE},
            ExpressionAttributeValues={":now": number(now), ":ttl": expiry(now, _KEPT_MS)},
        )
