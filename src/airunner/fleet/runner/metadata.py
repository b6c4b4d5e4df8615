"""What an instance learns about itself from the metadata endpoint of EC2, version 2: a token first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.client.http.base import Target
from airunner.client.transport import Transports
from airunner.domain.errors import AirunnerError, DeadlineExceeded, NotFound, PermissionDenied, Unavailable
from airunner.domain.retry import RetryPolicy, retry
from airunner.fleet.records import INSTANCE_ID
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from airunner.domain.clock import Clock

_log = get_logger("airunner.fleet")

CALL_SECONDS: Final = 2.0
"""How long a call may take: the endpoint is on the same machine."""
POLL_SECONDS: Final = 5.0
"""How often a notice is looked for; there are two minutes from it to the end of the instance."""
_POLICY: Final = RetryPolicy(first_seconds=1.0, max_seconds=2.0, attempts=3)
_TOKEN_SECONDS: Final = 21_600
_SHOWN: Final = 200


class InstanceMetadata:
    """The endpoint; no proxy stands before it. Open from `async with` to its end."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._transports = Transports(None, direct=True)
        self._token = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transports.aclose()

    async def instance_id(self) -> str:
        """Return the id of this instance, after a few tries; an AirunnerError says why it is not known."""
        found = await retry(_POLICY, self._clock, lambda: self._read("instance-id"), retry_if=_is_ours)
        if not INSTANCE_ID.fullmatch(found):
            raise NotFound("the metadata endpoint names no instance")
        return found

    async def spot_notice(self) -> str:
        """Return the notice that this instance is about to be interrupted; empty if there is none."""
        try:
            return (await self._read("spot/instance-action"))[:_SHOWN]
        except NotFound:
            return ""

    async def _read(self, name: str) -> str:
        """Return an entry; a token that is not taken any more is replaced once."""
        is_new = not self._token
        try:
            return await self._get(name)
        except PermissionDenied:
            self._token = ""
            if is_new:
                raise
        return await self._get(name)

    async def _get(self, name: str) -> str:
        if not self._token:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            self._token = await self._call("PUT", "api/token", ttl)
        return await self._call("GET", f"meta-data/{name}", {"X-aws-ec2-metadata-token": self._token})

    async def _call(self, method: str, path: str, headers: dict[str, str]) -> str:
        target = Target(self._url, f"/latest/{path}", headers, method)
        try:
            answer = await self._transports.to(self._url).send(target, timeout_ms=int(CALL_SECONDS * 1000))
        except DeadlineExceeded:
            raise DeadlineExceeded("the metadata endpoint does not answer") from None
        except Unavailable:
            raise Unavailable("the metadata endpoint cannot be reached") from None
        if answer.status == 200:
            return answer.body.decode(errors="replace").strip()
        text = f"the metadata endpoint answers {answer.status}"
        # 403 means that it is switched off.
        raise {404: NotFound, 401: PermissionDenied, 403: PermissionDenied}.get(answer.status, Unavailable)(
            text
        )


class SpotWatch:
    """Looks for the notice of an interruption; what a turn of it raises is told once, until one succeeds."""

    def __init__(self, metadata: InstanceMetadata, on_notice: Callable[[], object]) -> None:
        self._metadata = metadata
        self._on_notice = on_notice
        self._is_noticed = False
        self._is_failing = False

    async def look(self) -> None:
        """Call `on_notice` at the first notice, and never again."""
        try:
            notice = await self._metadata.spot_notice()
        except (Unavailable, DeadlineExceeded, PermissionDenied) as error:
            if not self._is_failing:
                _log.warning("runner.metadata_unavailable", error=error.text)
            self._is_failing = True
            return
        self._is_failing = False
        if notice and not self._is_noticed:
            self._is_noticed = True
            _log.warning("runner.spot_notice", notice=notice)
            self._on_notice()


def _is_ours(error: Exception) -> bool:
    return isinstance(error, AirunnerError)
