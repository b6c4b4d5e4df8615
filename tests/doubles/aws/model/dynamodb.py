"""DynamoDB in memory: what a store calls of it, with what each partition key can take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.doubles.aws.model.errors import ModelError
from tests.doubles.aws.model.evaluation import holds, projected, updated
from tests.doubles.aws.model.tables import Table, partition_of
from tests.doubles.aws.tables.rules import item_bytes
from tests.doubles.aws.tables.schemas import Item
from tests.doubles.aws.tables.throughput import Charge, PartitionKey, Throughput, read_charge, write_charges

_THROTTLED = ModelError("ThrottlingException")


class ModelDynamoDb:
    """Performs each call at once and as a whole; a call that finds a bucket empty is refused."""

    def __init__(self, tables: Iterable[Table], throughput: Throughput) -> None:
        self._tables = {table.name: table for table in tables}
        self._throughput = throughput

    def get_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        table = self._tables[arguments["TableName"]]
        item = table.get(arguments["Key"])
        self._take([_read(table, arguments["Key"], item, arguments)])
        return {"Item": projected(arguments, item)} if item else {}

    def batch_get_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        responses: dict[str, list[Item]] = {}
        left: dict[str, Any] = {}
        for name, request in arguments["RequestItems"].items():
            found, unread = self._get_some(self._tables[name], request)
            responses[name] = found
            if len(unread) == len(request["Keys"]):
                raise _THROTTLED
            if unread:
                left[name] = {**request, "Keys": unread}
        return {"Responses": responses, "UnprocessedKeys": left}

    def query(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        table = self._tables[arguments["TableName"]]
        index = arguments.get("IndexName", "")
        parts = table.schema.indexes[index].key if index else table.schema.key
        partition = PartitionKey(table.name, partition_of(parts[0], arguments), index)
        answer, size = table.query(arguments)
        self._take([read_charge(partition, size, consistent=bool(arguments.get("ConsistentRead")))])
        return answer

    def put_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._write(arguments, arguments["Item"], arguments["Item"])
        return {}

    def delete_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._write(arguments, arguments["Key"], None)
        return {}

    def update_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        before = self._tables[arguments["TableName"]].get(arguments["Key"])
        after = updated(arguments, before or arguments["Key"])
        self._write(arguments, arguments["Key"], after)
        return {"Attributes": after} if arguments.get("ReturnValues") == "ALL_NEW" else {}

    def batch_write_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        left: dict[str, list[Any]] = {}
        for name, requests in arguments["RequestItems"].items():
            for request in requests:
                (kind, given), *_ = request.items()
                item = given.get("Item")
                try:
                    self._write({"TableName": name}, item or given["Key"], item)
                except ModelError:
                    left.setdefault(name, []).append({kind: given})
            if len(left.get(name, ())) == len(requests):
                raise _THROTTLED
        return {"UnprocessedItems": left}

    def transact_write_items(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        puts = [action["Put"] for action in arguments["TransactItems"]]
        reasons: list[dict[str, Any]] = []
        charges: list[Charge] = []
        for put in puts:
            table = self._tables[put["TableName"]]
            before = table.get(put["Item"])
            failed = {"Code": "ConditionalCheckFailed", "Item": before or {}}
            reasons.append({"Code": "None"} if holds(put, before or {}) else failed)
            charges += write_charges(table.name, table.schema, before, put["Item"], factor=2)
        is_throttled = not self._throughput.take(charges)
        if is_throttled:
            reasons = [{"Code": "ThrottlingError"}] * len(puts)
        if any(reason["Code"] != "None" for reason in reasons):
            raise ModelError("TransactionCanceledException", {"CancellationReasons": reasons})
        for put in puts:
            self._tables[put["TableName"]].write(put["Item"], put["Item"])
        return {}

    def _get_some(self, table: Table, request: Mapping[str, Any]) -> tuple[list[Item], list[Item]]:
        found: list[Item] = []
        unread: list[Item] = []
        for key in request["Keys"]:
            item = table.get(key)
            if not self._throughput.take([_read(table, key, item, request)]):
                unread.append(key)
            elif item:
                found.append(projected(request, item))
        return found, unread

    def _write(self, arguments: Mapping[str, Any], key: Item, after: Item | None) -> None:
        table = self._tables[arguments["TableName"]]
        before = table.get(key)
        # A write that is refused for its condition is paid for all the same, but leaves the indexes alone.
        holding = holds(arguments, before or {})
        charges = list(write_charges(table.name, table.schema, before, after if holding else before))
        self._take(charges)
        if not holding:
            wanted = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and before
            raise ModelError("ConditionalCheckFailedException", {"Item": before} if wanted else {})
        table.write(key, after)

    def _take(self, charges: list[Charge]) -> None:
        if not self._throughput.take(charges):
            raise _THROTTLED


def _read(table: Table, key: Item, item: Item | None, arguments: Mapping[str, Any]) -> Charge:
    partition = PartitionKey(table.name, str(next(iter(key[table.schema.key[0]].values()))))
    return read_charge(partition, item_bytes(item or {}), consistent=bool(arguments.get("ConsistentRead")))
