"""moto as a real process on loopback, for tests and for trying production settings on one machine."""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from airunner.local.emulator.loopback import EmulatorFailed, LoopbackProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "EmulatorFailed", "EmulatorProcess"]

REGION: Final = "eu-west-1"
ACCESS_KEY: Final = "emulated"
SECRET_KEY: Final = "emulated-secret"  # noqa: S105  nothing checks it

_PROGRAM: Final = "airunner.local.emulator.program"
_CLOCK_PATH: Final = "/airunner/clock"
_OUTAGE_PATH: Final = "/airunner/outage"
_AGE_PATH: Final = "/airunner/age"


class EmulatorProcess(LoopbackProcess):
    """SQS, DynamoDB, S3 and more, all in the memory of one process that ends with this one.

    `start` blocks for one or two seconds, which are moto's imports; on an event loop call it in a thread.
    """

    def __init__(self, *, start_seconds: float = 60) -> None:
        super().__init__("moto", start_seconds=start_seconds)
        self._ahead_seconds = 0.0

    @property
    def ahead_seconds(self) -> float:
        """How far the clock of SQS is before the real one."""
        return self._ahead_seconds

    def command(self) -> tuple[str, ...]:
        """Return what starts moto."""
        if find_spec("moto") is None or find_spec("flask") is None:
            raise EmulatorFailed("moto is not installed: pip install 'airunner-jobs[local-aws]'")
        return sys.executable, "-m", _PROGRAM

    def reset(self) -> None:
        """Forget all tables, queues and buckets, set the clock of SQS right again, and end outages."""
        self.set_away()
        self._post("/moto-api/reset", {})
        self.advance(-self._ahead_seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock of SQS on: visibility timeouts, delays and retention pass without waiting."""
        self._ahead_seconds += seconds
        self._post(_CLOCK_PATH, {"ahead_seconds": self._ahead_seconds})

    def set_away(self, *services: str, breaks_connections: bool = False) -> None:
        """Let services be away from now on, and no others: "dynamodb", "sqs", "s3" ..., or "*" for all.

        They answer 503, or break connections, and perform nothing. Parked long polls end at once.
        """
        self._post(_OUTAGE_PATH, {"services": services, "breaks_connections": breaks_connections})

    def backdate(
        self, seconds: float, *, instances: Sequence[str] = (), parameters: Sequence[str] = ()
    ) -> None:
        """Let instances be launched, and parameters be written, so long ago; raises for one unknown."""
        self._post(
            _AGE_PATH, {"seconds": seconds, "instances": list(instances), "parameters": list(parameters)}
        )

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise EmulatorFailed(f"{path} was answered with {answer.status}")
        answered: dict[str, Any] = json.loads(text)
        return answered
