"""ClientRequestToken of TransactWriteItems: for ten minutes a repeated transaction has no second effect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.doubles.aws.calls import Refusal, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.wire import AwsAnswer

REMEMBERED_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Performed:
    fingerprint: str
    answer: AwsAnswer | None
    """None while it is being performed."""
    until: float


class RequestTokens:
    """Remembers transactions that succeeded. One that was cancelled is judged anew when it is repeated."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._performed: dict[str, _Performed] = {}

    async def perform(self, call: Call, send: Callable[[Call], Awaitable[AwsAnswer]]) -> AwsAnswer:
        """Perform a transaction, or repeat the answer to the one with this token."""
        token = call.body.get("ClientRequestToken")
        if not token:
            return await send(call)
        fingerprint = json.dumps(call.body["TransactItems"], sort_keys=True)
        earlier = self._performed.get(token)
        if earlier is not None and earlier.until > self._now():
            return _repeated(call, earlier, fingerprint)
        answer = None
        self._remember(token, fingerprint, None)
        try:
            answer = await send(call)
        finally:
            del self._performed[token]
            if answer is not None and answer.status == 200:
                self._remember(token, fingerprint, answer)
        return answer

    def _remember(self, token: str, fingerprint: str, answer: AwsAnswer | None) -> None:
        until = self._now() + REMEMBERED_SECONDS
        self._performed[token] = _Performed(fingerprint=fingerprint, answer=answer, until=until)


def _repeated(call: Call, earlier: _Performed, fingerprint: str) -> AwsAnswer:
    if earlier.fingerprint != fingerprint:
        return refused(
            call,
            Refusal(
                code="IdempotentParameterMismatchException",
                message="The request token has been used with different parameters",
            ),
        )
    if earlier.answer is None:
        return refused(
            call,
            Refusal(
                code="TransactionInProgressException",
                message="The transaction with this token is in progress",
            ),
        )
    return earlier.answer
