"""Names in SQL. It needs no driver: applications that bring their own use it too."""

from __future__ import annotations

from airunner.domain.errors import InvalidArgument


def quote_identifier(name: str) -> str:
    """Return a name as SQL has it, whatever characters it is made of; InvalidArgument if it can be none."""
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 63:
        raise InvalidArgument("a name in PostgreSQL has 1 to 63 bytes, and no NUL")
    return '"' + name.replace('"', '""') + '"'
