"""A short way for the calls that come most: from the bytes of a request to its endpoint, and back.

The library's way is the rule, and takes every call. These calls, when they come as our own clients send them,
are answered as the library would answer, by the same endpoints, without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.codec import methods
from airunner.codec.error_json import error_to_json
from airunner.codec.errors import WireError, http_headers, status_of, to_wire
from airunner.codec.methods import parse_request
from airunner.domain.errors import AirunnerError, DeadlineExceeded, InternalError
from airunner.domain.record import record
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from airunner.codec.methods import Method
    from airunner.rpc.entrance import Entrance
    from airunner.rpc.events import JobEventsServiceEndpoint
    from airunner.rpc.jobs import JobServiceEndpoint
    from airunner.services.admission import Admission

    Endpoint = Callable[[Any, Any], Awaitable[Any]]
    Endpoints = Mapping[Method[Any, Any], Endpoint]
    Headers = Sequence[tuple[bytes, bytes]]

_log = get_logger("airunner.rpc")

WAITING: Final = frozenset({"DequeueJobs", "UpdateJob", "GetJob"})
"""The calls that wait, and so must notice that nobody waits for them any more."""

_MAX_TIMEOUT_DIGITS: Final = 10
_PLAIN: Final = frozenset({b"", b"identity"})
# What may be by_name in a request that goes the short way, beside what decides nothing.
_UNUSUAL: Final = frozenset({b"expect", b"upgrade", b"transfer-encoding"})


def thin_job_calls(endpoint: JobServiceEndpoint) -> Endpoints:
    """Return the calls of JobService that go the short way. ListWorkers is the one that figures go by."""
    return {
        methods.ENQUEUE_JOB: endpoint.enqueue_job,
        methods.ENQUEUE_JOBS: endpoint.enqueue_jobs,
        methods.DEQUEUE_JOBS: endpoint.dequeue_jobs,
        methods.UPDATE_JOB: endpoint.update_job,
        methods.COMPLETE_JOB: endpoint.complete_job,
        methods.COMPLETE_JOBS: endpoint.complete_jobs,
        methods.RELEASE_JOB: endpoint.release_job,
        methods.GET_JOB: endpoint.get_job,
        methods.LIST_WORKERS: endpoint.list_workers,
    }


def thin_event_calls(endpoint: JobEventsServiceEndpoint) -> Endpoints:
    """Return those of JobEventsService."""
    return {methods.PUBLISH_JOB_EVENT_BATCH: endpoint.publish_job_event_batch}


@dataclass(frozen=True, slots=True)
class ThinMethod:
    """A method that is called the short way."""

    method: Method[Any, Any]
    endpoint: Endpoint
    name: str
    waits: bool


@record
class ThinRequest:
    """A request that goes the short way, but for its body."""

    method: ThinMethod
    authorization: str
    timeout_ms: int | None


@record
class ThinAnswer:
    """An answer: its status, what its head says beside the length, and its body."""

    status: int
    headers: bytes
    body: bytes


class ThinCalls:
    """The calls that go the short way, by path."""

    def __init__(
        self,
        endpoints: Endpoints,
        entrance: Entrance,
        admission: Admission,
        *,
        allows: Callable[[Headers], bool] = lambda _: True,
    ) -> None:
        """What `allows` refuses goes the long way, and is refused there."""
        self._entrance = entrance
        self._admission = admission
        self._allows = allows
        self._methods = {
            method.path.encode(): ThinMethod(method, endpoint, method.name, method.name in WAITING)
            for method, endpoint in endpoints.items()
        }

    def accept(self, path: bytes, headers: Headers) -> ThinRequest | None:
        """Return a request that can go the short way; None for any that is in the least unusual."""
        method = self._methods.get(path)
        if method is None:
            return None
        by_name = dict(headers)
        usual = by_name.get(b"content-type") == b"application/proto" and b"content-length" in by_name
        if not (usual and is_plain(by_name, headers) and self._allows(headers)):
            return None
        timeout = by_name.get(b"connect-timeout-ms", b"")
        authorization = by_name.get(b"authorization", b"").decode("latin-1")
        return ThinRequest(method, authorization, int(timeout) if timeout else None)

    async def answer(self, request: ThinRequest, body: bytes, address: str) -> ThinAnswer:
        """Answer a request, however long it takes; errors are answers too. Only a cancellation is raised."""
        try:
            return await self._call(request, body, address)
        except AirunnerError as error:
            return _refusal(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller only learns that it happened
            _log.error("rpc.failed", method=request.method.name, exc_info=error)
            return _refusal(InternalError())

    async def _call(self, request: ThinRequest, body: bytes, address: str) -> ThinAnswer:
        called, admission = request.method, self._admission
        size = len(body)
        await self._entrance.enter(called.name, request.authorization, address, size)
        # There was room for it just now.
        admission.body_bytes += size
        try:
            reply = await called.endpoint(parse_request(called.method, body), None)
            return ThinAnswer(200, b"content-type: application/proto\r\n", reply.SerializeToString())
        finally:
            admission.body_bytes -= size


def is_plain(by_name: Mapping[bytes, bytes], headers: Headers, *, encodings: str = "") -> bool:
    """Return whether headers say nothing that only the library understands.

    `by_name` are the headers by name, and `encodings` is what comes before the names of those of a stream.
    """
    timeout = by_name.get(b"connect-timeout-ms", b"")
    prefix = encodings.encode()
    return (
        by_name.get(prefix + b"content-encoding", b"") in _PLAIN
        and by_name.get(prefix + b"accept-encoding", b"") in _PLAIN
        and by_name.get(b"connect-protocol-version", b"1") == b"1"
        and (not timeout or (timeout.isdigit() and len(timeout) <= _MAX_TIMEOUT_DIGITS))
        and len(by_name) == len(headers)
        and not _UNUSUAL & by_name.keys()
    )


def late_answer() -> ThinAnswer:
    """Return the answer to a call that is not done by its deadline."""
    return _refusal(DeadlineExceeded("Request timed out"))


def cancelled_answer() -> ThinAnswer:
    """Return the answer to a call that the server ends before it is done."""
    return _told(WireError("canceled", "Request was cancelled"))


def _refusal(error: AirunnerError) -> ThinAnswer:
    return _told(to_wire(error), http_headers(error))


def _told(wire: WireError, more: Mapping[str, str] | None = None) -> ThinAnswer:
    headers = {"content-type": "application/json", **(more or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return ThinAnswer(status_of(wire.code), lines.encode(), error_to_json(wire))
