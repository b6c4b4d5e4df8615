"""What was seen of an item on its way, and what follows from it: which hops it passed, and which is broken.

Nothing here asks anybody anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LATE_SECONDS: Final = 3.0
"""After how long the end of a session was not told by its notification, but found by a look."""


class HopName(StrEnum):
    """The hops, in the order in which an item passes them."""

    SERVER = "server"
    DATABASE = "database"
    OUTBOX = "outbox"
    RELAY = "relay"
    QUEUE = "queue"
    WORKER = "worker"
    NOTIFY = "notify"
    SSE = "sse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A hop that the item passed, or the reason why it did not."""

    name: HopName
    is_ok: bool = True
    seconds: float | None = None
    """How long it took; None where nobody noted it."""
    text: str = ""
    """What happened there; of a broken one also what to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The hops up to the one that is broken, all of them if none is."""

    session_id: str
    """Of the item; empty if none was sent."""
    hops: Sequence[Hop]

    @property
    def broken(self) -> Hop | None:
        """The first hop that is broken."""
        return next((hop for hop in self.hops if not hop.is_ok), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemProgress:
    """How far an item is, by the tables; instants are seconds of the database's clock."""

    outbox_state: str
    reason: str
    is_claimed: bool
    relays_waiting: int
    state: str
    code: str
    error: str
    last_error: str
    attempts: int
    images: int
    created_at: float
    dispatched_at: float | None
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """What SQS says about the queue; of a queue that could not be asked, the reason."""

    is_missing: bool = False
    trouble: str = ""
    visible: int = 0
    in_flight: int = 0


@dataclass(slots=True, kw_only=True)
class Observation:
    """All that was seen; instants are seconds of the database's clock."""

    progress: ItemProgress
    handler: str
    outputs: int | None = None
    """How many images there must be; None if that does not matter."""
    has_waiting_relay: bool = False
    """Whether a relay waited for work in the last seconds: it could have had the row."""
    queue: QueueLook | None = None
    heard_at: float | None = None
    """When the notification of the verdict arrived."""
    told_at: float | None = None
    """When the stream told the end."""
    is_stream_over: bool = False
    """Whether its last message came."""
    stream_trouble: str = ""
    is_server_listening: bool = True
    """Whether any server listens in the database."""


def judge(seen: Observation) -> list[Hop]:
    """Return the hops from the relay on, up to the first that is broken, all if none is."""
    hops: list[Hop] = []
    for judge_one in (_relay, _queue, _worker, _notify, _sse):
        hop = judge_one(seen)
        hops.append(hop)
        if not hop.is_ok:
            break
    return hops


def _relay(seen: Observation) -> Hop:
    item = seen.progress
    if item.dispatched_at is not None:
        return _passed(HopName.RELAY, item.created_at, item.dispatched_at, "claimed and sent")
    if item.started_at is not None or item.finished_at is not None:
        return Hop(name=HopName.RELAY, text="sent, and not marked so far")
    look = seen.queue
    if item.outbox_state == "parked" or item.reason or (look and look.is_missing):
        return Hop(name=HopName.RELAY)
    if seen.has_waiting_relay or (item.is_claimed and look and look.trouble):
        return Hop(name=HopName.RELAY, text="a relay tries to send it")
    if item.is_claimed:
        text = "a relay holds the row and has not sent it: it died, or its call hangs; see its log. "
        return _broken(HopName.RELAY, text + "After two minutes another relay may send it")
    return _broken(
        HopName.RELAY,
        "no relay has claimed the row: is 'airunner outbox relay' running, on this database and schema? "
        "See 'airunner outbox status'",
    )


def _queue(seen: Observation) -> Hop:
    item, look = seen.progress, seen.queue
    if item.started_at is not None and item.dispatched_at is not None:
        return _passed(HopName.QUEUE, item.dispatched_at, item.started_at, "waited for a worker")
    if item.finished_at is not None or item.started_at is not None:
        return Hop(name=HopName.QUEUE)
    if item.outbox_state == "parked":
        return _broken(
            HopName.QUEUE, f"the row is parked: {item.reason}; mend that, then 'airunner outbox retry'"
        )
    if look and look.is_missing:
        return _broken(
            HopName.QUEUE, "SQS has no such queue: see generation.queue_url, and 'airunner aws provision'"
        )
    if item.dispatched_at is not None:
        return Hop(name=HopName.QUEUE, text="took it")
    why = item.reason or (look.trouble if look else "")
    return _broken(
        HopName.QUEUE,
        f"a relay cannot send to the queue{f': {why}' if why else ''}; "
        "its log has outbox.queue_missing or outbox.send_failed",
    )


def _worker(seen: Observation) -> Hop:
    item = seen.progress
    if item.started_at is None and item.finished_at is None:
        return _broken(HopName.WORKER, _why_not_begun(seen))
    if item.state == "failed":
        return _broken(
            HopName.WORKER, f"handler {seen.handler} failed, {item.code}: {item.error or 'no reason given'}"
        )
    if item.finished_at is None or item.started_at is None:
        return _broken(HopName.WORKER, _why_not_ended(seen))
    if seen.outputs is not None and item.images != seen.outputs:
        return _broken(
            HopName.WORKER,
            f"handler {seen.handler} was asked for {seen.outputs} outputs and made {item.images} images",
        )
    tries = f" at try {item.attempts}" if item.attempts > 1 else ""
    return _passed(
        HopName.WORKER, item.started_at, item.finished_at, f"{seen.handler}, and its verdict{tries}"
    )


def _notify(seen: Observation) -> Hop:
    if seen.heard_at is None or seen.progress.finished_at is None:
        return _broken(
            HopName.NOTIFY,
            "the verdict is written, and its NOTIFY session_completed did not arrive: "
            "where a pooler is in between, set postgres.listen_dsn to the database itself",
        )
    return _passed(HopName.NOTIFY, seen.progress.finished_at, seen.heard_at, "heard of the verdict")


def _sse(seen: Observation) -> Hop:
    finished_at = seen.progress.finished_at or 0.0
    if seen.stream_trouble:
        return _broken(HopName.SSE, seen.stream_trouble)
    if seen.told_at is None:
        return _broken(
            HopName.SSE,
            "the stream of the session did not tell its end: is a proxy buffering? "
            "See generations.look_failed in the server's log",
        )
    if not seen.is_stream_over:
        return _broken(HopName.SSE, "the stream told the end of the session, and then no 'end'")
    late = seen.told_at - finished_at
    if late > LATE_SECONDS or not seen.is_server_listening:
        what = f"the server told it {late:.1f} s late" if seen.is_server_listening else "no server listens"
        return _broken(
            HopName.SSE,
            f"{what}: browsers hear of verdicts by a look every 5 s, not by NOTIFY. "
            "See postgres.listener_away in the server's log, and its postgres.listen_dsn",
        )
    return _passed(HopName.SSE, finished_at, seen.told_at, "told the verdict, and ended")


def _why_not_begun(seen: Observation) -> str:
    look = seen.queue
    if look and look.visible:
        return (
            f"{look.visible} messages wait in the queue, and nobody receives them: is 'airunner generation "
            "worker' running, and can it reach PostgreSQL? See worker.loop_error in its log"
        )
    if look and not look.trouble and not look.in_flight:
        return (
            "the queue is empty, and no try has begun: a worker of another database took the message, or "
            f"none has a handler {seen.handler}, and it is in the dead-letter queue"
        )
    return (
        "no worker has begun a try: is 'airunner generation worker' (with sink jobs, 'airunner worker') "
        f"running on this queue and database, with a handler {seen.handler}? See worker.loop_error in its log"
    )


def _why_not_ended(seen: Observation) -> str:
    item = seen.progress
    if item.last_error:
        return (
            f"handler {seen.handler} failed and will be tried again (try {item.attempts}): {item.last_error}"
        )
    return (
        f"handler {seen.handler} has begun and there is no verdict: it still runs, its worker died, or the "
        "verdict cannot be written. See verdict.failed and handler.overdue in the worker's log"
    )


def _passed(name: HopName, since: float, until: float, text: str) -> Hop:
    # The clock of the database is known to this process to within a moment.
    return Hop(name=name, seconds=max(0.0, until - since), text=text)


def _broken(name: HopName, text: str) -> Hop:
    return Hop(name=name, is_ok=False, text=text)
