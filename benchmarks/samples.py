"""What is enqueued and published. Imports only what earlier versions have too."""

from __future__ import annotations

from airunner import Batcher, Event, JobParams, StreamType
from airunner.domain.execution import BatchingConfig

PARAMS = JobParams(command="make", args=("test",), environment={"CI": "true"}, owner="bench")
LINE = b"2026-01-01T00:00:00Z build: compiling module number 12345 of the example project ok\n"
_INSTANT = 1_700_000_000_000


def output_of(batches: int, size: int = 50) -> list[list[Event]]:
    """Return what is published of so many batches of lines, call by call."""
    batcher = Batcher(BatchingConfig(max_batch_size=size))
    flushes = batcher.add_output([LINE] * (batches * size), StreamType.STDOUT, _INSTANT)
    return [list(flush.events) for flush in flushes]
