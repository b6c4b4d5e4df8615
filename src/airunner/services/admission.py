"""What one server takes on at once. Beyond it a call is refused before it costs anything.

A refusal is `Overloaded`: it says when to come back. What keeps a running job alive (`VITAL_CALLS`) is never
refused for its rate or for waiting, and has the last quarter of the memory for itself.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from airunner import telemetry
from airunner.domain.errors import Overloaded
from airunner.services.rates import Buckets, network_of
from airunner.telemetry.refusals import CallRefusal, RefusalLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airunner.domain.clock import Clock

VITAL_CALLS: Final = frozenset(
    {"UpdateJob", "CompleteJob", "CompleteJobs", "ReleaseJob", "PublishJobEvents", "PublishJobEventBatch"}
)
"""The calls without which a job that runs would run again, or its output be lost."""

_RETRY_SECONDS: Final = 1.0
_MIN_RETRY_SECONDS: Final = 0.1
_ORDINARY_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """What the operator allows one server."""

    max_body_bytes: int = 256 * 1024 * 1024
    """Of the requests that are being received or answered."""
    max_waiting_calls: int = 10_000
    """Dequeues, GetJobs and UpdateJobs that wait."""
    max_streams: int = 5_000
    max_streams_per_principal: int = 2_000
    max_queue_names: int = 10_000
    calls_per_second: float = 5_000
    """Of one principal; 0 = no limit."""
    call_burst: float = 20_000
    failed_keys_per_minute: int = 20
    """From one address; 0 = no limit."""


class Admission:
    """Counts what a server has taken on. One for each server; on its event loop only."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self.limits = limits
        self.body_bytes = 0
        """Bytes of requests that are in memory."""
        self.waiting = 0
        """Calls that wait."""
        self.streams = 0
        """Streams that are open."""
        self._principal_streams: Counter[str] = Counter()
        self._refusals = RefusalLog(telemetry.calls_refused, "calls.refused", clock)
        rate, failed = limits.calls_per_second, limits.failed_keys_per_minute
        self._calls = Buckets(rate, max(1.0, limits.call_burst), clock) if rate else None
        self._failed_keys = Buckets(failed / 60, failed, clock) if failed else None

    def check_rate(self, principal: str, method: str) -> None:
        """Count a call of a principal, whatever it carries; refused when there were too many lately."""
        if self._calls is None or method in VITAL_CALLS:
            return
        if missing := self._calls.take(principal):
            self.refuse(
                CallRefusal.RATE,
                f"more than {self.limits.calls_per_second:g} calls a second",
                max(missing, _MIN_RETRY_SECONDS),
            )

    def check_address(self, address: str, *, unless: Callable[[], bool]) -> None:
        """Refuse an address from which too many wrong keys came lately, before anything is looked up."""
        if self._failed_keys is None or not self._failed_keys.tracked or not address:
            return
        missing = self._failed_keys.missing(network_of(address))
        if missing and not unless():
            self.refuse(CallRefusal.FAILED_KEYS, "too many wrong API keys came from this address", missing)

    def count_failed_key(self, address: str) -> None:
        """Count a wrong key of an address."""
        if self._failed_keys is not None and address:
            self._failed_keys.take(network_of(address))

    def check_body(self, size_bytes: int, method: str) -> None:
        """Refuse a request of this size if there is no room for it; it is counted as it comes in."""
        share = 1.0 if method in VITAL_CALLS else _ORDINARY_SHARE
        if self.body_bytes + size_bytes > self.limits.max_body_bytes * share:
            self.refuse(CallRefusal.BODY_BYTES, "too many bytes of requests are on their way", _RETRY_SECONDS)

    def open_stream(self, principal: str) -> OpenStream:
        """Count a stream until it is closed; refused if there are too many."""
        if self.streams >= self.limits.max_streams:
            self.refuse(CallRefusal.STREAMS, "too many streams are open", _RETRY_SECONDS)
        if self._principal_streams[principal] >= self.limits.max_streams_per_principal:
            self.refuse(
                CallRefusal.PRINCIPAL_STREAMS, "this principal has too many streams open", _RETRY_SECONDS
            )
        self._change_streams(principal, 1)
        return OpenStream(lambda: self._change_streams(principal, -1))

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a call that waits while the block lasts; refused if there are too many."""
        with self.wait_if_possible() as possible:
            if not possible:
                self.refuse(CallRefusal.WAITING_CALLS, "too many calls wait", _RETRY_SECONDS)
            yield

    @contextmanager
    def wait_if_possible(self) -> Iterator[bool]:
        """Count a call that waits while the block lasts, unless there are too many: then it must not wait."""
        if self.waiting >= self.limits.max_waiting_calls:
            yield False
            return
        self.waiting += 1
        try:
            yield True
        finally:
            self.waiting -= 1

    def refuse(self, reason: CallRefusal, text: str, retry_after_seconds: float) -> NoReturn:
        """Count a refusal, and raise it."""
        self._refusals.add(reason)
        raise Overloaded(text, retry_after_seconds=retry_after_seconds)

    def _change_streams(self, principal: str, step: int) -> None:
        self.streams += step
        self._principal_streams[principal] += step
        if not self._principal_streams[principal]:
            del self._principal_streams[principal]


class OpenStream:
    """A stream that is counted until it is closed. Close it in any case; a second time does nothing."""

    __slots__ = ("_on_close",)

    def __init__(self, on_close: Callable[[], None]) -> None:
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        """Count the stream no longer."""
        on_close, self._on_close = self._on_close, None
        if on_close:
            on_close()


class RequestBody:
    """The bytes of one request, counted while it is received and answered. `forget` them in any case."""

    __slots__ = ("_admission", "_method", "_size_bytes")

    def __init__(self, admission: Admission, method: str) -> None:
        self._admission = admission
        self._method = method
        self._size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count bytes that are in memory now; refused if there is no room for them."""
        self._admission.check_body(size_bytes, self._method)
        self._admission.body_bytes += size_bytes
        self._size_bytes += size_bytes

    def forget(self) -> None:
        """Count nothing of what came so far any more: it has been dealt with."""
        self._admission.body_bytes -= self._size_bytes
        self._size_bytes = 0
