"""Giving an instance of the fleet its work: a record that keeps sweeps away, then its configuration.

Both may be written again, so that an assignment which was interrupted is completed by repeating it. Until
its configuration is there a runner waits for it; an instance that was assigned, and never configured, is an
orphan once the assignment is old.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.config import parameter_text
from airunner.domain import limits
from airunner.domain.errors import FailedPrecondition, InvalidArgument
from airunner.fleet.records import INSTANCE_ID, InstanceState
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.fleet.ports import FleetRecords, Instances, RunnerParameters
    from airunner.fleet.records import Instance, InstanceRecord

_log = get_logger("airunner.fleet")

# In these it is there, or can be again.
_ASSIGNABLE: Final = (
    InstanceState.PENDING,
    InstanceState.RUNNING,
    InstanceState.STOPPING,
    InstanceState.STOPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerAccess:
    """Which servers runners work for, and their key there."""

    servers: tuple[str, ...]
    api_key: str = field(default="", repr=False)
    """Empty for servers that want none. Bound to one queue, it is worth little to the jobs of another."""


class Assignments:
    """Assigns instances to queues."""

    def __init__(
        self,
        instances: Instances,
        records: FleetRecords,
        parameters: RunnerParameters,
        access: RunnerAccess,
        clock: Clock,
    ) -> None:
        self._instances = instances
        self._records = records
        self._parameters = parameters
        self._access = access
        self._clock = clock

    async def assign(self, instance_id: str, queue: str) -> InstanceRecord:
        """Let an instance work on a queue. FailedPrecondition if it is draining, or none of the fleet.

        The record comes first: a sweep that read the one before does not mark the instance any more.
        """
        limits.check_queue(queue)
        instance = await self._find(check_instance_id(instance_id))
        record = await self._records.assign(instance_id, queue, self._clock.now())
        configuration = parameter_text(self._access.servers, self._access.api_key, (queue,))
        await self._parameters.put(self._parameters.name_of(instance_id), configuration, instance.arn)
        _log.info("fleet.assigned", instance_id=instance_id, queue=queue)
        return record

    async def _find(self, instance_id: str) -> Instance:
        found = (await self._instances.find([instance_id])).get(instance_id)
        if found is None:
            raise FailedPrecondition(
                f"EC2 does not know instance {instance_id}; if it is new, try again in some seconds"
            )
        if not found.is_managed:
            raise FailedPrecondition(f"instance {instance_id} is not tagged as one of the fleet")
        if found.state not in _ASSIGNABLE:
            raise FailedPrecondition(f"instance {instance_id} is {found.state.value}")
        return found


def check_instance_id(text: str) -> str:
    """Return the id of an instance; InvalidArgument if it is none."""
    if not INSTANCE_ID.fullmatch(text):
        raise InvalidArgument("an instance id has 1 to 64 letters, digits and '-'")
    return text
