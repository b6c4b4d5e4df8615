"""`airunner fleet pools`: what operators say of pools of instances."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter

from airunner.cli.fleet_text import pool_to_json
from airunner.cli.options import AsJson, ConfigFile, load
from airunner.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from airunner.fleet.ports import FleetRecords

T = TypeVar("T")

pools = App(name="pools", help="List and describe pools of instances.")


@pools.command(name="list")
def list_pools(*, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the pools that were described, by name."""
    found = _ask(config_file, lambda records: records.list_pools())
    if as_json:
        for pool in found:
            print_json("pool", pool_to_json(pool))
        return
    rows = [
        (pool.name, pool.instance_type, str(pool.desired_running), str(pool.desired_stopped))
        for pool in found
    ]
    print_table(("pool", "type", "running", "stopped"), rows)


@pools.command(name="set")
def set_pool(
    name: Annotated[str, Parameter(help="The pool: the value of the tag runs-fleet:pool of its instances.")],
    /,
    *,
    instance_type: Annotated[str, Parameter(help="The type of its instances.")] = "",
    running: Annotated[int, Parameter(help="How many instances should run. Default: 0")] = 0,
    stopped: Annotated[
        int, Parameter(help="How many should be stopped, ready to start quickly. Default: 0")
    ] = 0,
    config_file: ConfigFile = None,
) -> None:
    """Describe a pool, and replace its previous description. Audits count it even when it is empty."""
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.fleet import Pool

    if not (name and name.isprintable() and len(name) <= 255):
        raise InvalidArgument("the name of a pool has 1 to 255 printable characters")
    if not (0 <= running < 2**31 and 0 <= stopped < 2**31):
        raise InvalidArgument("--running and --stopped must not be negative")
    pool = Pool(name=name, instance_type=instance_type, desired_running=running, desired_stopped=stopped)
    _ask(config_file, lambda records: records.put_pool(pool))


def _ask(config_file: Path | None, question: Callable[[FleetRecords], Awaitable[T]]) -> T:
    from airunner.app import build_fleet_connection

    settings = load(config_file, {}).settings

    async def session() -> T:
        async with build_fleet_connection(settings, clients=["dynamodb"]) as fleet:
            await fleet.check_table()
            return await question(fleet.records)

    return asyncio.run(session())
