"""The metrics of a command that lives long."""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from airunner.cli.printing import announce

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from airunner.config import ListenAddress, Settings
    from airunner.telemetry.instruments import Instrument


@contextmanager
def collected_metrics(service: str, instruments: Sequence[Instrument], instance: str = "") -> Iterator[None]:
    """Have metrics collected while the context lasts; at its end what is left is sent, in 5 s at most.

    One that is named twice, as a part of two lists, is collected once.
    """
    from airunner import telemetry
    from airunner.config import process_environment

    name = instance or f"{socket.gethostname()}-{os.getpid()}"
    metrics = telemetry.set_up_metrics(
        service, name, tuple(dict.fromkeys(instruments)), process_environment()
    )
    try:
        yield
    finally:
        metrics.close()


def server_instruments(settings: Settings) -> Sequence[Instrument]:
    """Return what a server measures, with what works beside it in its process."""
    from airunner import telemetry
    from airunner.telemetry.fleet_metrics import FLEET_METRICS

    generation = telemetry.GENERATION_METRICS if settings.generation.start_worker else ()
    outbox = relay_instruments(settings) if settings.outbox.start_relay else ()
    fleet = FLEET_METRICS if settings.fleet.run else ()
    return (*telemetry.SERVER_METRICS, *generation, *outbox, *fleet)


def worker_instruments(settings: Settings) -> Sequence[Instrument]:
    """Return what a worker of jobs measures; with sink `jobs` it gives verdicts."""
    from airunner import telemetry

    return (*telemetry.WORKER_METRICS, *(telemetry.VERDICT_METRICS if settings.outbox.sink == "jobs" else ()))


def relay_instruments(settings: Settings) -> Sequence[Instrument]:
    """Return what a relay measures; with handlers it gives the verdicts of lost work."""
    from airunner import telemetry

    return (*telemetry.OUTBOX_METRICS, *(telemetry.VERDICT_METRICS if settings.generation.handlers else ()))


@asynccontextmanager
async def served_probes(
    name: str, listen: ListenAddress | None, status: Callable[[], str]
) -> AsyncIterator[None]:
    """Serve /metrics and /healthz of a command while the context lasts, if an address for them is given."""
    if listen is None:
        yield
        return
    from airunner.server.probes import serve_probes

    async with serve_probes(listen.host, listen.port, status) as url:
        announce(f"airunner {name} metrics on {url}/metrics")
        yield
