"""Events for spools, and faults of the disk that is below them."""

from __future__ import annotations

import resource
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from airunner.domain.event import Event, Output, OutputBatch
from airunner.worker.disk_thread import DiskThread
from airunner.worker.publishing.background_spool import BackgroundSpool
from airunner.worker.publishing.spool import Spool

JOB_ID = "01890000-0000-7000-8000-000000000001"
NOW = 1_700_000_000_500


def batch(first: int, count: int = 5, text: bytes = b"line") -> Event:
    """A batch of outputs with sequences from `first` on, each at its own time."""
    sequences = range(first, first + count)
    data = OutputBatch(
        outputs=tuple(Output(b"%s %06d\n" % (text, sequence)) for sequence in sequences),
        start_sequence=first,
        end_sequence=sequences[-1],
        timestamps=tuple(NOW + sequence for sequence in sequences),
    )
    return Event(sequence=first, timestamp=NOW + first, data=data)


def batches(count: int, *, of: int = 5) -> list[Event]:
    """Batches that follow each other, from sequence 1 on."""
    return [batch(1 + number * of, of) for number in range(count)]


def single_file(folder: Path) -> Path:
    """The one file of a folder."""
    (file,) = folder.iterdir()
    return file


def in_background(spool: Spool, **options: Any) -> BackgroundSpool:
    """The spool on a thread of its own, which ends with the test's process."""
    return BackgroundSpool(spool, DiskThread("spool"), **options)


@contextmanager
def files_limited_to(size: int) -> Iterator[list[MutableMapping[str, Any]]]:
    """Let no file of this process grow beyond a size: the disk is full. Give what is logged meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The log goes to memory: pytest has a file for it, which may not grow either.
    with capture_logs() as logged:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield logged
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
