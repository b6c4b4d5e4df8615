"""Reports are sent for five minutes; then they are in the log, without what proves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from airunner.domain.errors import AirunnerError, InternalError, InvalidArgument, Unavailable
from airunner.fleet.messages.termination import EndStatus, TerminationMessage, parse_termination
from airunner.fleet.runner.report import SEND_SECONDS, ReportLost, send_reports
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from tests.support.fleet import while_time_passes

TOKEN = "the-proof"
MESSAGE = TerminationMessage(
    instance_id="i-1",
    job_id="67890",
    status=EndStatus.FAILURE,
    exit_code=3,
    duration_seconds=1.5,
    started_at=1_000,
    completed_at=2_500,
    error="exit 3",
    attempt=1,
    termination_token=TOKEN,
)


class FaultyQueue(MemoryQueue):
    """A queue that takes nothing while `fault` returns an error for the number of a send."""

    def __init__(self, clock: ManualClock, fault: Callable[[int], AirunnerError | None]) -> None:
        super().__init__(clock, name="termination")
        self.fault = fault
        self.sends = 0

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        self.sends += 1
        error = self.fault(self.sends)
        return [error] * len(messages) if error else await super().send(messages)


async def sent(queue: MemoryQueue) -> list[TerminationMessage]:
    return [parse_termination(message.body) for message in await queue.receive(10)]


@pytest.mark.parametrize("error", [Unavailable("away"), InternalError("no right yet")])
async def test_a_report_waits_for_its_queue(error: AirunnerError) -> None:
    clock = ManualClock()
    began = clock.monotonic()
    almost_ms = 1000 * (SEND_SECONDS - 20)
    queue = FaultyQueue(clock, lambda _: error if clock.monotonic() < began + almost_ms else None)
    await while_time_passes(clock, send_reports(queue, [MESSAGE, MESSAGE], clock))
    assert await sent(queue) == [MESSAGE, MESSAGE]


async def test_after_five_minutes_it_is_logged_without_its_token(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    queue, began = FaultyQueue(clock, lambda _: Unavailable("away")), clock.monotonic()
    with pytest.raises(ReportLost):
        await while_time_passes(clock, send_reports(queue, [MESSAGE], clock))
    assert 0 <= 1000 * SEND_SECONDS - (clock.monotonic() - began) < 16_000
    assert queue.sends > 20
    output = "".join(capsys.readouterr())
    assert TOKEN not in output
    (line,) = [line for line in output.splitlines() if "runner.report_lost" in line]
    assert "67890" in line
    assert "failure" in line


async def test_one_that_no_queue_takes_is_given_up_at_once_and_the_next_one_is_sent() -> None:
    clock = ManualClock()
    queue = FaultyQueue(clock, lambda number: InvalidArgument("bad") if number == 1 else None)
    with pytest.raises(ReportLost):
        await while_time_passes(clock, send_reports(queue, [MESSAGE, MESSAGE], clock))
    assert await sent(queue) == [MESSAGE]
