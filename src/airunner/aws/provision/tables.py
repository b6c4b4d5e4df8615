"""A table: its keys and indexes, encryption, stream, time to live and backups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from airunner.aws.errors import Refused
from airunner.aws.paging import Pages
from airunner.aws.provision.definitions import point_in_time_recovery, time_to_live
from airunner.aws.provision.resources import NOT_YET, Change, Resource, ResourceKind, outcome_of
from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import Arguments, TableDefinition
    from airunner.aws.provision.resources import Writer

_ABSENT: Final = "ResourceNotFoundException"
_DELETING: Final = "DELETING"
_IN_USE: Final = "ResourceInUseException"

# Every view of a stream has the keys.
_VIEWS_THAT_SERVE: Final = {
    "KEYS_ONLY": {"KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"},
    "NEW_IMAGE": {"NEW_IMAGE", "NEW_AND_OLD_IMAGES"},
}


async def provide_table(writer: Writer, wanted: TableDefinition) -> Resource:
    """Make a table, or mend the one of its name; return when it is there."""
    if found := await _find(writer, wanted.name):
        return await _bring_up(writer, wanted, found)
    if not writer.dry_run and not await _is_created(writer, wanted):
        # An earlier try has made it and its answer is lost; or somebody else has, since we looked.
        await _bring_up(writer, wanted, await _settled(writer, wanted.name))
    elif not writer.dry_run:
        await _wait_until_active(writer, wanted.creation, is_new=True)
        await _provide_time_to_live(writer, wanted)
        await _provide_backups(writer, wanted.name)
    arn = "" if writer.dry_run else (await _describe(writer.aws, wanted.name))["TableArn"]
    return Resource(kind=ResourceKind.TABLE, name=wanted.name, change=Change.CREATED, arn=arn)


async def _is_created(writer: Writer, wanted: TableDefinition) -> bool:
    """Create a table; return False where AWS says that there is one."""
    try:
        await writer.aws.dynamodb("CreateTable", expected=(_IN_USE,), **wanted.creation)
    except Refused as refused:
        if refused.code != _IN_USE:
            raise
        return False
    return True


async def _bring_up(writer: Writer, wanted: TableDefinition, found: Arguments) -> Resource:
    """Mend a table that is there; FailedPrecondition where it cannot be mended in place."""
    name = wanted.name
    _refuse_other_keys(found, wanted.creation)
    await _wait_until_active(writer, {"TableName": name})
    details = await _mend(writer, found, wanted.creation)
    details += [*await _provide_time_to_live(writer, wanted), *await _provide_backups(writer, name)]
    return Resource(
        kind=ResourceKind.TABLE,
        name=name,
        change=outcome_of(details),
        arn=found["TableArn"],
        details=tuple(details),
    )


async def _mend(writer: Writer, found: Arguments, wanted: Arguments) -> list[str]:
    """Bring a table up to what is wanted, one UpdateTable after the other: AWS takes no two at once."""
    done: list[str] = []
    for what, update in _updates(found, wanted):
        change = partial(_update, writer.aws, wanted, what, update)
        await writer.write(change, f"table {wanted['TableName']}")
        await _wait_until_active(writer, update)
        done.append(what)
    return done


async def _update(aws: Aws, wanted: Arguments, what: str, update: Arguments) -> Arguments:
    """Update a table. What is refused and there nevertheless was made by a try whose answer was lost."""
    try:
        return await aws.dynamodb("UpdateTable", expected=NOT_YET, **update)
    except Refused:
        if what in dict(_updates(await _describe(aws, wanted["TableName"]), wanted)):
            raise
        return {}


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
            _refuse_difference(what, _projection(old, index), _projection(index, index))
    stream, needed = found.get("StreamSpecification", {}), wanted.get("StreamSpecification")
    if needed and stream.get("StreamEnabled"):
        view, needed_view = stream["StreamViewType"], needed["StreamViewType"]
        if view not in _VIEWS_THAT_SERVE[needed_view]:
            _refuse_difference(f"the stream of table {name}", view, needed_view)


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


def _projection(index: Arguments, wanted: Arguments) -> str:
    """An index with more attributes, or with all, serves as well; it only costs more."""
    projection, needed = index["Projection"], wanted["Projection"].get("NonKeyAttributes", [])
    if projection["ProjectionType"] == "ALL" or set(needed) <= set(projection.get("NonKeyAttributes", [])):
        return f"the projection of {', '.join(needed)}"
    return f"the projection {projection['ProjectionType']}"


def _indexes(found: Arguments) -> dict[str, Arguments]:
    return {index["IndexName"]: index for index in found.get("GlobalSecondaryIndexes", [])}


# What has operations of its own


async def _provide_time_to_live(writer: Writer, wanted: TableDefinition) -> list[str]:
    name = wanted.name
    if await _has_time_to_live(writer.aws, wanted):
        return []
    arguments = time_to_live(name, wanted.ttl_attribute)
    change = partial(writer.aws.dynamodb, "UpdateTimeToLive", expected=NOT_YET, **arguments)
    try:
        await writer.write(change, f"table {name}")
    except Refused:
        # What is on already is refused: a call whose answer was lost has turned it on.
        if not await _has_time_to_live(writer.aws, wanted):
            raise
    return ["TimeToLiveSpecification"]


async def _has_time_to_live(aws: Aws, wanted: TableDefinition) -> bool:
    """Return whether items expire by the attribute that is wanted; FailedPrecondition if by another."""
    reply = await aws.dynamodb("DescribeTimeToLive", TableName=wanted.name)
    found = reply["TimeToLiveDescription"]
    if found.get("TimeToLiveStatus") not in {"ENABLED", "ENABLING"}:
        return False
    there, needed = found["AttributeName"], wanted.ttl_attribute
    what = "the time-to-live attribute"
    _refuse_difference(f"table {wanted.name}", f"{what} {there}", f"{what} {needed}")
    return True


async def _provide_backups(writer: Writer, name: str) -> list[str]:
    recovery = (await _backups(writer.aws, name)).get("PointInTimeRecoveryDescription", {})
    if recovery.get("PointInTimeRecoveryStatus") == "ENABLED":
        return []

    async def is_backed_up() -> bool:
        # A new table refuses the setting until its backups have begun.
        return bool((await _backups(writer.aws, name))["ContinuousBackupsStatus"] == "ENABLED")

    await writer.wait_until(is_backed_up, f"the backup of table {name}")
    arguments = point_in_time_recovery(name)
    change = partial(writer.aws.dynamodb, "UpdateContinuousBackups", expected=NOT_YET, **arguments)
    await writer.write(change, f"the backup of table {name}")
    return ["PointInTimeRecoverySpecification"]


# Reading


async def _find(writer: Writer, name: str) -> Arguments:
    """Return what a table is; empty where there is none, or where one was until its deletion was over."""
    if not await _exists(writer.aws, name):
        return {}
    found = await _describe_if_there(writer.aws, name)

    async def is_settled() -> bool:
        nonlocal found
        found = await _describe_if_there(writer.aws, name)
        return found.get("TableStatus") != _DELETING

    if found.get("TableStatus") == _DELETING:
        await writer.wait_until(is_settled, f"table {name}, whose deletion is not over,")
    return {} if found.get("TableStatus") == _DELETING else found


async def _settled(writer: Writer, name: str) -> Arguments:
    """Return what a table is that somebody is making, once it is made."""
    found: Arguments = {}

    async def is_active() -> bool:
        nonlocal found
        found = await _describe_if_there(writer.aws, name)
        return found.get("TableStatus") == "ACTIVE"

    await writer.wait_until(is_active, f"table {name}")
    return found


async def _exists(aws: Aws, name: str) -> bool:
    async for page in Pages(aws.dynamodb, "ListTables"):
        if name in page["TableNames"]:
            return True
    return False


async def _wait_until_active(writer: Writer, wanted: Arguments, *, is_new: bool = False) -> None:
    """Wait until a table and its indexes are active, those of a CreateTable or an UpdateTable too.

    An answer may be older than the change it is asked about: an index that it does not know is not active.
    """
    name, needed = wanted["TableName"], _index_names(wanted)

    async def is_active() -> bool:
        # DescribeTable may not know a table yet that was made a moment ago.
        table = await (_describe_if_there if is_new else _describe)(writer.aws, name)
        if not table:
            return False
        there = _indexes(table)
        parts = [table["TableStatus"], *(index["IndexStatus"] for index in there.values())]
        return set(parts) == {"ACTIVE"} and needed <= there.keys()

    await writer.wait_until(is_active, f"table {name}")


def _index_names(wanted: Arguments) -> set[str]:
    created = [update["Create"] for update in wanted.get("GlobalSecondaryIndexUpdates", [])]
    return {index["IndexName"] for index in [*wanted.get("GlobalSecondaryIndexes", []), *created]}


async def _describe_if_there(aws: Aws, name: str) -> Arguments:
    try:
        return await _describe(aws, name, _ABSENT)
    except Refused as refused:
        if refused.code != _ABSENT:
            raise
        return {}


async def _describe(aws: Aws, name: str, *expected: str) -> Arguments:
    reply = await aws.dynamodb("DescribeTable", TableName=name, expected=expected)
    table: Arguments = reply["Table"]
    return table


async def _backups(aws: Aws, name: str) -> Arguments:
    reply = await aws.dynamodb("DescribeContinuousBackups", TableName=name)
    found: Arguments = reply["ContinuousBackupsDescription"]
    return found
