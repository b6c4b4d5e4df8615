"""The emulator of `airunner dev --aws`, under the name that tests know it by."""

from __future__ import annotations

from airunner.local.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorFailed, EmulatorProcess

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "EmulatorFailed", "EmulatorProcess"]
