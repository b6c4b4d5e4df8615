"""A PostgreSQL of one's own on this machine, for tests and for trying things out."""

from airunner.local.postgres.binaries import PostgresMissing, find_binaries
from airunner.local.postgres.server import LocalPostgres

__all__ = ["LocalPostgres", "PostgresMissing", "find_binaries"]
