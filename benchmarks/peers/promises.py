"""What is promised of airunner beside its peers; what has no promise is measured and told all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The least ratio of our jobs per second to a peer's, by kind of job and peer.
DRAINS: Final[Mapping[tuple[str, str], float]] = {}
# The least ratio of our calls per second to those of the best peer, by callers.
ENQUEUES: Final[Mapping[int, float]] = {16: 0.65, 1: 0.6}
# The highest ratio of our time from a call to its handler to a peer's.
DISPATCH: Final[Mapping[str, float | None]] = {"Taskiq": 2.0, "SAQ": None}
# The highest ratio of our times to those of a Redis Stream that syncs.
FAN_OUT: Final = 2.0
REPLAY: Final[float | None] = None
