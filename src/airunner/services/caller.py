"""Who is asking: set once for each call, where it enters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal, and the queues it is bound to in all that it does; none means all."""

    principal: str = ANONYMOUS
    queues: frozenset[str] = field(default_factory=frozenset)
    recheck: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    """Raises Unauthenticated if the caller's key was revoked since; None for whoever has no key."""

    async def check_again(self) -> None:
        """Refuse a caller whose key was revoked since; for calls that last, before they tell something."""
        if self.recheck:
            await self.recheck()

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
