"""The execution settings that jobs are stamped with, as they are now."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airunner.services.settings.registry import BATCHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.domain.execution import ExecutionConfig
    from airunner.services.settings.registry import SettingValue


class LiveExecution:
    """What is configured, and over it what is set at run time."""

    def __init__(self, configured: ExecutionConfig) -> None:
        self._configured = configured
        self.current = configured
        """For the next job that is enqueued."""

    @property
    def configured(self) -> dict[str, SettingValue]:
        """The configured values, by the names of their settings."""
        return {f"{BATCHING}{field}": value for field, value in asdict(self._configured.batching).items()}

    def apply(self, values: Mapping[str, SettingValue]) -> None:
        """Take the values that are set; what is not among them is as configured."""
        changed: dict[str, Any] = {
            name.removeprefix(BATCHING): value for name, value in values.items() if name.startswith(BATCHING)
        }
        execution = replace(self._configured, batching=replace(self._configured.batching, **changed))
        # The same object while nothing changes: jobs that have it in common cost less.
        if execution != self.current:
            self.current = execution
