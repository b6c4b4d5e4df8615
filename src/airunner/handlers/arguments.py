"""Converting a JSON payload to the arguments of a function, and its return value to JSON."""

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
from airunner.handlers.images import Images

INVALID_PAYLOAD: Final = "invalid_payload"
"""The code of a payload that the annotations of a handler refuse."""
INVALID_RESULT: Final = "invalid_result"
"""The code of a result that cannot be kept."""
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN: Final = (inspect.Parameter.empty, Any, dict, object)
_EMPTY_PAYLOAD: Final = "{}"
_SHOWN_PROBLEMS: Final = 5


class HandlerError(Exception):
    """Handlers that cannot be used: a module does not load, a name is there twice, a function is unfit."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a function is called: the order of payload and context, and the type of the payload."""

    order: tuple[str, ...]
    adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, function: Callable[..., Any], source: str) -> Arguments:
        """Read the signature of a function; raise HandlerError if it cannot be called as a handler."""
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
        """Return the values to call with; a payload of another type raises PermanentFailure."""
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
            raise PermanentFailure(INVALID_PAYLOAD, _explain(error)) from None


class PlainArguments(Arguments):
    """Those of a function that takes the payload as JSON, and the context, and reads them itself."""

    __slots__ = ()

    def bind(self, payload_json: str, context: Context | None) -> list[Any]:
        """Return both as they are."""
        return [payload_json, context]


PLAIN_ARGUMENTS: Final = PlainArguments(("payload", "context"), None)


def result_json(value: object) -> str:
    """Return a result as JSON, empty for None; PermanentFailure if it has no JSON form or is too large."""
    if value is None:
        return ""
    try:
        text = pydantic_core.to_json(value.to_json() if isinstance(value, Images) else value).decode()
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise PermanentFailure(INVALID_RESULT, f"the result has no JSON form: {error}") from None
    if len(text.encode()) > MAX_RESULT_OUTPUT_BYTES:
        reason = f"the result has more than {MAX_RESULT_OUTPUT_BYTES} bytes as JSON"
        raise PermanentFailure(INVALID_RESULT, reason)
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
    """Describe what is wrong with a payload without repeating its values, which may be secret."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [f"{_path_of(problem['loc'])}{problem['msg']}" for problem in problems[:_SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return "payload: " + "; ".join(shown) + (f"; and {more} more" if more else "")


def _path_of(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""
