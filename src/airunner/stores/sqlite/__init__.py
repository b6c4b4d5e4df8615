"""The embedded store: one SQLite file, one writer thread, group commit."""

from airunner.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
