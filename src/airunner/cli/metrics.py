"""The metrics of a command that lives long."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.telemetry.instruments import Instrument


@contextmanager
def collected_metrics(service: str, instruments: Sequence[Instrument], instance: str = "") -> Iterator[None]:
    """Have metrics collected while the context lasts; at its end what is left is sent, in 5 s at most."""
    from airunner import telemetry
    from airunner.config import process_environment

    name = instance or f"{socket.gethostname()}-{os.getpid()}"
    metrics = telemetry.set_up_metrics(service, name, instruments, process_environment())
    try:
        yield
    finally:
        metrics.close()
