"""An AWS of one's own on this machine, for tests and for `airunner dev --aws`."""

from __future__ import annotations

from airunner.local.emulator.loopback import EmulatorFailed
from airunner.local.emulator.moto_process import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "EmulatorFailed", "EmulatorProcess"]
