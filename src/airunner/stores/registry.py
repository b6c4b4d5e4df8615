"""The kinds of store by their names in the settings: how one is built, and in what they differ before that.

What is built is imported when it is built, so that nobody loads a store that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

from airunner import telemetry
from airunner.config import StoreType
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.stores.base import JobStore

_DAY_MS: Final = 24 * 3600 * 1000


class TokenKeys(Enum):
    """Where the key that signs task tokens comes from when the settings name none."""

    MADE_AT_START = "made at each start: nothing outlives the server"
    KEPT_IN_FOLDER = "made once, and kept in the data folder"
    MUST_BE_SET = "nowhere: the servers have no folder in common"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One kind of store. What a kind cannot do raises FailedPrecondition with a hint."""

    token_keys: TokenKeys
    build: Callable[[Settings, Clock], JobStore]
    """Return the store for a server, still to be opened."""
    build_beside: Callable[[Settings, Clock, bool], JobStore]
    """Return the store for a tool, whether or not a server runs on it; the flag says that it must exist."""
    locate: Callable[[Settings], str]
    """Return where the store is, in words for people."""
    back_up: Callable[[Settings, Path], bool]
    """Copy the store into a new file, also while a server uses it; return whether a token key came along."""
    restore: Callable[[Settings, Path, bool], bool]
    """Make such a copy the store; the flag says to replace one. Return whether a token key came along."""


def _build_memory(settings: Settings, clock: Clock) -> JobStore:
    from airunner.stores.memory import MemoryStore

    return MemoryStore(clock, drop_secrets=_drops_secrets(settings))


def _build_sqlite(settings: Settings, clock: Clock) -> JobStore:
    from airunner.stores.sqlite import SqliteStore

    store = SqliteStore(
        settings.data_dir,
        clock,
        max_waiting_writes=settings.limits.max_waiting_writes,
        drop_secrets=_drops_secrets(settings),
    )
    telemetry.store_commits.follow(lambda: store.commits)
    telemetry.store_commit_time.follow(lambda: store.commit_seconds)
    return store


def _build_sqlite_beside(settings: Settings, clock: Clock, must_exist: bool) -> JobStore:
    from airunner.stores.sqlite.store import DATABASE, SqliteStore

    if must_exist and not (settings.data_dir / DATABASE).exists():
        raise FailedPrecondition(
            f"there is no database in {settings.data_dir.absolute()}: name the folder of the server with "
            "--data-dir, or begin a new one with 'airunner keys create --init'"
        )
    return SqliteStore(settings.data_dir, clock, owner=False)


def _locate_sqlite(settings: Settings) -> str:
    from airunner.stores.sqlite.store import DATABASE

    return str(settings.data_dir.absolute() / DATABASE)


def _back_up_sqlite(settings: Settings, target: Path) -> bool:
    from airunner.stores.sqlite.backup import back_up

    return back_up(settings.data_dir, target)


def _restore_sqlite(settings: Settings, backup: Path, force: bool) -> bool:
    from airunner.stores.sqlite.backup import restore

    return restore(settings.data_dir, backup, force=force)


def _build_aws_store(settings: Settings, clock: Clock) -> JobStore:
    from airunner.aws.connect import build_aws

    # First, since it says what to install; and its retries go by the real clock, whatever jobs go by.
    aws = build_aws(settings, SystemClock())
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.store import AwsStore

    return AwsStore(
        aws,
        Layout.of(settings.store),
        clock,
        jobs_kept_ms=settings.store.job_retention_days * _DAY_MS,
        events_kept_ms=settings.store.event_retention_days * _DAY_MS,
        drop_secrets=_drops_secrets(settings),
        row_format=settings.store.aws.row_format,
        address=settings.cluster.advertise or "",
    )


def _locate_aws_store(settings: Settings) -> str:
    from airunner.stores.aws.layout import Layout

    return f"table {Layout.of(settings.store).jobs_table} on AWS"


def _drops_secrets(settings: Settings) -> bool:
    return settings.store.secrets_after_end == "drop"


def _refuse(text: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise FailedPrecondition(text)

    return refuse


STORES: Final[Mapping[StoreType, StoreKind]] = MappingProxyType(
    {
        StoreType.MEMORY: StoreKind(
            token_keys=TokenKeys.MADE_AT_START,
            build=_build_memory,
            build_beside=_refuse("a memory store can only be reached inside its server"),
            locate=lambda _: "the memory of its server",
            back_up=_refuse("a memory store cannot be copied"),
            restore=_refuse("a memory store cannot be restored"),
        ),
        StoreType.SQLITE: StoreKind(
            token_keys=TokenKeys.KEPT_IN_FOLDER,
            build=_build_sqlite,
            build_beside=_build_sqlite_beside,
            locate=_locate_sqlite,
            back_up=_back_up_sqlite,
            restore=_restore_sqlite,
        ),
        StoreType.AWS: StoreKind(
            token_keys=TokenKeys.MUST_BE_SET,
            build=_build_aws_store,
            build_beside=lambda settings, clock, _: _build_aws_store(settings, clock),
            locate=_locate_aws_store,
            back_up=_refuse("tables on AWS are backed up by point-in-time recovery"),
            restore=_refuse("restore is for the embedded store; tables on AWS have point-in-time recovery"),
        ),
    }
)
