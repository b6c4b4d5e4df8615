"""AdminService: what whoever runs the servers may do beside the jobs themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airunner.domain import limits
from airunner.domain.errors import FailedPrecondition
from airunner.services.call_log import log_key_created, log_key_revoked
from airunner.services.caller import current_caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
    from airunner.domain.requests import Redrive
    from airunner.stores.abilities import DeadLetterCalls
    from airunner.stores.base import JobStore
    from airunner.stores.records import ApiKey

DEFAULT_MESSAGES = 100
MAX_MESSAGES = 1_000


class AdminService:
    """API keys and dead letters; where a store has no dead letters, their calls say what to do instead."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._of_messages: dict[str, DeadLetterCalls] = {}

    def add_dead_letters(self, queue: str, letters: DeadLetterCalls) -> None:
        """Serve the dead letters of a message queue, beside those of the store. Call it before serving."""
        self._of_messages[queue] = letters

    async def create_key(self, key: ApiKey) -> None:
        """Keep a new API key."""
        await self._store.add_key(key)
        log_key_created(key)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """End an API key; return whether it exists. A revoked one stays as it is."""
        found = await self._store.revoke_key(key_id, now)
        if found:
            log_key_revoked(key_id)
        return found

    async def list_dead_letters(self, queue: str, *, max_messages: int = 0, code: str = "") -> DeadLetterPage:
        """Look at dead letters, of a code if one is given; zero is the default number."""
        queue = _checked(queue)
        return await self._dead_letters(queue).look(queue, _bounded(max_messages), code=code)

    async def redrive_dead_letters(self, redrive: Redrive) -> Redriven:
        """Send dead letters back to their queue."""
        queue, count = _checked(redrive.queue), _bounded(redrive.max_messages)
        return await self._dead_letters(queue).redrive(replace(redrive, queue=queue, max_messages=count))

    async def purge_dead_letters(
        self, queue: str, *, max_messages: int = 0, dry_run: bool = False, code: str = ""
    ) -> Sequence[DeadLetter]:
        """Delete dead letters, of a code if one is given."""
        queue, count = _checked(queue), _bounded(max_messages)
        return await self._dead_letters(queue).purge(queue, count, dry_run=dry_run, code=code)

    def _dead_letters(self, queue: str) -> DeadLetterCalls:
        if found := self._of_messages.get(queue) or self._store.dead_letters:
            return found
        raise FailedPrecondition(
            "this server's store has no dead-letter queues: see 'airunner list --state failed' for jobs that "
            "failed, and run one again with 'airunner retry JOB'"
        )


def _checked(queue: str) -> str:
    return current_caller.get().check_queue(limits.check_queue(queue))


def _bounded(max_messages: int) -> int:
    return limits.in_range_or_default(max_messages, "max_messages", DEFAULT_MESSAGES, 1, MAX_MESSAGES)
