"""Who is asking: set once for each call, where it enters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from airunner.domain.errors import PermissionDenied

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal, and the queues it is bound to in all that it does; none means all."""

    principal: str = ANONYMOUS
    queues: frozenset[str] = field(default_factory=frozenset)

    def may_use(self, queue: str) -> bool:
        """Return whether a queue is among those that the caller is bound to."""
        return not self.queues or queue in self.queues

    def check_queue(self, queue: str) -> str:
        """Return a queue, or refuse one that the caller is not bound to."""
        # As `may_use` has it, without a call for each job that ends.
        if self.queues and queue not in self.queues:
            raise PermissionDenied(f"this API key is not for queue {queue}")
        return queue


ANYBODY: Final = Caller()
"""Whoever calls where nobody is asked who it is."""

current_caller: ContextVar[Caller] = ContextVar("current_caller", default=ANYBODY)
