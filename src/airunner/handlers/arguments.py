"""From a job's JSON to what a function wants, and from what it returns to JSON."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pydantic_core
from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from airunner.domain.errors import PermanentFailure
from airunner.domain.limits import MAX_RESULT_OUTPUT_BYTES
from airunner.handlers.context import Context

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN: Final = (inspect.Parameter.empty, Any, dict, object)
_EMPTY_PAYLOAD: Final = "{}"
_SHOWN_PROBLEMS: Final = 5


class HandlerError(Exception):
    """Handlers that cannot be used: a module that fails, a name twice, a function that we cannot call."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a function is called: which of its parameters is the context, and what the payload becomes."""

    order: tuple[str, ...]
    adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, function: Callable[..., Any], source: str) -> Arguments:
        """Read the signature of a function; one that we cannot call is refused."""
        try:
            return _read(function)
        except (TypeError, NameError, HandlerError, PydanticSchemaGenerationError) as error:
            name = getattr(function, "__qualname__", repr(function))
            raise HandlerError(f"{source}: {name} cannot be a handler: {error}") from None

    @property
    def wants_context(self) -> bool:
        """Whether the function takes the context."""
        return "context" in self.order

    def bind(self, payload_json: str, context: Context | None) -> list[Any]:
        """Return the values to call with; a payload that does not fit fails for good."""
        if not self.order:
            return []
        payload = self._payload(payload_json or _EMPTY_PAYLOAD) if "payload" in self.order else None
        return [context if role == "context" else payload for role in self.order]

    def _payload(self, payload_json: str) -> Any:
        if self.adapter is None:
            return json.loads(payload_json)
        try:
            return self.adapter.validate_json(payload_json)
        except ValidationError as error:
            raise PermanentFailure("invalid_payload", _explain(error)) from None


def result_json(value: object) -> str:
    """Return what a handler returned as JSON, nothing for None; what has no JSON form fails for good."""
    if value is None:
        return ""
    try:
        text = pydantic_core.to_json(value).decode()
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise PermanentFailure("invalid_result", f"the result has no JSON form: {error}") from None
    if len(text.encode()) > MAX_RESULT_OUTPUT_BYTES:
        reason = f"the result has more than {MAX_RESULT_OUTPUT_BYTES} bytes as JSON"
        raise PermanentFailure("invalid_result", reason)
    return text


def _read(function: Callable[..., Any]) -> Arguments:
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function) if inspect.isroutine(function) else {}
    order: list[str] = []
    adapter: TypeAdapter[Any] | None = None
    for parameter in parameters:
        kind = hints.get(parameter.name, parameter.annotation)
        if parameter.kind not in _POSITIONAL:
            if parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY:
                raise HandlerError(f"parameter {parameter.name} cannot be given")
            continue
        role = "context" if kind is Context or parameter.name == "ctx" else "payload"
        if role in order:
            if parameter.default is not parameter.empty:
                break
            raise HandlerError("it must take the payload, the context, or both")
        order.append(role)
        if role == "payload" and kind not in _PLAIN:
            adapter = TypeAdapter(kind)
    return Arguments(tuple(order), adapter)


def _explain(error: ValidationError) -> str:
    """Say what is wrong with a payload, but not what was in it."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [f"{_path_of(problem['loc'])}{problem['msg']}" for problem in problems[:_SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return "payload: " + "; ".join(shown) + (f"; and {more} more" if more else "")


def _path_of(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""
