"""What the production store writes and reads without a transaction, on a second emulator of DynamoDB.

It refuses much that the first lets pass. Messages are still those of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from airunner.aws.calls import Aws, AwsOptions, CancellationReason, ConditionFailed, TransactionCancelled
from airunner.services.composition import ServiceRules
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api, OpenApi
from airunner.testing.conformance.stores.cancelling import CancelConformance
from airunner.testing.conformance.stores.listing import ListingConformance
from airunner.testing.conformance.stores.publishing import PublishConformance
from airunner.testing.conformance.stores.retention import RetentionConformance
from airunner.testing.conformance.stores.settling import CompleteConformance
from tests.conformance.conftest import in_process
from tests.doubles.aws.dynalite import DynaliteProcess
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.aws_stores import make_resources, options_of

pytestmark = pytest.mark.slow


class TwoPlaces(Aws):
    """Calls DynamoDB elsewhere. What is not known there is made of what is: this is no test of either."""

    def __init__(self, options: AwsOptions, tables: Aws) -> None:
        super().__init__(options)
        self._tables = tables

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "TransactWriteItems":
            return await self._put_each([action["Put"] for action in arguments["TransactItems"]])
        wants_item = arguments.pop("ReturnValuesOnConditionCheckFailure", None)
        try:
            return await self._tables.dynamodb(operation, **arguments)
        except ConditionFailed:
            if not wants_item:
                raise
            raise ConditionFailed(await self._item(arguments["TableName"], arguments["Key"])) from None

    async def _put_each(self, puts: list[dict[str, Any]]) -> dict[str, Any]:
        """Put items one by one, and take back what was put if one is refused: nobody else is there."""
        before = [await self._item(put["TableName"], {"job_id": put["Item"]["job_id"]}) for put in puts]
        reasons = [await self._put(put, item) for put, item in zip(puts, before, strict=True)]
        if any(reason.code != "None" for reason in reasons):
            for put, item, reason in zip(puts, before, reasons, strict=True):
                if reason.code == "None":
                    await self._take_back(put, item)
            raise TransactionCancelled(reasons)
        return {}

    async def _put(self, put: dict[str, Any], before: dict[str, Any] | None) -> CancellationReason:
        arguments = {name: put[name] for name in put if name != "ReturnValuesOnConditionCheckFailure"}
        try:
            await self._tables.dynamodb("PutItem", **arguments)
        except ConditionFailed:
            return CancellationReason("ConditionalCheckFailed", before)
        return CancellationReason("None", None)

    async def _take_back(self, put: dict[str, Any], before: dict[str, Any] | None) -> None:
        if before:
            await self._tables.dynamodb("PutItem", TableName=put["TableName"], Item=before)
        else:
            key = {"job_id": put["Item"]["job_id"]}
            await self._tables.dynamodb("DeleteItem", TableName=put["TableName"], Key=key)

    async def _item(self, table: str, key: dict[str, Any]) -> dict[str, Any] | None:
        answer = await self._tables.dynamodb("GetItem", TableName=table, Key=key, ConsistentRead=True)
        return answer.get("Item")


@pytest.fixture
def open_api(emulator: EmulatorProcess, dynalite: DynaliteProcess, aws_env: str) -> OpenApi:
    @asynccontextmanager
    async def opened(rules: ServiceRules) -> AsyncIterator[Api]:
        clock = ManualClock()
        async with Aws(options_of(dynalite.url)) as tables:
            layout = replace(await make_resources(emulator.url, aws_env, bucket=True), listing_shards=1)
            for table in shapes.tables(layout):
                known = {name: value for name, value in table.items() if name in _KNOWN}
                await tables.dynamodb("CreateTable", **known)
            await _until_active(tables, layout.jobs_table, layout.events_table)
            store = AwsStore(
                TwoPlaces(options_of(emulator.url), tables),
                layout,
                clock,
                short_poll_seconds=0,
                watches_parts=False,
            )
            async with in_process(store, clock, rules) as api:
                yield api

    return opened


_KNOWN = {"TableName", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode"}


async def _until_active(aws: Aws, *tables: str) -> None:
    async with asyncio.timeout(20):
        for table in tables:
            while (await aws.dynamodb("DescribeTable", TableName=table))["Table"]["TableStatus"] != "ACTIVE":
                await asyncio.sleep(0)


class TestPublish(PublishConformance):
    pass


class TestComplete(CompleteConformance):
    pass


class TestCancel(CancelConformance):
    pass


class TestListing(ListingConformance):
    pass


class TestRetention(RetentionConformance):
    # Thousands of calls that are all alike.
    test_many_old_jobs_are_purged_in_one_pass = None  # type: ignore[assignment]  # not a test here
