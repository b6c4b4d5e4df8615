"""The reader of settings that knows every spelling and tells what is wrong: pydantic, over the same table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from airunner.config.errors import ConfigError, problem_of
from airunner.config.section import Limits, Section
from airunner.config.values import After, Before, ListenAddress, Secret

S = TypeVar("S", bound=Section)
# Inputs are hidden because pydantic's own error text would repeat secrets.
_CLOSED = ConfigDict(extra="forbid", hide_input_in_errors=True)


def judge(kind: type[S], given: Mapping[str, Any], origins: Mapping[str, str], hidden: frozenset[str]) -> S:
    """Return the section with the values given; ConfigError tells each broken rule, and by which place.

    `origins` has where each setting comes from; values of those in `hidden` are not repeated.
    """
    try:
        return _made(kind, _model(kind).model_validate(given))  # type: ignore[arg-type]  # classes have a hash
    except ValidationError as error:
        problems = [problem_of(detail, origins, hidden) for detail in error.errors(include_url=False)]
    # Raised out here so that it has no context: pydantic's error holds the values, secrets included.
    raise ConfigError(problems)


@cache
def _model(kind: type[Section]) -> type[BaseModel]:
    hints = get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {}
    for name, known in kind.settings().items():
        if isinstance(known.default, Section):
            below = type(known.default)
            model: Any = _model(below)  # type: ignore[arg-type]  # the same
            fields[name] = (Annotated[model, AfterValidator(partial(_made, below))], known.default)
        else:
            fields[name] = (_type(hints[name]), Field(default=known.default, **known.limits.given()))
    with warnings.catch_warnings():
        # The setting `schema` hides an old method of pydantic, which nobody calls.
        warnings.simplefilter("ignore", UserWarning)
        return create_model(kind.__name__, __config__=_CLOSED, **fields)


def _made(kind: type[S], model: BaseModel) -> S:
    return kind(**vars(model))


def _type(kind: Any) -> Any:
    """Return a type with pydantic's rules in the place of ours."""
    if kind is Secret or kind is ListenAddress:
        return Annotated[str, AfterValidator(kind)]
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        return Annotated[(_type(parts[0]), *map(_rule, parts[1:]))]
    if not parts or all(isinstance(part, str) for part in parts):
        return kind
    return _rebuilt(kind, tuple(map(_type, parts)))


def _rebuilt(kind: Any, parts: tuple[Any, ...]) -> Any:
    if type(None) in parts:
        return parts[0] | None
    return kind.copy_with(parts) if hasattr(kind, "copy_with") else get_origin(kind)[parts]


def _rule(rule: Before | After | Limits) -> Any:
    if isinstance(rule, Before):
        return BeforeValidator(rule.function)
    return AfterValidator(rule.function) if isinstance(rule, After) else Field(**rule.given())
