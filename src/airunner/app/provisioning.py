"""What a system needs on AWS, made from settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airunner.app.fleet import build_fleet_connection
from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from airunner.aws.provision import Resource
    from airunner.config import Settings
    from airunner.domain.clock import Clock


async def provision_aws(
    settings: Settings, *, deletion_protection: bool = False, dry_run: bool = False
) -> list[Resource]:
    """Make or mend everything that the store on AWS needs, and mark the tables; a dry run only tells.

    FailedPrecondition, before anything is made, where a table belongs to another environment, or the
    credentials to another account than that of the settings.
    """
    from airunner.aws.connect import build_aws

    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_aws(settings, clock) as aws:
        from airunner.aws.provision import provision
        from airunner.aws.table_meta import TableOwnership
        from airunner.stores.aws.layout import Layout, owned_table, resources

        layout = replace(Layout.of(settings.store), deletion_protection=deletion_protection)
        ownership = TableOwnership(aws, owned_table(layout), layout.env)
        await ownership.refuse_others()
        made = await provision(aws, resources(layout), clock, dry_run=dry_run)
        if not dry_run:
            await ownership.ensure()
        return made


async def provision_generation(settings: Settings, *, dry_run: bool = False) -> list[Resource]:
    """Make or mend the message queue of generation and its dead-letter queue; a dry run only tells."""
    from airunner.aws.connect import build_aws
    from airunner.generation.layout import generation_resources

    wanted = generation_resources(settings)
    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_aws(settings, clock, clients=["sqs"]) as aws:
        from airunner.aws.provision import provision

        return await provision(aws, wanted, clock, dry_run=dry_run)


async def provision_fleet(
    settings: Settings, *, deletion_protection: bool = False, dry_run: bool = False
) -> list[Resource]:
    """Make or mend the queues and tables of a fleet, and mark its table; a dry run only tells.

    FailedPrecondition, before anything is made, where the table belongs to another environment.
    """
    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_fleet_connection(settings, clients=["sqs", "dynamodb"]) as fleet:
        from airunner.aws.provision import provision
        from airunner.aws.table_meta import TableOwnership
        from airunner.fleet.aws.layout import fleet_resources, owned_fleet_table

        layout = replace(fleet.layout, deletion_protection=deletion_protection)
        ownership = TableOwnership(fleet.aws, owned_fleet_table(layout), layout.env)
        await ownership.refuse_others()
        made = await provision(fleet.aws, fleet_resources(layout), clock, dry_run=dry_run)
        if not dry_run:
            await ownership.ensure()
        return made


async def _check_account(settings: Settings, clock: Clock) -> None:
    """Refuse the credentials of another account than the settings name, if they name one."""
    from airunner.aws.connect import build_aws

    account_id = settings.store.aws.account_id
    if not account_id:
        return
    async with build_aws(settings, clock, clients=["sts"]) as aws:
        from airunner.aws.provision.account import check_account

        await check_account(aws, account_id)
