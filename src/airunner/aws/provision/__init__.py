"""Makes what definitions describe, or brings what is there up to it. Repeating it changes nothing.

Nothing is ever weakened or deleted: what an operator added (a stream, other lifecycle rules) stays, and what
cannot be changed in place (keys of tables and indexes) is refused with FailedPrecondition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.aws.provision.bucket import provide_bucket
from airunner.aws.provision.queues import provide_queue
from airunner.aws.provision.resources import Change, Resource, ResourceKind, Writer
from airunner.aws.provision.tables import provide_table

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import ResourceDefinitions
    from airunner.domain.clock import Clock

__all__ = ["Change", "Resource", "ResourceKind", "provision"]


async def provision(
    aws: Aws,
    wanted: ResourceDefinitions,
    clock: Clock,
    *,
    dry_run: bool = False,
    deadline_seconds: float = 300,
) -> list[Resource]:
    """Make everything and wait until it is active; return each resource with what was done to it.

    Queues come first, each after its dead-letter queue, then the tables, then the bucket. What AWS answers
    with "not yet" is repeated; DeadlineExceeded when something is not active in time. What fails leaves what
    was made before it: call again. A dry run only reads, and returns what would be done.
    """
    writer = Writer(aws, clock, dry_run=dry_run, deadline=clock.monotonic() + int(deadline_seconds * 1000))
    made: list[Resource] = []
    for queue in wanted.queues:
        made += await provide_queue(writer, queue)
    for table in wanted.tables:
        made.append(await provide_table(writer, table))
    if wanted.bucket:
        made.append(await provide_bucket(writer, wanted.bucket, beside=_some_arn(made)))
    return made


def _some_arn(made: list[Resource]) -> str:
    """It tells where we are, also when the SDK alone decided that; empty when a dry run found nothing."""
    return next((each.arn for each in made if each.arn), "")
