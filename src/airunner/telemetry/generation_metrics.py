"""What a generation worker measures. docs/operations.md says what each number means and when to worry."""

from __future__ import annotations

from typing import Final

from airunner.telemetry.instruments import Counter, Gauge, Instrument
from airunner.telemetry.logs import logs_dropped

generation_verdicts = Counter(
    "airunner.generation.verdicts",
    "Sessions that this process ended, and deliveries of ended ones",
    "outcome",
)
generation_retries = Counter("airunner.generation.retries", "Tries that failed and are followed by another")
generation_messages = Gauge(
    "airunner.generation.messages",
    "About how many messages the queue and its dead-letter queue have",
    "queue",
)
generation_concurrency = Gauge("airunner.generation.concurrency", "How many handlers may run at once")
generation_running = Gauge("airunner.generation.running", "How many handlers run")

VERDICT_METRICS: Final[tuple[Instrument, ...]] = (generation_verdicts, generation_retries)
"""Those of processes that give verdicts and are no generation workers."""
GENERATION_METRICS: Final[tuple[Instrument, ...]] = (
    generation_verdicts,
    generation_retries,
    generation_messages,
    generation_concurrency,
    generation_running,
    logs_dropped,
)
