"""`airunner keys`: API keys, straight in the store, also beside a running server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.json_schema import key_to_json
from airunner.cli.options import AsJson, load
from airunner.cli.printing import print_json, print_table, say
from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airunner.config import Settings
    from airunner.stores.base import JobStore
    from airunner.stores.records import ApiKey

keys = App(name="keys", help="Create, list and revoke API keys in the data folder.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Which store the keys are in."""

    data_dir: str | None = None
    """Folder of the store. Default: .airunner"""
    config: Path | None = None
    """YAML file of settings. Default: airunner.yaml, if it exists"""

    def load(self) -> Settings:
        """Return the settings in effect."""
        return load(self.config, {"data_dir": self.data_dir}).settings


DEFAULT_STORE = StoreOptions()


@keys.command
def create(
    name: Annotated[
        str, Parameter(help="Name of the principal that uses the key. Several keys may share it.")
    ],
    /,
    *,
    scope: Annotated[
        tuple[str, ...],
        Parameter(
            help="What the key may do: jobs:submit, jobs:read, jobs:cancel, worker, admin. Repeatable."
        ),
    ],
    queue: Annotated[
        tuple[str, ...],
        Parameter(help="Bind the key to this queue in everything it does. Repeatable. Default: all queues"),
    ] = (),
    init: Annotated[bool, Parameter(help="Create a store if there is none in the folder.")] = False,
    store: StoreOptions = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it. It is shown only once; only its hash is kept.

    The key is stored in the store of a server. Without a store, no key is created: it would be valid nowhere.
    """
    from airunner.app import locate_store
    from airunner.domain.clock import SystemClock
    from airunner.domain.limits import check_queue
    from airunner.rpc.auth import mint_key

    queues = [check_queue(entry) for entry in queue]
    minted = mint_key(name, scope, queues, SystemClock().now())
    settings = store.load()
    asyncio.run(_add(settings, minted.key, init=init))
    location = locate_store(settings)
    if as_json:
        print_json("key", {**key_to_json(minted.key), "key": minted.text, "store": location})
        return
    print(minted.text)
    say(f"key {minted.key.key_id} of {name} was created in {location}; it is not shown again")


@keys.command(name="list")
def list_keys(*, store: StoreOptions = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """List all keys, including revoked ones."""
    found = asyncio.run(_all(store.load()))
    if as_json:
        for key in found:
            print_json("key", key_to_json(key))
        return
    rows = [
        (
            key.key_id,
            key.name,
            ",".join(sorted(key.scopes)),
            ",".join(sorted(key.queues)) or "all",
            to_iso(key.created_at),
            f"revoked {to_iso(key.revoked_at)}" if key.revoked_at else "active",
        )
        for key in found
    ]
    print_table(("key id", "name", "scopes", "queues", "created", "state"), rows)


@keys.command
def revoke(
    key_id: Annotated[str, Parameter(help="Id of the key, as 'keys list' shows it.")],
    /,
    *,
    store: StoreOptions = DEFAULT_STORE,
) -> int:
    """Revoke a key. Running servers refuse it within about a second."""
    if not asyncio.run(_revoke(store.load(), key_id)):
        say(f"there is no key {key_id}")
        return ExitCode.NOT_FOUND
    say(f"key {key_id} is revoked")
    return ExitCode.OK


async def _add(settings: Settings, key: ApiKey, *, init: bool) -> None:
    from airunner.services.admin import AdminService

    async with _store(settings, must_exist=not init) as store:
        await AdminService(store).create_key(key)


async def _all(settings: Settings) -> list[ApiKey]:
    async with _store(settings) as store:
        return list(await store.list_keys())


async def _revoke(settings: Settings, key_id: str) -> bool:
    from airunner.domain.clock import SystemClock
    from airunner.services.admin import AdminService

    async with _store(settings) as store:
        return await AdminService(store).revoke_key(key_id, SystemClock().now())


@asynccontextmanager
async def _store(settings: Settings, *, must_exist: bool = True) -> AsyncIterator[JobStore]:
    from airunner import telemetry
    from airunner.app import open_store_beside

    telemetry.set_up_logs(settings.log_level, settings.log_format)
    store = open_store_beside(settings, must_exist=must_exist)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
