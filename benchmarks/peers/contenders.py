"""The contenders: how each enqueues, and the ways to start its worker, as its documentation has them.

Nobody is pinned to a core. Since airunner has two processes, a server and a worker, everybody may have two
processes for its workers, beside the Redis of those who have one. Which of its ways a contender has in a
contest is decided by `python -m benchmarks.peers sweep` (see tuning).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from benchmarks.peers.provision import NODE_MODULES, PEERS_BIN, install_bullmq, install_python_peers

_BULLMQ = ("node", str(Path(__file__).parent / "processes/bullmq_peer.cjs"))
PROCESSES = "benchmarks.peers.processes"
_ENQUEUE = ("-m", f"{PROCESSES}.enqueue")
_OURS = f"{PROCESSES}.airunner_peer"
CONCURRENCY_VARIABLE = "BENCH_CONCURRENCY"


class Storage(Enum):
    """Where a contender's jobs are: at our server, in a Redis, or in a SQLite database of its own."""

    SERVER = "its server"
    REDIS = "Redis"
    FILE = "SQLite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to start a worker: `copies` processes by the same command."""

    how: str
    command: tuple[str, ...]
    copies: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A job queue; it gets `load` times as many jobs as the slowest, so that it is busy for as long."""

    name: str
    enqueue: tuple[str, ...]
    ways: tuple[Way, ...]
    storage: Storage = Storage.REDIS
    load: int = 1
    install: Callable[[], None] = install_python_peers


def _nothing_to_install() -> None:
    """What airunner needs is here."""


def _airunner(concurrency: int, copies: int) -> Way:
    command = (sys.executable, "-m", "airunner.cli", "worker", "--log-level", "warning")
    options = ("--handlers", _OURS, "--concurrency", str(concurrency))
    return Way(how=f"{_times(copies)}concurrency {concurrency}", command=(*command, *options), copies=copies)


def _python(name: str) -> tuple[str, ...]:
    return (str(PEERS_BIN / "python"), *_ENQUEUE, f"{PROCESSES}.{name}_peer")


def _celery(how: str, *options: str, copies: int = 1) -> Way:
    start = ("celery", "--app", f"{PROCESSES}.celery_peer", "worker", "--loglevel", "warning")
    quiet = ("--without-gossip", "--without-mingle")
    return Way(how=how, command=(*_program(*start), *quiet, *options), copies=copies)


def _dramatiq(processes: int, threads: int) -> Way:
    options = ("--processes", str(processes), "--threads", str(threads))
    command = _program("dramatiq", *options, f"{PROCESSES}.dramatiq_peer")
    return Way(how=f"{_times(processes)}{threads} threads", command=command)


def _taskiq(processes: int, tasks: int, prefetch: int) -> Way:
    options = ("--workers", str(processes), "--max-async-tasks", str(tasks), "--max-prefetch", str(prefetch))
    quiet = ("--no-parse", "--log-level", "WARNING")
    command = _program("taskiq", "worker", *options, *quiet, f"{PROCESSES}.taskiq_peer:broker")
    return Way(how=f"{_times(processes)}{tasks} tasks, prefetch {prefetch}", command=command)


def _saq(processes: int, tasks: int) -> Way:
    return Way(
        how=f"{_times(processes)}{tasks} tasks",
        command=_program("saq", "--quiet", "--workers", str(processes), f"{PROCESSES}.saq_peer.settings"),
        environment={CONCURRENCY_VARIABLE: str(tasks)},
    )


def _huey(kind: str, workers: int) -> Way:
    options = ("--quiet", "--worker-type", kind, "--workers", str(workers))
    command = _program("huey_consumer", *options, f"{PROCESSES}.huey_peer.huey")
    return Way(how=f"workers: {workers}, each a {kind}", command=command)


def _bullmq(concurrency: int, copies: int) -> Way:
    return Way(
        how=f"{_times(copies)}concurrency {concurrency}",
        command=(*_BULLMQ, "work"),
        copies=copies,
        environment={CONCURRENCY_VARIABLE: str(concurrency)},
    )


def _program(name: str, *options: str) -> tuple[str, ...]:
    return (str(PEERS_BIN / name), *options)


def _times(processes: int) -> str:
    return f"{processes} x " if processes > 1 else ""


AIRUNNER = Contender(
    name="airunner",
    enqueue=(sys.executable, *_ENQUEUE, _OURS),
    ways=(
        _airunner(400, 1),
        _airunner(100, 1),
        _airunner(1000, 1),
        _airunner(100, 2),
        _airunner(400, 2),
    ),
    storage=Storage.SERVER,
    load=10,
    install=_nothing_to_install,
)
PEERS = (
    Contender(
        name="Celery",
        enqueue=_python("celery"),
        ways=(
            _celery("2 x solo", "--pool", "solo", copies=2),
            _celery("solo", "--pool", "solo"),
            _celery("2 prefork children", "--pool", "prefork", "--concurrency", "2"),
            _celery(
                *("2 prefork children, prefetch 64", "--pool", "prefork", "--concurrency", "2"),
                *("--prefetch-multiplier", "64"),
            ),
            _celery("2 x 8 threads", "--pool", "threads", "--concurrency", "8", copies=2),
        ),
    ),
    Contender(
        name="Dramatiq",
        enqueue=_python("dramatiq"),
        ways=(_dramatiq(2, 8), _dramatiq(1, 8), _dramatiq(2, 1), _dramatiq(2, 4), _dramatiq(2, 32)),
        load=3,
    ),
    Contender(
        name="Taskiq",
        enqueue=_python("taskiq"),
        ways=(
            _taskiq(2, 100, 200),
            _taskiq(1, 100, 200),
            _taskiq(1, 400, 800),
            _taskiq(2, 400, 800),
            _taskiq(2, 100, 0),
        ),
        load=4,
    ),
    Contender(
        name="SAQ",
        enqueue=_python("saq"),
        ways=(_saq(2, 100), _saq(1, 100), _saq(1, 10), _saq(2, 10), _saq(2, 30)),
        load=2,
    ),
    Contender(
        name="Huey",
        enqueue=_python("huey"),
        ways=(
            _huey("thread", 4),
            _huey("thread", 1),
            _huey("process", 1),
            _huey("process", 2),
            _huey("process", 4),
        ),
        storage=Storage.FILE,
        load=3,
    ),
    Contender(
        name="BullMQ",
        enqueue=(*_BULLMQ, "enqueue"),
        ways=(_bullmq(100, 1), _bullmq(30, 1), _bullmq(400, 1), _bullmq(50, 2), _bullmq(200, 2)),
        load=10,
        install=install_bullmq,
    ),
)
# What all processes of contenders find in their environment beside what a round tells them.
ENVIRONMENT = {"NODE_PATH": str(NODE_MODULES)}
