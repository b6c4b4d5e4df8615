"""Lists that one call cannot carry: answers that come in pages, and keys of which a call takes so many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

from airunner.domain.splitting import split_by_count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from airunner.aws.calls import Aws

# The field of an answer that says where the next page begins, and the argument that takes it.
_POSITIONS: Final = {
    "DescribeInstances": ("NextToken", "NextToken"),
    "DescribeStream": ("LastEvaluatedShardId", "ExclusiveStartShardId"),
    "GetParametersByPath": ("NextToken", "NextToken"),
    "ListBuckets": ("ContinuationToken", "ContinuationToken"),
    "ListQueues": ("NextToken", "NextToken"),
    "ListTables": ("LastEvaluatedTableName", "ExclusiveStartTableName"),
    "Query": ("LastEvaluatedKey", "ExclusiveStartKey"),
    "Scan": ("LastEvaluatedKey", "ExclusiveStartKey"),
}
_READ_AT_ONCE: Final = 100
_READS_AT_ONCE: Final = 8


class Pages:
    """The answers of one operation, page by page, to be iterated; each page is one call.

    `call` is the method of Aws that performs the operation. A page may be empty and not the last. After an
    error the same page is asked for again. It may be left at any point: nothing is open between two pages.
    """

    def __init__(
        self,
        call: Callable[..., Awaitable[dict[str, Any]]],
        operation: str,
        /,
        *,
        max_pages: int | None = None,
        **arguments: Any,
    ) -> None:
        self._call = call
        self._operation = operation
        self._arguments = arguments
        self._field, self._argument = _POSITIONS[operation]
        self._pages_left = max_pages
        self._is_over = False

    @property
    def next_position(self) -> Any:
        """Where the next page begins; None before the first page and after the last of all."""
        return None if self._is_over else self._arguments.get(self._argument)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._is_over or self._pages_left == 0:
            raise StopAsyncIteration
        answer = await self._call(self._operation, **self._arguments)
        if self._pages_left is not None:
            self._pages_left -= 1
        position = answer.get(self._field)
        self._arguments = {**self._arguments, self._argument: position}
        self._is_over = not position
        return answer


async def read_items(
    aws: Aws, table: str, keys: Sequence[Mapping[str, Any]], **options: Any
) -> list[dict[str, Any]]:
    """Return the items of any number of keys, those that exist, in any order.

    Up to eight calls are under way at once. After an error all of them have ended.
    """
    found: list[dict[str, Any]] = []
    for portions in split_by_count(split_by_count(keys, _READ_AT_ONCE), _READS_AT_ONCE):
        calls = (aws.batch_get(table, some, **options) for some in portions)
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            found += answer
    return found
