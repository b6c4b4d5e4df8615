"""The options that play a job back: how fast, and from where."""

from __future__ import annotations

import re
from typing import Final

from airunner.domain.errors import InvalidArgument
from airunner.reading.playback import Seek

_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)x?", re.ASCII)
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)


def choose_factor(*, playback: bool, slow: bool, speed: str, fast: bool, seek: str = "") -> float:
    """Return what recorded delays are multiplied with; 0 shows everything at once.

    `slow`, `speed` and `seek` ask for playback by themselves.
    """
    if fast and (playback or slow or speed or seek):
        raise InvalidArgument(
            "--fast means no delays; do not combine it with --playback, --slow, --speed or --seek"
        )
    if slow and speed:
        raise InvalidArgument("give either --slow or --speed")
    if slow:
        return 2.0
    if speed:
        found = _SPEED.fullmatch(speed)
        if not found or not float(found[1]):
            raise InvalidArgument(f"--speed must be a number above 0 such as 2x, not {speed!r}")
        return 1 / float(found[1])
    return 1.0 if playback or seek else 0.0


def parse_seek(text: str) -> Seek:
    """Return where a text such as 1m30s, 90 or 50% says to begin; an empty one says at the beginning."""
    if found := _PERCENT.fullmatch(text):
        if float(found[1]) <= 100:
            return Seek(share=float(found[1]) / 100)
    elif found := _DURATION.fullmatch(text):
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return Seek(round((hours * 3600 + minutes * 60 + seconds) * 1000))
    raise InvalidArgument(f"--seek must be a time such as 1m30s or 90, or a share such as 50%, not {text!r}")
