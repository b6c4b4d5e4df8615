"""DynamoDB as strict as AWS, on an emulator that is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.batches import name_unprocessed, split_items
from tests.doubles.aws.calls import Refusal, refused
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.tables.images import Images
from tests.doubles.aws.tables.rules import dynamodb_refusal
from tests.doubles.aws.tables.schemas import TableSchema, tables_of, writes_of
from tests.doubles.aws.tables.states import TableStates
from tests.doubles.aws.tables.throttling import perform_within
from tests.doubles.aws.tables.tokens import RequestTokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.conditions import Conditions
    from tests.doubles.aws.faults import Fault, Faults
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

ON_ITEMS: Final = frozenset(
    {
        "BatchGetItem",
        "BatchWriteItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "TransactGetItems",
        "TransactWriteItems",
        "UpdateItem",
    }
)
_ON_TABLES: Final = frozenset({"CreateTable", "DeleteTable", "UpdateTable"})
_BATCHES: Final = frozenset({"BatchGetItem", "BatchWriteItem"})


class StrictDynamoDb:
    """What DynamoDB knows beyond the emulator; shared by all proxies before one emulator."""

    def __init__(self, now: Callable[[], float], conditions: Conditions) -> None:
        self.images = Images()
        self._conditions = conditions
        self._states = TableStates(conditions)
        self._tokens = RequestTokens(now)
        self._schemas: dict[str, TableSchema] = {}

    async def perform(
        self, call: Call, send: Send, faults: Faults, befalling: Mapping[FaultKind, Fault]
    ) -> AwsAnswer:
        """Perform a call, refuse it, or do part of it."""
        self.images.count_request()
        if call.operation in _ON_TABLES:
            self._schemas.pop(call.body["TableName"], None)
        if call.operation not in ON_ITEMS:
            return await self._states.perform(call, send)
        schemas = await self._known(call, send)
        if refusal := dynamodb_refusal(call, schemas):
            return refused(call, refusal)
        if FaultKind.CONFLICT in befalling and (actions := len(writes_of(call))):
            return _conflict(call, actions)
        if self._conditions.throughput:

            async def perform() -> AwsAnswer:
                return await self._perform(call, send, faults, befalling, schemas)

            return await perform_within(self._conditions.throughput, call, schemas, send, perform)
        return await self._perform(call, send, faults, befalling, schemas)

    async def _perform(
        self,
        call: Call,
        send: Send,
        faults: Faults,
        befalling: Mapping[FaultKind, Fault],
        schemas: Mapping[str, TableSchema],
    ) -> AwsAnswer:
        if faults.has_lags:
            await self.images.capture(call, schemas, send)
        if call.operation == "TransactWriteItems":
            return await self._tokens.perform(call, send)
        if FaultKind.UNPROCESSED in befalling and call.operation in _BATCHES:
            part, left = split_items(call, faults.random)
            return name_unprocessed(call, await send(part), left)
        return self._late(call, await send(call), schemas, befalling)

    async def _known(self, call: Call, send: Send) -> dict[str, TableSchema]:
        """Return the schemas of the tables of a call; the emulator is asked once for each."""
        known = {}
        for table in tables_of(call):
            if table not in self._schemas:
                answer = await send(call.beside("DescribeTable", {"TableName": table}))
                if answer.status != 200:
                    continue
                self._schemas[table] = TableSchema.described(json.loads(answer.body)["Table"])
            known[table] = self._schemas[table]
        return known

    def _late(
        self,
        call: Call,
        answer: AwsAnswer,
        schemas: Mapping[str, TableSchema],
        befalling: Mapping[FaultKind, Fault],
    ) -> AwsAnswer:
        fault = befalling.get(FaultKind.INDEX_LAG if "IndexName" in call.body else FaultKind.STALE_READ)
        if fault is None or answer.status != 200 or call.body.get("ConsistentRead"):
            return answer
        return answer.with_json(self._late_body(call, json.loads(answer.body), fault, schemas))

    def _late_body(
        self, call: Call, body: dict[str, Any], fault: Fault, schemas: Mapping[str, TableSchema]
    ) -> dict[str, Any]:
        if call.operation == "BatchGetItem":
            asked = call.body["RequestItems"]
            responses = {
                table: items
                if asked[table].get("ConsistentRead")
                else [was for _, was in self.images.late_items(items, table, fault, schemas[table])]
                for table, items in body["Responses"].items()
            }
            return body | {"Responses": responses}
        if call.operation == "GetItem":
            return self.images.late_get(body, call, fault)
        if call.operation not in {"Query", "Scan"} or "Items" not in body:
            return body
        table = call.body["TableName"]
        if call.operation == "Query" and call.body.get("IndexName") in schemas[table].indexes:
            return self.images.late_index(body, call, fault, schemas[table])
        items = [was for _, was in self.images.late_items(body["Items"], table, fault, schemas[table])]
        return body | {"Items": items, "Count": len(items)}


def _conflict(call: Call, actions: int) -> AwsAnswer:
    """Answer that another transaction was at work on the first item."""
    if call.operation != "TransactWriteItems":
        message = "Transaction is ongoing for the item"
        return refused(call, Refusal(code="TransactionConflictException", message=message))
    reasons = [{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}]
    reasons += [{"Code": "None"}] * (actions - 1)
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    answer = refused(call, Refusal(code="TransactionCanceledException", message=message))
    return answer.with_json(json.loads(answer.body) | {"CancellationReasons": reasons})
