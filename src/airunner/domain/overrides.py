"""How a worker shall run a job instead: what a job may ask for where the server has settings of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingOverride:
    """Other batching than the server's; 0 and None leave a value to it. The contract sets the limits."""

    flush_interval_seconds: int = 0
    max_batch_size: int = 0
    """1 turns batching off: every line is stored as an event of its own."""
    max_batch_bytes: int = 0
    playback_interval_millis: int = 0
    adaptive: bool | None = None
    """False keeps to the interval, whoever watches and however much is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOverride:
    """Parts of an ExecutionConfig, merged at enqueue into that of the server and stamped on the job."""

    batching: BatchingOverride = BatchingOverride()
    heartbeat_interval_seconds: int = 0
