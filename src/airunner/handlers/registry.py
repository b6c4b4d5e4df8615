"""Which function handles which jobs and messages, by name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from airunner.domain.limits import check_handler_name, handler_key
from airunner.handlers.arguments import Arguments, HandlerError

F = TypeVar("F", bound=Callable[..., Any])

Hook: TypeAlias = Callable[..., Awaitable[object]]
"""An async function that is part of a verdict: called with a connection, the session, and its end."""

_MARK: Final = "__airunner_handles__"
_HOOKS: Final = "__airunner_hooks__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is done in the transaction of a verdict, for handlers of the generation queue."""

    on_success: Hook | None = None
    compensate: Hook | None = None

    def check(self, source: str) -> None:
        """Raise HandlerError for what is no async function."""
        for name, hook in (("on_success", self.on_success), ("compensate", self.compensate)):
            if hook is not None and not _is_async(hook):
                raise HandlerError(f"{source}: {name} must be an async function")

    def over(self, others: Hooks) -> Hooks:
        """Return these, and the others where there are none."""
        return Hooks(
            on_success=self.on_success or others.on_success, compensate=self.compensate or others.compensate
        )


NO_HOOKS: Final = Hooks()


def handler(*names: str, on_success: Hook | None = None, compensate: Hook | None = None) -> Callable[[F], F]:
    """Mark a function, sync or async, as the handler of jobs with one of these names.

    It is called with the payload and the context, in the order of its signature: the parameter that
    is annotated with Context or called `ctx` gets the context, the other one the payload. Names compare
    case-insensitively.

    For work of the generation queue, `on_success` and `compensate` are async functions that are called within
    the transaction that says how the work ended: with its connection, the session, and the result or the
    failure. Other jobs have no use for them.
    """
    for name in names:
        check_handler_name(name)
    if not names:
        raise HandlerError("@handler needs at least one name")
    hooks = Hooks(on_success=on_success, compensate=compensate)
    hooks.check(f"@handler({names[0]!r})")

    def mark(function: F) -> F:
        setattr(function, _MARK, (*names_of(function), *names))
        setattr(function, _HOOKS, hooks.over(hooks_of(function)))
        return function

    return mark


def names_of(function: object) -> tuple[str, ...]:
    """Return the names that a function was marked with."""
    # A mock has every attribute, but it was not marked.
    marked = getattr(function, _MARK, ()) if callable(function) else ()
    return marked if isinstance(marked, tuple) else ()


def hooks_of(function: object) -> Hooks:
    """Return the hooks that a function was marked with."""
    marked = getattr(function, _HOOKS, NO_HOOKS)
    return marked if isinstance(marked, Hooks) else NO_HOOKS


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered function."""

    name: str
    function: Callable[..., Any]
    arguments: Arguments
    is_async: bool
    source: str
    hooks: Hooks = NO_HOOKS


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

    def mapped(self, change: Callable[[Handler], Handler]) -> Registry:
        """Return a registry with each handler changed, under the same names."""
        changed = Registry()
        changed._handlers = {key: change(handler) for key, handler in self._handlers.items()}
        return changed

    def add(self, name: str, function: Callable[..., Any], source: str, hooks: Hooks = NO_HOOKS) -> None:
        """Register a function; adding it again does nothing, another one of that name is a HandlerError."""
        key = handler_key(check_handler_name(name))
        known = self._handlers.get(key)
        if known is None:
            arguments = Arguments.of(function, source)
            self._handlers[key] = Handler(name, function, arguments, _is_async(function), source, hooks)
        elif known.function is not function:
            raise HandlerError(f"handler {name!r} is defined twice: in {known.source} and in {source}")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  its kind is needed, not whether it is there
    )
