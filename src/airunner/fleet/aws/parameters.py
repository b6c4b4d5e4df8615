"""The configurations of the runners: parameters of Systems Manager, called PREFIX/INSTANCE/config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airunner.aws.calls import Refused
from airunner.aws.paging import Pages
from airunner.domain.errors import FailedPrecondition, NotFound
from airunner.domain.splitting import split_by_count
from airunner.fleet.records import INSTANCE_ID, RunnerParameter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from airunner.aws.calls import Aws

INSTANCE_TAG: Final = "airunner-instance"
"""The tag that holds the ARN of the instance which may read a parameter; the runners' policy compares it."""
DEFAULT_PREFIX: Final = "/runs-fleet/runners"
# What the calls take at once; their answers have no more either.
_AT_ONCE: Final = 10
_ABSENT: Final = "ParameterNotFound"
_PRESENT: Final = "ParameterAlreadyExists"


class SsmParameters:
    """Implements RunnerParameters."""

    def __init__(self, aws: Aws, *, prefix: str = DEFAULT_PREFIX) -> None:
        self._aws = aws
        self._prefix = prefix.rstrip("/")
        self._form = re.compile(rf"{re.escape(self._prefix)}/({INSTANCE_ID.pattern})/config")

    async def list(self) -> AsyncIterator[Sequence[RunnerParameter]]:
        """Yield all parameters under the prefix, ten at a time; their values stay encrypted."""
        pages = Pages(
            self._aws.ssm,
            "GetParametersByPath",
            Path=self._prefix,
            Recursive=True,
            WithDecryption=False,
            MaxResults=_AT_ONCE,
        )
        async for page in pages:
            yield [
                RunnerParameter(
                    name=entry["Name"], modified_at=round(entry["LastModifiedDate"].timestamp() * 1000)
                )
                for entry in page["Parameters"]
            ]

    def name_of(self, instance_id: str) -> str:
        """Return the name of the parameter of an instance."""
        return f"{self._prefix}/{instance_id}/config"

    def instance_of(self, name: str) -> str:
        """Return the instance whose parameter has this name; empty for a name of any other form."""
        found = self._form.fullmatch(name)
        return found[1] if found else ""

    async def read(self, name: str) -> str:
        """Return the value of a parameter, decrypted."""
        try:
            answer = await self._aws.ssm("GetParameter", expected={_ABSENT}, Name=name, WithDecryption=True)
        except Refused as error:
            if error.code == _ABSENT:
                raise NotFound("there is no such parameter") from None
            raise FailedPrecondition(f"it cannot be read: {error.code}") from None
        return str(answer["Parameter"]["Value"])

    async def put(self, name: str, value: str, instance_arn: str) -> None:
        """Write a parameter with its tag. SSM takes both in one call only for one that is new.

        After a death between the two calls for one that is not, it has the tag that it had before.
        """
        tags = [{"Key": INSTANCE_TAG, "Value": instance_arn}]
        arguments = {"Name": name, "Value": value, "Type": "SecureString"}
        try:
            await self._aws.ssm("PutParameter", expected={_PRESENT}, Tags=tags, **arguments)
        except Refused as error:
            if error.code != _PRESENT:
                raise
            await self._aws.ssm("PutParameter", Overwrite=True, **arguments)
            await self._aws.ssm("AddTagsToResource", ResourceType="Parameter", ResourceId=name, Tags=tags)

    async def delete(self, names: Sequence[str]) -> Collection[str]:
        """Delete parameters, ten in a call; return those that were there."""
        deleted: set[str] = set()
        for some in split_by_count(names, _AT_ONCE):
            answer = await self._aws.ssm("DeleteParameters", Names=[*some])
            deleted.update(answer.get("DeletedParameters", ()))
        return deleted
