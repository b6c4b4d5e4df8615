"""The peers: how each enqueues, and how its worker is started, as its documentation says and in one process.

`how` names the kind of concurrency. Where several were tried, a peer has the one whose best round of 2,000
jobs was highest: Celery of prefork with 1 child, solo and 8 threads; Dramatiq of 1, 8 and 32 threads;
Taskiq of its defaults and the options below; Huey of 1 and 4 threads. The trials were few and on a busy
machine, so close ones are ties. SAQ and BullMQ were tried with 100 only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.provision import NODE_MODULES, PEERS_BIN, install_bullmq, install_python_peers

_BULLMQ = ("node", str(Path(__file__).with_name("bullmq_peer.cjs")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another job queue; `goal` is how many times as fast as it we mean to be."""

    name: str
    how: str
    enqueue: tuple[str, ...]
    work: tuple[str, ...]
    install: Callable[[], None] = install_python_peers
    on_redis: bool = True
    goal: float = 4


def _python_peer(name: str, how: str, *work: str, on_redis: bool = True) -> Peer:
    module = f"benchmarks.peers.{name.lower()}_peer"
    program, *options = work
    return Peer(
        name=name,
        how=how,
        enqueue=(str(PEERS_BIN / "python"), "-m", "benchmarks.peers.enqueue", module),
        work=(str(PEERS_BIN / program), *(option.format(module=module) for option in options)),
        on_redis=on_redis,
    )


PEERS = (
    _python_peer(
        *("Celery", "solo"),
        *("celery", "--app", "{module}", "worker", "--pool", "solo", "--loglevel", "warning"),
    ),
    _python_peer("Dramatiq", "8 threads", "dramatiq", "--processes", "1", "--threads", "8", "{module}"),
    _python_peer(
        *("Taskiq", "streams, 100 tasks, prefetch 200"),
        *("taskiq", "worker", "--workers", "1", "--max-prefetch", "200", "--no-parse"),
        *("--log-level", "WARNING", "{module}:broker"),
    ),
    _python_peer("SAQ", "100 tasks", "saq", "--quiet", "{module}.settings"),
    _python_peer(
        "Huey", "4 threads", "huey_consumer", "--quiet", "--workers", "4", "{module}.huey", on_redis=False
    ),
    Peer(
        name="BullMQ",
        how="node, concurrency 100",
        enqueue=(*_BULLMQ, "enqueue"),
        work=(*_BULLMQ, "work"),
        install=install_bullmq,
        goal=1,
    ),
)
# What the peers' processes find in their environment beside what a round tells them.
ENVIRONMENT = {"NODE_PATH": str(NODE_MODULES)}
AIRUNNER_HANDLERS = ("--handlers", "benchmarks.peers.airunner_peer", "--concurrency", "400")
