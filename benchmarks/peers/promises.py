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


_SYNCED: Final = "on Redis, appendfsync always"
# Of our jobs per second to a peer's, by kind of job and peer: half of what seven rounds gave, where that is
# more than 1. Of the others nothing is promised.
DRAINS: Final[Mapping[tuple[str, str], Promise]] = {
    ("noop", f"Celery {_SYNCED}"): Promise(7),
    ("noop", f"Dramatiq {_SYNCED}"): Promise(1.4),
    ("noop", f"Taskiq {_SYNCED}"): Promise(1.9),
    ("noop", f"SAQ {_SYNCED}"): Promise(2.7),
    ("noop", "Huey on SQLite"): Promise(2.1),
    ("result", f"Celery {_SYNCED}"): Promise(7),
    ("result", f"Dramatiq {_SYNCED}"): Promise(2.5),
    ("result", f"Taskiq {_SYNCED}"): Promise(1.8),
    ("result", f"SAQ {_SYNCED}"): Promise(2.1),
    ("result", "Huey on SQLite"): Promise(2.6),
    ("line", f"Celery {_SYNCED}"): Promise(3.8),
    ("line", f"SAQ {_SYNCED}"): Promise(1.2),
    ("line", "Huey on SQLite"): Promise(1.1),
}
# Of our calls per second to those of the best peer, by callers.
ENQUEUES: Final[Mapping[int, Promise]] = {16: Promise(0.65, 1.2), 1: Promise(0.6, 0.75)}
# Of our time from a call to its handler to a peer's.
DISPATCH: Final[Mapping[str, Promise | None]] = {"Taskiq": Promise(2, 1.2), "SAQ": None}
# Of our times to those of a Redis Stream that syncs.
FAN_OUT: Final = Promise(2, 1.2)
REPLAY: Final[Promise | None] = None
