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
_COPY_PATH: Final = "/airunner/copy"


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

    def copy_parameter(self, name: str, names: Sequence[str]) -> None:
        """Write a parameter of SSM under other names too, in far less time than by calls of AWS."""
        self._post(_COPY_PATH, {"name": name, "names": list(names)})
