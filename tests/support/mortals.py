"""A process that dies at one of its calls to PostgreSQL or SQS, before the call is done or after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from airunner.domain.errors import AirunnerError, PermanentFailure
from airunner.postgres.pool import Database, PostgresOptions
from airunner.queues.messages import Message, NewMessage
from airunner.queues.sqs import SqsQueue

T = TypeVar("T")


class Died(BaseException):
    """The process is dead: nobody catches that."""


class Gate:
    """What every call of the mortal passes: at one of them it dies, before or after the call is done."""

    def __init__(self, at_call: int, *, executed: bool) -> None:
        self._left = at_call
        self._executed = executed
        self.happened = False

    async def pass_through(self, call: Callable[[], Awaitable[T]]) -> T:
        self._left -= 1
        if self._left > 0:
            return await call()
        if self._left == 0:
            self.happened = True
            if self._executed:
                await call()
        raise Died


class MortalDatabase(Database):
    """A database as the mortal sees it: each statement is a call."""

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(options)
        self.gate = Gate(1_000_000, executed=False)

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        inner = super().fetch
        return await self.gate.pass_through(lambda: inner(statement, *values))

    async def fetch_value(self, statement: str, *values: object) -> Any:
        inner = super().fetch_value
        return await self.gate.pass_through(lambda: inner(statement, *values))

    async def execute(self, statement: str, *values: object) -> str:
        inner = super().execute
        return await self.gate.pass_through(lambda: inner(statement, *values))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with super().transaction() as connection:
            yield MortalConnection(connection, self.gate)
            await self.gate.pass_through(_nothing)  # it dies before the commit
        await self.gate.pass_through(_nothing)  # or before it hears of it


@dataclass(frozen=True, slots=True)
class MortalConnection:
    """A connection within a transaction as the mortal sees it."""

    connection: Any
    gate: Gate

    async def fetch(self, statement: str, *values: object) -> Any:
        return await self.gate.pass_through(lambda: self.connection.fetch(statement, *values))

    async def fetchval(self, statement: str, *values: object) -> Any:
        return await self.gate.pass_through(lambda: self.connection.fetchval(statement, *values))

    async def execute(self, statement: str, *values: object) -> Any:
        return await self.gate.pass_through(lambda: self.connection.execute(statement, *values))


async def _nothing() -> None:
    """Stand for what PostgreSQL does by itself."""


class MortalQueue(SqsQueue):
    """A queue as the mortal sees it: each call to SQS is one."""

    gate: Gate

    async def receive(self, max_messages: int, **options: Any) -> Sequence[Message]:
        inner = super().receive
        return await self.gate.pass_through(lambda: inner(max_messages, **options))

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        inner = super().send
        return await self.gate.pass_through(lambda: inner(messages))

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        inner = super().delete
        return await self.gate.pass_through(lambda: inner(messages))

    async def release(self, message: Message, delay_seconds: float) -> None:
        inner = super().release
        await self.gate.pass_through(lambda: inner(message, delay_seconds))

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        """Put a message aside; between its two calls, and around them, it may die."""
        inner = super().dead_letter
        await self.gate.pass_through(lambda: inner(message, failure))
