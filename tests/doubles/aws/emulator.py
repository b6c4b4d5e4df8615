"""The emulator of `airunner dev --aws` as tests have it: it can also be emptied, and filled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.local.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorFailed
from airunner.local.emulator import EmulatorProcess as PlainEmulator

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "EmulatorFailed", "EmulatorProcess"]

_PROGRAM: Final = Path(__file__).with_name("emulator_program.py")
_EMPTY_PATH: Final = "/airunner/empty"
_CROWD_PATH: Final = "/airunner/crowd"


class EmulatorProcess(PlainEmulator):
    """moto in a process that ends with this one."""

    def command(self) -> tuple[str, ...]:
        """Return what starts moto; raises EmulatorFailed where it is not installed."""
        super().command()
        return sys.executable, "-P", str(_PROGRAM)

    def empty(self, env: str, *, tables: Sequence[str], queues: Sequence[str], bucket: str) -> bool:
        """Remove all items, messages and objects of an environment; return whether that was done.

        It is not done where anything was added, deleted or given other attributes since the first call for
        the environment, or where a connection is open whose calls may still come.
        """
        named = {"env": env, "tables": list(tables), "queues": list(queues), "bucket": bucket}
        return bool(self._post(_EMPTY_PATH, named)["emptied"])

    def make_crowd(self, count: int, instance: str, parameter: str = "") -> list[str]:
        """Make so many like an instance, each with its parameter like the one given; return their ids."""
        answer = self._post(_CROWD_PATH, {"count": count, "instance": instance, "parameter": parameter})
        return [str(instance_id) for instance_id in answer["instances"]]
