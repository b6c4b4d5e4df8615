"""Stores, from settings: the only module that names concrete ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.stores.base import JobStore
    from airunner.stores.registry import StoreKind


def build_store(settings: Settings, clock: Clock) -> JobStore:
    """Return the store that the settings name, for a server."""
    return store_kind(settings).build(settings, clock)


def open_store_beside(settings: Settings, *, must_exist: bool = False) -> JobStore:
    """Return the durable store of the settings for a tool, whether or not a server runs on it."""
    return store_kind(settings).build_beside(settings, SystemClock(), must_exist)


def locate_store(settings: Settings) -> str:
    """Return where the store of the settings is, in words for people."""
    return store_kind(settings).locate(settings)


def back_up_store(settings: Settings, target: Path) -> bool:
    """Copy the store of the settings into a new file, also while a server uses it.

    Return whether the key that signs task tokens came along, into a second file.
    """
    return store_kind(settings).back_up(settings, target)


def restore_store(settings: Settings, backup: Path, *, force: bool = False) -> bool:
    """Make such a copy the store of the settings; return whether its token key came along."""
    return store_kind(settings).restore(settings, backup, force)


def store_kind(settings: Settings) -> StoreKind:
    from airunner.stores.registry import STORES

    return STORES[settings.store.type]
