"""Who is asking: set once for each call, where it enters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from airunner.domain.errors import PermissionDenied

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal, and the queues it is bound to; none means all."""

    principal: str = ANONYMOUS
    queues: frozenset[str] = field(default_factory=frozenset)

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the caller is not bound to."""
        if self.queues and queue not in self.queues:
            raise PermissionDenied(f"this API key is not for queue {queue}")


current_caller: ContextVar[Caller] = ContextVar("current_caller", default=Caller())  # noqa: B039  frozen
