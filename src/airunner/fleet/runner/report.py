"""Sending the reports of a runner, for as long as it makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.errors import AirunnerError, InvalidArgument, MessageTooLarge, Unavailable, error_text
from airunner.domain.outcomes import single
from airunner.domain.retry import RetryPolicy, retry
from airunner.fleet.messages.termination import format_termination
from airunner.queues.messages import NewMessage
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.fleet.messages.termination import TerminationMessage
    from airunner.queues.messages import MessageQueue

_log = get_logger("airunner.fleet")

SEND_SECONDS: Final = 300.0
"""For how long sending is repeated."""
_POLICY: Final = RetryPolicy(first_seconds=0.5, max_seconds=15.0)


class ReportLost(Unavailable):
    """The termination queue did not take a report; the log has it, without its token."""


async def send_reports(queue: MessageQueue, messages: Sequence[TerminationMessage], clock: Clock) -> None:
    """Send messages in their order; ReportLost if the queue did not take all of them within five minutes.

    Each is tried once at least. Whatever the queue refuses it for may be mended meanwhile, but for what it
    holds. One whose answer is lost is sent again, so that it may be there twice.
    """
    give_up_at = clock.monotonic() + round(1000 * SEND_SECONDS)
    lost = False
    for message in messages:
        try:
            await _send(queue, message, clock, give_up_at)
        except AirunnerError as error:
            lost = True
            body = format_termination(message, with_token=False)
            _log.error("runner.report_lost", queue=queue.name, error=error_text(error), message=body)
        else:
            _log.info(
                "runner.reported",
                job_id=message.job_id,
                attempt=message.attempt,
                status=message.status.value,
            )
    if lost:
        raise ReportLost


async def _send(queue: MessageQueue, message: TerminationMessage, clock: Clock, give_up_at: int) -> None:
    async def send() -> None:
        single(await queue.send([NewMessage(body=format_termination(message))]))

    def log(error: Exception, failures: int) -> None:
        _log.warning("runner.report_repeated", failures=failures, error=error_text(error))

    await retry(_POLICY, clock, send, retry_if=_may_pass, on_failure=log, give_up_at=give_up_at)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, AirunnerError) and not isinstance(error, InvalidArgument | MessageTooLarge)
