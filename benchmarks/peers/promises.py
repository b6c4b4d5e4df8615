"""What is promised of airunner beside its peers; what has no promise is measured and told all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Promise:
    """The bound of a ratio, the least of rates or the highest of times; and one that does not bind."""

    bound: float
    wished: float | None = None

    def __str__(self) -> str:
        """Both of them."""
        return f"{self.bound:g}" + (f" ({self.wished:g} wished)" if self.wished else "")


# Of our jobs per second to a peer's, by kind of job and peer.
DRAINS: Final[Mapping[tuple[str, str], Promise]] = {}
# Of our calls per second to those of the best peer, by callers.
ENQUEUES: Final[Mapping[int, Promise]] = {16: Promise(0.65, 1.2), 1: Promise(0.6, 0.75)}
# Of our time from a call to its handler to a peer's.
DISPATCH: Final[Mapping[str, Promise | None]] = {"Taskiq": Promise(2, 1.2), "SAQ": None}
# Of our times to those of a Redis Stream that syncs.
FAN_OUT: Final = Promise(2, 1.2)
REPLAY: Final[Promise | None] = None
