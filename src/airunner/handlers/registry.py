"""Which function handles which jobs and messages, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from airunner.domain.limits import check_handler_name, handler_key
from airunner.handlers.arguments import Arguments, HandlerError

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__airunner_handles__"


def handler(*names: str) -> Callable[[F], F]:
    """Mark a function, sync or async, as the handler of jobs with one of these names.

    It is called with the payload and the context, in the order of its signature: the parameter that
    is annotated with Context or called `ctx` gets the context, the other one the payload. Names compare
    case-insensitively.
    """
    for name in names:
        check_handler_name(name)
    if not names:
        raise HandlerError("@handler needs at least one name")

    def mark(function: F) -> F:
        setattr(function, _MARK, (*names_of(function), *names))
        return function

    return mark


def names_of(function: object) -> tuple[str, ...]:
    """Return the names that a function was marked with."""
    # A mock has every attribute, but it was not marked.
    marked = getattr(function, _MARK, ()) if callable(function) else ()
    return marked if isinstance(marked, tuple) else ()


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered function."""

    name: str
    function: Callable[..., Any]
    arguments: Arguments
    is_async: bool
    source: str


class Registry(Mapping[str, Handler]):
    """Handlers by name, in whatever case it is spelled. One name has one function, for good."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def __getitem__(self, name: str) -> Handler:
        return self._handlers[handler_key(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    def add(self, name: str, function: Callable[..., Any], source: str) -> None:
        """Register a function; adding it again does nothing, another one of that name is a HandlerError."""
        key = handler_key(check_handler_name(name))
        known = self._handlers.get(key)
        if known is None:
            arguments = Arguments.of(function, source)
            self._handlers[key] = Handler(name, function, arguments, _is_async(function), source)
        elif known.function is not function:
            raise HandlerError(f"handler {name!r} is defined twice: in {known.source} and in {source}")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  its kind is needed, not whether it is there
    )
