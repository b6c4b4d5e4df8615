"""The options that give a job other batching and heartbeats than the server's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from airunner.domain.requests import ExecutionOverride

EXECUTION_GROUP = Group("Execution", sort_key=20)


@Parameter(name="*", group=EXECUTION_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How the worker batches the job's output and sends heartbeats; the server sets what is not given."""

    flush_interval: int | None = None
    """Seconds that output may wait in a batch, 1 to 3600. Default: the server's"""
    max_batch_size: int | None = None
    """Maximum number of lines in a batch, 1 to 50; 1 turns batching off. Default: the server's"""
    max_batch_bytes: int | None = None
    """Maximum bytes of output in a batch, 1024 to 358400. Default: the server's"""
    playback_interval: int | None = None
    """Milliseconds between lines of a replay without stored times, 1 to 60000. Default: the server's"""
    adaptive: Annotated[bool | None, Parameter(negative="--no-adaptive")] = None
    """Flush more often while somebody watches, and less when output is slow. Default: the server's"""

    heartbeat_interval: int | None = None
    """Maximum seconds between heartbeats of its worker, 1 to 43200. Default: the server's"""

    def override(self) -> ExecutionOverride | None:
        """Return what is asked for; None if that is nothing."""
        from airunner.domain.requests import BatchingOverride, ExecutionOverride

        batching = BatchingOverride(
            flush_interval_seconds=_number(self.flush_interval, "--flush-interval"),
            max_batch_size=_number(self.max_batch_size, "--max-batch-size"),
            max_batch_bytes=_number(self.max_batch_bytes, "--max-batch-bytes"),
            playback_interval_millis=_number(self.playback_interval, "--playback-interval"),
            adaptive=self.adaptive,
        )
        heartbeat = _number(self.heartbeat_interval, "--heartbeat-interval")
        override = ExecutionOverride(batching=batching, heartbeat_interval_seconds=heartbeat)
        return None if override == ExecutionOverride() else override


SERVERS_EXECUTION = ExecutionOptions()


def _number(given: int | None, option: str) -> int:
    """Return the number for the wire, where 0 would mean that nothing was asked for."""
    from airunner.domain.errors import InvalidArgument

    if given is not None and given < 1:
        raise InvalidArgument(f"{option} must be at least 1, not {given}")
    return given or 0
