"""Since when a table has answered without a pause.

Who holds a job says so by a write to that table. While it does not answer nobody can, so nothing follows from
their silence until it has answered again for as long as they have time to speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

_log = get_logger("airunner.aws")

SILENCE_MS: Final = 5_000
"""How long a table may be silent before it counts as having been away since its last answer."""


class Wellness:
    """Keeps the begin of the present run of answers: one that comes more than 5 s after the last begins anew.

    Ages are those of the monotonic clock: setting the clock makes no pause and hides none.
    """

    def __init__(self, clock: Clock, *, silence_ms: float = SILENCE_MS, well_ms: int | None = None) -> None:
        """Begin without an answer so far; `well_ms` says for how long there were answers before."""
        self._clock = clock
        self._silence_ms = silence_ms
        began = clock.monotonic()
        self._answered_at = began
        self._well_since = None if well_ms is None else began - well_ms
        self._is_told = False

    @property
    def silent_ms(self) -> int:
        """How long ago the last answer was; before the first, how long we have waited for it."""
        return self._clock.monotonic() - self._answered_at

    @property
    def well_ms(self) -> int:
        """For how long the table has answered without a pause; 0 while it does not."""
        if self._well_since is None or self.silent_ms > self._silence_ms:
            return 0
        return self._clock.monotonic() - self._well_since

    def well_since(self, now: int) -> int:
        """Return the begin of the run of answers, in the time of a wall clock that shows `now`."""
        return now - self.well_ms

    def answered(self) -> None:
        """Take note of an answer, of whatever kind: the table is there."""
        silent_ms = self.silent_ms
        self._answered_at = self._clock.monotonic()
        if self._well_since is None or silent_ms > self._silence_ms:
            if self._well_since is not None:
                _log.warning("store.answers_again", silent_seconds=silent_ms / 1000)
            self._well_since = self._answered_at
            self._is_told = False

    def missed(self, reason: str) -> None:
        """Take note of a question that was not answered; say so once when the silence has become too long."""
        if self.silent_ms > self._silence_ms and not self._is_told:
            self._is_told = True
            _log.warning("store.does_not_answer", reason=reason, silent_seconds=self.silent_ms / 1000)
