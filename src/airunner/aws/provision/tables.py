"""A table: its keys and indexes, encryption, stream, time to live and backups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airunner.aws.provision.resources import Change, Resource, ResourceKind, outcome_of
from airunner.domain.errors import FailedPrecondition, InternalError
from airunner.stores.aws import layout as definitions

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.aws.provision.resources import Writer
    from airunner.stores.aws.layout import Arguments


async def provide_table(writer: Writer, wanted: Arguments) -> Resource:
    """Make a table by the arguments of CreateTable, or mend the one of that name; return when it is there."""
    name = wanted["TableName"]
    if not await _exists(writer.aws, name):
        return await _create(writer, wanted)
    found = await _describe(writer.aws, name)
    _refuse_other_keys(found, wanted)
    await _wait_until_active(writer, name)
    details = await _mend(writer, found, wanted)
    details += [*await _provide_time_to_live(writer, name), *await _provide_backups(writer, name)]
    return Resource(
        kind=ResourceKind.TABLE,
        name=name,
        change=outcome_of(details),
        arn=found["TableArn"],
        details=tuple(details),
    )


async def _create(writer: Writer, wanted: Arguments) -> Resource:
    name = wanted["TableName"]
    if writer.dry_run:
        return Resource(kind=ResourceKind.TABLE, name=name, change=Change.CREATED)
    await writer.aws.dynamodb("CreateTable", **wanted)
    await _wait_until_active(writer, name, is_new=True)
    await _provide_time_to_live(writer, name)
    await _provide_backups(writer, name)
    arn = (await _describe(writer.aws, name))["TableArn"]
    return Resource(kind=ResourceKind.TABLE, name=name, change=Change.CREATED, arn=arn)


async def _mend(writer: Writer, found: Arguments, wanted: Arguments) -> list[str]:
    """Bring a table up to what is wanted, one UpdateTable after the other: AWS takes no two at once."""
    done: list[str] = []
    for what, update in _updates(found, wanted):
        await writer.write(partial(writer.aws.dynamodb, "UpdateTable", **update))
        await _wait_until_active(writer, wanted["TableName"])
        done.append(what)
    return done


def _updates(found: Arguments, wanted: Arguments) -> list[tuple[str, Arguments]]:
    """Return what differs, with the arguments of the UpdateTable that mends it."""
    table = {"TableName": wanted["TableName"]}
    updates: list[tuple[str, Arguments]] = []
    if found.get("BillingModeSummary", {}).get("BillingMode") != wanted["BillingMode"]:
        updates.append(("BillingMode", table | {"BillingMode": wanted["BillingMode"]}))
    if found.get("SSEDescription", {}).get("Status") not in {"ENABLED", "ENABLING", "UPDATING"}:
        updates.append(("SSESpecification", table | {"SSESpecification": wanted["SSESpecification"]}))
    if wanted["DeletionProtectionEnabled"] and not found.get("DeletionProtectionEnabled"):
        updates.append(("DeletionProtectionEnabled", table | {"DeletionProtectionEnabled": True}))
    stream = wanted.get("StreamSpecification")
    if stream and not found.get("StreamSpecification", {}).get("StreamEnabled"):
        updates.append(("StreamSpecification", table | {"StreamSpecification": stream}))
    return updates + _index_creations(found, wanted)


def _index_creations(found: Arguments, wanted: Arguments) -> list[tuple[str, Arguments]]:
    """Return an update for each missing index; each declares the attributes of all that came before it."""
    there = _indexes(found)
    attributes = {entry["AttributeName"]: entry for entry in found["AttributeDefinitions"]}
    kinds = {entry["AttributeName"]: entry for entry in wanted["AttributeDefinitions"]}
    creations: list[tuple[str, Arguments]] = []
    for index in wanted.get("GlobalSecondaryIndexes", []):
        if index["IndexName"] in there:
            continue
        attributes |= {key["AttributeName"]: kinds[key["AttributeName"]] for key in index["KeySchema"]}
        creation = {
            "TableName": wanted["TableName"],
            "AttributeDefinitions": list(attributes.values()),
            "GlobalSecondaryIndexUpdates": [{"Create": index}],
        }
        creations.append((f"index {index['IndexName']}", creation))
    return creations


# What cannot be changed in place


def _refuse_other_keys(found: Arguments, wanted: Arguments) -> None:
    name = wanted["TableName"]
    _refuse_difference(f"table {name}", _keys(found, found), _keys(wanted, wanted))
    there = _indexes(found)
    for index in wanted.get("GlobalSecondaryIndexes", []):
        if old := there.get(index["IndexName"]):
            what = f"index {index['IndexName']} of table {name}"
            _refuse_difference(what, _keys(old, found), _keys(index, wanted))
            _refuse_difference(what, _projection(old), _projection(index))
    stream = found.get("StreamSpecification", {})
    if wanted.get("StreamSpecification") and stream.get("StreamEnabled"):
        view = stream["StreamViewType"]
        if view not in {"NEW_IMAGE", "NEW_AND_OLD_IMAGES"}:
            _refuse_difference(f"the stream of table {name}", view, "NEW_IMAGE")


def _refuse_difference(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise FailedPrecondition(
            f"{what} has {found}, but airunner needs {wanted}; this cannot be changed in place: "
            "name another table, or delete this one"
        )


def _keys(owner: Arguments, table: Arguments) -> str:
    kinds = {entry["AttributeName"]: entry["AttributeType"] for entry in table["AttributeDefinitions"]}
    return "the key " + ", ".join(
        f"{key['AttributeName']} ({kinds[key['AttributeName']]}, {key['KeyType']})"
        for key in owner["KeySchema"]
    )


def _projection(index: Arguments) -> str:
    """An index with all attributes serves as well; it only costs more."""
    projection = index["Projection"]
    attributes = set(projection.get("NonKeyAttributes", []))
    if projection["ProjectionType"] == "ALL" or (
        projection["ProjectionType"] == "INCLUDE" and "state" in attributes
    ):
        return "the projection of state"
    return f"the projection {projection['ProjectionType']}"


def _indexes(found: Arguments) -> dict[str, Arguments]:
    return {index["IndexName"]: index for index in found.get("GlobalSecondaryIndexes", [])}


# What has operations of its own


async def _provide_time_to_live(writer: Writer, name: str) -> list[str]:
    reply = await writer.aws.dynamodb("DescribeTimeToLive", TableName=name)
    found = reply["TimeToLiveDescription"]
    if found.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}:
        attribute = f"the time-to-live attribute {found['AttributeName']}"
        _refuse_difference(
            f"table {name}", attribute, f"the time-to-live attribute {definitions.TTL_ATTRIBUTE}"
        )
        return []
    await writer.write(lambda: writer.aws.dynamodb("UpdateTimeToLive", **definitions.time_to_live(name)))
    return ["TimeToLiveSpecification"]


async def _provide_backups(writer: Writer, name: str) -> list[str]:
    recovery = (await _backups(writer.aws, name)).get("PointInTimeRecoveryDescription", {})
    if recovery.get("PointInTimeRecoveryStatus") == "ENABLED":
        return []

    async def is_backed_up() -> bool:
        # A new table refuses the setting until its backups have begun.
        return bool((await _backups(writer.aws, name))["ContinuousBackupsStatus"] == "ENABLED")

    await writer.wait_until(is_backed_up, f"the backup of table {name}")
    arguments = definitions.point_in_time_recovery(name)
    await writer.write(lambda: writer.aws.dynamodb("UpdateContinuousBackups", **arguments))
    return ["PointInTimeRecoverySpecification"]


# Reading


async def _exists(aws: Aws, name: str) -> bool:
    arguments: dict[str, Any] = {}
    while True:
        page = await aws.dynamodb("ListTables", **arguments)
        if name in page["TableNames"]:
            return True
        if not page.get("LastEvaluatedTableName"):
            return False
        arguments = {"ExclusiveStartTableName": page["LastEvaluatedTableName"]}


async def _wait_until_active(writer: Writer, name: str, *, is_new: bool = False) -> None:
    async def is_active() -> bool:
        try:
            table = await _describe(writer.aws, name)
        except InternalError:
            # DescribeTable may not know a table yet that was made a moment ago.
            if not is_new:
                raise
            return False
        parts = [table["TableStatus"], *(index["IndexStatus"] for index in _indexes(table).values())]
        return set(parts) == {"ACTIVE"}

    await writer.wait_until(is_active, f"table {name}")


async def _describe(aws: Aws, name: str) -> Arguments:
    table: Arguments = (await aws.dynamodb("DescribeTable", TableName=name))["Table"]
    return table


async def _backups(aws: Aws, name: str) -> Arguments:
    reply = await aws.dynamodb("DescribeContinuousBackups", TableName=name)
    found: Arguments = reply["ContinuousBackupsDescription"]
    return found
