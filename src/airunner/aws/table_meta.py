"""Which environment a table belongs to, and which versions may work on it: its item `meta#`.

The item says `environment`, `version` (of the newest that worked on the table) and `min_version` (of the
oldest that still may). A table without it belongs to nobody: the first that opens it adopts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.errors import ConditionFailed, Refused
from airunner.aws.paging import Pages
from airunner.domain.errors import AirunnerError, FailedPrecondition, Unavailable
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.aws.calls import Aws

_log = get_logger("airunner.aws")

META_ID: Final = "meta#"
"""The key of the item: no job, queue or API key is called so."""

VERSION: Final = 1
"""What this version stores. Raise it with the first release that stores what the one before cannot read."""
_OLDER_BESIDE: Final = 1
"""So many versions older may work beside us: servers are upgraded one after the other."""

_TRIES: Final = 5
# Of a table with other keys, which provisioning refuses and says why, and of one that is being deleted.
_NOBODYS: Final = frozenset({"ValidationException", "ResourceNotFoundException"})
_ABSENT: Final = frozenset({"ResourceNotFoundException", "AccessDeniedException"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedTable:
    """A table that belongs to one environment, with a text as its only key."""

    name: str
    key_name: str
    former_name: str = ""
    """What it was called before its name followed from the environment; empty where a setting names it."""
    kept_by: str = ""
    """The settings that keep the former name."""

    @property
    def key(self) -> dict[str, Any]:
        """The key of the item `meta#`."""
        return {self.key_name: {"S": META_ID}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeta:
    """What a table says of itself; without an environment it belongs to nobody."""

    environment: str = ""
    version: int = 0
    min_version: int = 0


class TableOwnership:
    """A table, adopted for one environment and refused to all others. Safe to share between tasks."""

    def __init__(self, aws: Aws, table: OwnedTable, environment: str) -> None:
        self._aws = aws
        self._table = table
        self._environment = environment
        self._is_certain = False

    async def ensure(self) -> None:
        """Return when the table is known to be ours; costs calls until it is, and nothing from then on.

        FailedPrecondition where it belongs to another environment, where it needs a newer version, or where
        only the table of the former name is there. Other errors are those of the calls.
        """
        if not self._is_certain:
            await self._adopt()
            self._is_certain = True

    async def ensure_if_answered(self) -> bool:
        """Do the same at a start, which an AWS that is away, or not yet provisioned, does not prevent.

        Return whether there was an answer. Who goes on without one must `ensure` before anything that
        concerns more than one job.
        """
        try:
            await self.ensure()
        except FailedPrecondition:
            raise
        except AirunnerError as error:
            _log.warning("aws.environment_unknown", environment=self._environment, error=error.text)
        return self._is_certain

    async def refuse_others(self) -> None:
        """Raise what `ensure` would, and write nothing; a table that is not there is nobody's."""
        pages = Pages(self._aws.dynamodb, "ListTables")
        there = {name async for page in pages for name in page["TableNames"]}
        if self._table.name in there:
            try:
                self._check(await self._read(self._table.name, expected=_NOBODYS))
            except Refused as refused:
                if refused.code not in _NOBODYS:
                    raise
        elif self._table.former_name in there:
            await self._refuse_former()

    async def _adopt(self) -> None:
        try:
            found = await self._read(self._table.name)
        except Refused as refused:
            if self._table.former_name and refused.code in _ABSENT:
                await self._refuse_former()
            raise
        for _ in range(_TRIES):
            self._check(found)
            if found.environment and found.version >= VERSION:
                return
            try:
                await self._write(found)
            except ConditionFailed as quicker:
                # Somebody was quicker, or it was we ourselves and only the answer was lost.
                found = _meta(quicker.item)
            else:
                return
        raise Unavailable(f"too many servers open table {self._table.name} at the same time; try again")

    def _check(self, found: TableMeta) -> None:
        if found.environment and found.environment != self._environment:
            raise FailedPrecondition(
                f"table {self._table.name} belongs to environment {found.environment}, and this is "
                f"environment {self._environment}: set store.aws.env, or name another table"
            )
        if found.min_version > VERSION:
            raise FailedPrecondition(
                f"table {self._table.name} has version {found.version}, which works with version "
                f"{found.min_version} and newer; this airunner has version {VERSION}: upgrade it"
            )

    async def _refuse_former(self) -> None:
        """Raise FailedPrecondition where the table of the former name may be ours."""
        table = self._table
        try:
            found = await self._read(table.former_name)
        except AirunnerError:
            return
        if found.environment in {"", self._environment}:
            raise FailedPrecondition(
                f"there is no table {table.name}, but {table.former_name}, the name that environment "
                f"{self._environment} had by default: to keep it, set {table.kept_by}; to use a new "
                f"one, provision it by its name, --jobs-table {table.name}"
            )

    async def _read(self, table: str, *, expected: Collection[str] = ()) -> TableMeta:
        key = self._table.key
        reply = await self._aws.dynamodb(
            "GetItem", TableName=table, Key=key, ConsistentRead=True, expected=expected
        )
        return _meta(reply.get("Item"))

    async def _write(self, found: TableMeta) -> None:
        """Put the item in the place of what was found, or raise ConditionFailed with what is there."""
        ours = {
            "environment": {"S": self._environment},
            "version": {"N": str(VERSION)},
            "min_version": {"N": str(VERSION - _OLDER_BESIDE)},
        }
        arguments: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#environment)",
            "ExpressionAttributeNames": {"#environment": "environment"},
        }
        if found.environment:
            arguments = {
                "ConditionExpression": "#environment = :environment AND #version = :version",
                "ExpressionAttributeNames": {"#environment": "environment", "#version": "version"},
                "ExpressionAttributeValues": {
                    ":environment": {"S": found.environment},
                    ":version": {"N": str(found.version)},
                },
            }
        await self._aws.dynamodb(
            "PutItem",
            TableName=self._table.name,
            Item=self._table.key | ours,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **arguments,
        )
        _log.info("aws.table_adopted", table=self._table.name, environment=self._environment, version=VERSION)


def _meta(item: dict[str, Any] | None) -> TableMeta:
    found = item or {}
    return TableMeta(
        environment=found.get("environment", {}).get("S", ""),
        version=int(found.get("version", {}).get("N", "0")),
        min_version=int(found.get("min_version", {}).get("N", "0")),
    )
