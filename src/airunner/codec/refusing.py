"""What cannot be put into a message, and how that is refused."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
M = TypeVar("M")


def refusing(build: Callable[P, M]) -> Callable[P, M]:
    """Let what does not fit into a message be refused as the server would refuse it."""

    @functools.wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> M:
        try:
            return build(*args, **kwargs)
        except (ValueError, OverflowError) as error:
            raise InvalidArgument(str(error)) from None

    return built
