"""A fleet on AWS as the settings describe it: the one place where its ports are built."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self

from airunner.aws import sqs
from airunner.aws.calls import Refused
from airunner.aws.clients import OF_A_FLEET
from airunner.aws.connect import build_aws
from airunner.aws.table_meta import TableOwnership
from airunner.config import ConfigError, FleetPart
from airunner.domain.errors import FailedPrecondition
from airunner.fleet.aws.instances import Ec2Instances
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, owned_fleet_table
from airunner.fleet.aws.parameters import SsmParameters
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.aws.slots import DynamoDbSlots
from airunner.queues.sqs import SqsQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.config import Settings
    from airunner.domain.clock import Clock

_NO_TABLE: Final = "ResourceNotFoundException"


class FleetConnection:
    """The ports of a fleet, of use from `async with` to its end.

    `clients` are the services of AWS that are opened; ports that need others cannot be called.
    """

    def __init__(self, settings: Settings, clock: Clock, *, clients: Sequence[str] = OF_A_FLEET) -> None:
        """Nothing is called yet. ConfigError and FailedPrecondition say what is missing."""
        self.layout = fleet_layout(settings)
        self.aws = build_aws(settings, clock, clients=clients, policy=CALL_POLICY)
        self.records = DynamoDbRecords(self.aws, self.layout)
        self.slots = DynamoDbSlots(self.aws, self.layout)
        self.instances = Ec2Instances(self.aws, env=self.layout.env)
        self.parameters = SsmParameters(self.aws, prefix=settings.fleet.parameter_prefix)
        self._clock = clock
        self._urls = {
            FleetPart.TERMINATION: settings.fleet.termination_queue_url,
            FleetPart.HOUSEKEEPING: settings.fleet.housekeeping_queue_url,
        }
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the clients."""
        await self._stack.enter_async_context(self.aws)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self._stack.aclose()

    async def check_table(self) -> None:
        """Make sure that the fleet's table is there and of this environment, else FailedPrecondition."""
        ownership = TableOwnership(self.aws, owned_fleet_table(self.layout), self.layout.env)
        try:
            await ownership.ensure()
        except Refused as refused:
            if refused.code != _NO_TABLE:
                raise
            raise FailedPrecondition(
                f"there is no table {self.layout.fleet_table}: set fleet.table, or create it with "
                "'airunner aws provision --fleet'"
            ) from refused

    async def queue(self, part: FleetPart) -> SqsQueue:
        """Return the queue of a processor: that of the settings, else the one of its name.

        FailedPrecondition if there is none.
        """
        url = self._urls[part] or await sqs.find_queue(self.aws, self.layout.queue_name(part.value))
        if not url:
            raise FailedPrecondition(
                f"there is no queue {self.layout.queue_name(part.value)}: set "
                f"fleet.{part.value}_queue_url, or create it with 'airunner aws provision --fleet'"
            )
        return SqsQueue(self.aws, url, clock=self._clock)


def fleet_layout(settings: Settings) -> FleetLayout:
    """Return what a fleet is called by the settings."""
    fleet = settings.fleet
    return FleetLayout(env=settings.store.aws.env, table=fleet.table, pools_table=fleet.pools_table)


def check_apart(settings: Settings) -> None:
    """Refuse a job queue that is one of the fleet by name or URL: each would take the other's messages."""
    if settings.store.type != "aws":
        return
    layout, fleet = fleet_layout(settings), settings.fleet
    ours = {
        layout.queue_name("termination"): fleet.termination_queue_url,
        layout.queue_name("housekeeping"): fleet.housekeeping_queue_url,
    }
    for queue, address in settings.store.sqs.queues.items():
        called = address.rpartition("/")[2] or f"airunner-{settings.store.aws.env}-{queue}"
        url = ours.get(called)
        is_other = called not in ours or (address and url and address != url)
        if (address and address in ours.values()) or not is_other:
            raise ConfigError([
                f"store.sqs.queues: {queue} is {called}, a queue of the fleet; give it another name"
            ])  # fmt: skip
