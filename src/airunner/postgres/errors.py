"""What an error of PostgreSQL, or of the way to it, means to us.

No text here repeats what the driver says: it may hold the address with its password, or rows of somebody.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import asyncpg

from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of the driver as ours; others pass."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise read_error(error) from error
    except asyncpg.ClientConfigurationError:
        # Without its context, which may repeat the address.
        raise FailedPrecondition("postgres.dsn is not the address of a PostgreSQL database") from None
    except asyncpg.DataError as error:
        raise InvalidArgument("PostgreSQL cannot store this value") from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise Unavailable(f"PostgreSQL does not answer: {type(error).__name__}") from error


@contextmanager
def translated_opening() -> Iterator[None]:
    """Do the same for what opens connections, where a ValueError is about the address."""
    try:
        with translated_errors():
            yield
    except (ValueError, KeyError):
        raise FailedPrecondition("postgres.dsn is not the address of a PostgreSQL database") from None


def read_error(error: asyncpg.PostgresError) -> AirunnerError:
    """Return our error for one that PostgreSQL answered with; the first row that fits its code decides."""
    code = error.sqlstate or ""
    for prefixes, kind, text in _BY_CODE:
        if code.startswith(prefixes):
            return kind(f"{text} ({code})")
    return InternalError(f"PostgreSQL answers with an error ({code or type(error).__name__})")


_BY_CODE: Final[tuple[tuple[tuple[str, ...], type[AirunnerError], str], ...]] = (
    (("28",), Unauthenticated, "PostgreSQL refuses the user or its password"),
    (("42501",), PermissionDenied, "the role may not do this in PostgreSQL"),
    (("3D",), FailedPrecondition, "there is no such database"),
    # Of a server that shuts down, starts, fails over, is full, or takes no connections to this database, and
    # of a transaction that met another one.
    (
        ("08", "57", "53", "40", "55000", "55P03", "58", "25P03", "25006", "XX"),
        Unavailable,
        "PostgreSQL cannot do this now",
    ),
    (("3F", "42P01", "42883", "42703"), FailedPrecondition, "the schema lacks something: migrate it"),
    (("42704",), FailedPrecondition, "there is no such role or type: create it first"),
    (("23505",), AlreadyExists, "there is another one with the same key"),
    (("22", "23", "54", "P0"), InvalidArgument, "PostgreSQL refuses the values"),
)
