"""What the double does like AWS only where a test asks: every other test would be slow or random by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.doubles.aws.tables.throughput import Throughput

IN_FLIGHT_LIMIT: Final = 120_000
"""How many messages of a queue may be in flight."""


@dataclass(slots=True, kw_only=True)
class Conditions:
    """The conditions of one AWS, for a test to change. All seconds are of the emulator's clock.

    `aws.conditions.may_list_objects = False`, for one.
    """

    may_list_objects: bool = True
    """Whether the caller may list buckets: without it a missing object is answered with 403, not 404."""
    new_queue_seconds: float = 0
    """For how long a queue that was created is not there yet; a second on AWS."""
    deleted_queue_seconds: float = 0
    """For how long no queue is made of a name whose queue was deleted; a minute on AWS."""
    in_flight_limit: int = IN_FLIGHT_LIMIT
    """Long polls find nothing while so many messages of a queue are in flight; short ones are refused."""
    looks_after_update: tuple[str, ...] = ()
    """What the next looks at a table say after UpdateTable, before it is ACTIVE for good: ACTIVE as it was,
    then UPDATING. Until then every other change is refused, and counts as a look."""
    backups_refused: int = 0
    """How often the backups of a new table cannot be turned on yet."""
    throughput: Throughput | None = None
    """What each partition key of tables and indexes can take, by any clock; None is everything."""
