"""What a fleet has on AWS: two queues with their dead-letter queues, and two tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airunner.aws.provision.definitions import (
    QueueDefinition,
    ResourceDefinitions,
    TableDefinition,
    index_arguments,
    table_arguments,
)
from airunner.aws.table_meta import OwnedTable
from airunner.domain.retry import RetryPolicy

CALL_POLICY: Final = RetryPolicy(first_seconds=0.1, factor=5.0, max_seconds=1.0, jitter=0.0, attempts=4)
"""How calls for the fleet are repeated: after 100, 500 and 1000 ms. Processors have no loop of their own."""
MAX_RECEIVE_COUNT: Final = 3
QUEUES: Final = ("termination", "housekeeping")
KEY: Final = "record_id"
LIST_INDEX: Final = "lists"
TTL_ATTRIBUTE: Final = "ttl"
POOL_KEY: Final = "pool_name"
_FIRST_ENVIRONMENT: Final = "prod"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLayout:
    """The names of all that; by default those of an environment."""

    env: str
    table: str = ""
    pools_table: str = ""
    deletion_protection: bool = False

    @property
    def fleet_table(self) -> str:
        """The table of the fleet's records."""
        return self.table or _by_default("fleet", self.env)

    @property
    def pool_table(self) -> str:
        """The table of what operators say of pools."""
        return self.pools_table or _by_default("fleet_pools", self.env)

    def queue_name(self, queue: str) -> str:
        """Return the name of one of the two queues."""
        return f"airunner-{self.env}-{queue}"


def fleet_resources(layout: FleetLayout) -> ResourceDefinitions:
    """Return all that a fleet needs."""
    return ResourceDefinitions(
        queues=[
            QueueDefinition(
                queue=queue,
                name=layout.queue_name(queue),
                dead_letter_name=f"{layout.queue_name(queue)}-dlq",
                max_receive_count=MAX_RECEIVE_COUNT,
                visibility_seconds=60,
            )
            for queue in QUEUES
        ],
        tables=[
            TableDefinition(
                creation=table_arguments(
                    layout.fleet_table,
                    hash_key=(KEY, "S"),
                    indexes=[index_arguments(LIST_INDEX, ("list_key", "S"), ("listed_at", "N"))],
                    deletion_protection=layout.deletion_protection,
                ),
                ttl_attribute=TTL_ATTRIBUTE,
            ),
            TableDefinition(
                creation=table_arguments(
                    layout.pool_table,
                    hash_key=(POOL_KEY, "S"),
                    deletion_protection=layout.deletion_protection,
                ),
                ttl_attribute=TTL_ATTRIBUTE,
            ),
        ],
    )


def owned_fleet_table(layout: FleetLayout) -> OwnedTable:
    """Return the table that says which environment it belongs to."""
    return OwnedTable(name=layout.fleet_table, key_name=KEY)


def _by_default(name: str, env: str) -> str:
    """Return the name of a table in an environment: airunner_fleet, airunner_staging_fleet."""
    return f"airunner_{name}" if env == _FIRST_ENVIRONMENT else f"airunner_{env}_{name}"
