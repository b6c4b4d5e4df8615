"""What a relay of the outbox measures. docs/operations.md says what each number means and when to worry."""

from __future__ import annotations

from typing import Final

from airunner.telemetry.instruments import Counter, Gauge, Instrument
from airunner.telemetry.logs import logs_dropped

outbox_pending = Gauge("airunner.outbox.pending", "Rows that are not sent yet, delayed ones included")
outbox_oldest_age = Gauge(
    "airunner.outbox.oldest_age", "How long the oldest pending row could have been sent", unit="s"
)
outbox_parked = Gauge("airunner.outbox.parked", "Rows that no relay sends any more")
outbox_sent = Counter("airunner.outbox.sent", "Rows that this relay sent")

OUTBOX_METRICS: Final[tuple[Instrument, ...]] = (
    outbox_pending,
    outbox_oldest_age,
    outbox_parked,
    outbox_sent,
    logs_dropped,
)
