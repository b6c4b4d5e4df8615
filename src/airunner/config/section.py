"""Sections of settings: plain classes, so that who only calls a server loads no library to check values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, dataclass_transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a value must keep within; the names are those of pydantic."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    allow_inf_nan: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return those that are set."""
        limits = {name: getattr(self, name) for name in self.__slots__}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def allow(self, value: Any) -> bool:
        """Return whether a finite value keeps within them; None, which is no value, does."""
        if value is None:
            return True
        return not any(_BEYOND[name](value, limit) for name, limit in self.given().items())


_BEYOND: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda value, limit: value < limit,
    "gt": lambda value, limit: value <= limit,
    "le": lambda value, limit: value > limit,
    "min_length": lambda value, limit: len(value) < limit,
    "max_length": lambda value, limit: len(value) > limit,
    "allow_inf_nan": lambda _value, _limit: False,
}
NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class SettingField:
    """One key of a section: its default, and the limits of its value."""

    default: Any
    limits: Limits = NO_LIMITS


def setting(*, default: Any, **limits: Any) -> Any:
    """Return the default of a key whose value has limits, by the names of `Limits`."""
    return SettingField(default, Limits(**limits))


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True, field_specifiers=(setting,))
class Section:  # noqa: PLW1641  some values are mappings, which have no hash
    """A part of the tree: immutable, and closed to keys it does not know.

    A key is an annotated name with a default. Whoever makes one vouches for its values: they are checked
    where settings are read.
    """

    _settings: ClassVar[Mapping[str, SettingField]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        """Gather the keys, in their order."""
        own = vars(cls)
        defaults = {name: own[name] for name in own.get("__annotations__", ())}
        fields = {name: _as_field(value) for name, value in defaults.items()}
        cls._settings = MappingProxyType(fields)

    def __init__(self, **values: Any) -> None:
        """Raise ValueError for values that do not go together, TypeError for a key that is not ours."""
        if unknown := values.keys() - self._settings.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        vars(self).update({name: known.default for name, known in self._settings.items()}, **values)
        self.check()

    @classmethod
    def settings(cls) -> Mapping[str, SettingField]:
        """Return the keys of this section; the default of a section below it is a section."""
        return cls._settings

    def check(self) -> None:
        """Raise ValueError for values that do not go together."""

    def but(self, **changes: Any) -> Self:
        """Return the same section with other values of these keys."""
        return type(self)(**{**vars(self), **changes})

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}: settings are frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


def _as_field(value: Any) -> SettingField:
    return value if isinstance(value, SettingField) else SettingField(value)
