"""The machines of the fleet: EC2, by the tags that make an instance one of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airunner.aws.calls import Refused
from airunner.aws.clients import partition_of
from airunner.aws.paging import Pages
from airunner.domain.splitting import split_by_count
from airunner.fleet.records import Instance, InstanceState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from airunner.aws.calls import Aws

MANAGED_TAG: Final = "runs-fleet:managed"
POOL_TAG: Final = "runs-fleet:pool"
ENVIRONMENT_TAG: Final = "runs-fleet:env"
"""The tag that makes an instance one of the fleet of one environment; without it, it is one of each."""
_PAGE: Final = 1000
_FILTER_VALUES: Final = 200
_ENDED_AT_ONCE: Final = 100
# Of one that EC2 does not know; our table of errors keeps what comes after the last dot.
_ABSENT: Final = "InvalidInstanceID.NotFound"
# Of one whose attribute DisableApiTermination is set.
_PROTECTED: Final = "OperationNotPermitted"
_REFUSALS: Final = frozenset({_ABSENT, _ABSENT.rpartition(".")[2], _PROTECTED})


class Ec2Instances:
    """Implements Instances. Those that a tag gives to another environment are none of the fleet."""

    def __init__(self, aws: Aws, *, env: str = "") -> None:
        """`env` is the environment of the fleet; without one, it has the instances of all."""
        self._aws = aws
        self._env = env

    async def managed(self, states: Collection[InstanceState]) -> AsyncIterator[Sequence[Instance]]:
        """Yield all instances with the tag that are in one of these states, a page of EC2 at a time."""
        names = sorted(state.value for state in states)
        filters = {f"tag:{MANAGED_TAG}": ["true"], "instance-state-name": names}
        async for page in self._pages(filters, MaxResults=_PAGE):
            yield [instance for instance in page if instance.is_managed]

    async def find(self, instance_ids: Collection[str]) -> Mapping[str, Instance]:
        """Return those that exist. By filter: an InstanceId that EC2 does not know would fail the call."""
        found: dict[str, Instance] = {}
        for some in split_by_count(sorted(instance_ids), _FILTER_VALUES):
            async for page in self._pages({"instance-id": list(some)}):
                found |= {instance.instance_id: instance for instance in page}
        return found

    async def terminate(self, instance_ids: Sequence[str]) -> Collection[str]:
        """Terminate instances, a hundred in a call; return those that are protected from that."""
        protected: list[str] = []
        for some in split_by_count(instance_ids, _ENDED_AT_ONCE):
            protected += await self._terminate(some)
        return protected

    async def _terminate(self, instance_ids: Sequence[str]) -> list[str]:
        """Terminate instances in one call; where EC2 refuses that for one of them, each by itself."""
        try:
            await self._aws.ec2("TerminateInstances", expected=_REFUSALS, InstanceIds=list(instance_ids))
        except Refused as error:
            if error.code not in _REFUSALS:
                raise
            if len(instance_ids) == 1:
                return list(instance_ids) if error.code == _PROTECTED else []
        else:
            return []
        return [name for one in instance_ids for name in await self._terminate([one])]

    async def _pages(self, filters: Mapping[str, list[str]], **options: Any) -> AsyncIterator[list[Instance]]:
        named = [{"Name": name, "Values": values} for name, values in filters.items()]
        async for page in Pages(self._aws.ec2, "DescribeInstances", Filters=named, **options):
            reservations = page.get("Reservations", [])
            yield [
                _instance(entry, self._arn_prefix(each.get("OwnerId", "")), self._env)
                for each in reservations
                for entry in each["Instances"]
            ]

    def _arn_prefix(self, owner_id: str) -> str:
        region = self._aws.region
        return f"arn:{partition_of(region)}:ec2:{region}:{owner_id}:instance/"


def _instance(entry: Mapping[str, Any], arn_prefix: str, env: str) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", [])}
    is_ours = not env or tags.get(ENVIRONMENT_TAG, env) == env
    return Instance(
        instance_id=entry["InstanceId"],
        state=InstanceState(entry["State"]["Name"]),
        launched_at=round(entry["LaunchTime"].timestamp() * 1000),
        instance_type=entry.get("InstanceType", ""),
        pool=tags.get(POOL_TAG, ""),
        is_managed=tags.get(MANAGED_TAG) == "true" and is_ours,
        arn=f"{arn_prefix}{entry['InstanceId']}",
    )
