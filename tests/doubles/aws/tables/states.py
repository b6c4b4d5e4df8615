"""Tables that change: AWS says so late, and refuses other changes meanwhile."""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from tests.doubles.aws.calls import Refusal, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.conditions import Conditions
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

_CHANGES: Final = frozenset({"DeleteTable", "UpdateTable", "UpdateTimeToLive"})
_IN_USE: Final = Refusal(
    code="ResourceInUseException", message="Attempt to change a resource which is still in use"
)
_NO_BACKUPS: Final = Refusal(
    code="ContinuousBackupsUnavailableException",
    message="Backups are being enabled for the table. Please retry later",
)
_HAS_TIME_TO_LIVE: Final = Refusal(code="ValidationException", message="TimeToLive is already enabled")


class TableStates:
    """Which tables are being changed, and what the next look at each says."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._looks: dict[str, deque[str]] = {}
        self._refused: Counter[str] = Counter()
        self._with_time_to_live: set[str] = set()

    async def perform(self, call: Call, send: Send) -> AwsAnswer:
        """Perform a call on a table, or refuse it as long as the table is not ready for it."""
        table = call.body.get("TableName", "")
        looks = self._looks.get(table)
        if call.operation == "DescribeTable" and looks:
            return _with_status(await send(call), looks.popleft())
        if call.operation in _CHANGES and looks:
            looks.popleft()
            return refused(call, _IN_USE)
        if call.operation == "UpdateContinuousBackups" and self._refused[table] < (
            self._conditions.backups_refused
        ):
            self._refused[table] += 1
            return refused(call, _NO_BACKUPS)
        if call.operation == "UpdateTimeToLive" and table in self._with_time_to_live:
            return refused(call, _HAS_TIME_TO_LIVE)
        answer = await send(call)
        if answer.status == 200:
            self._note(call.operation, table)
        return answer

    def _note(self, operation: str, table: str) -> None:
        if operation == "UpdateTable":
            self._looks[table] = deque(self._conditions.looks_after_update)
        elif operation == "UpdateTimeToLive":
            self._with_time_to_live.add(table)
        elif operation == "DeleteTable":
            self._with_time_to_live.discard(table)


def _with_status(answer: AwsAnswer, status: str) -> AwsAnswer:
    if answer.status != 200:
        return answer
    body = json.loads(answer.body)
    return answer.with_json({"Table": body["Table"] | {"TableStatus": status}})
