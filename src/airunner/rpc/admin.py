"""AdminService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import set_instant
from airunner.codec.jobs import to_wire
from airunner.domain.requests import Redrive

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

    from airunner.domain.answers import DeadLetter
    from airunner.services.admin import AdminService


class AdminServiceEndpoint:
    """Implements the generated AdminService."""

    def __init__(self, service: AdminService) -> None:
        self._service = service

    async def list_dead_letters(
        self,
        request: pb.ListDeadLettersRequest,
        _: RequestContext[pb.ListDeadLettersRequest, pb.ListDeadLettersResponse],
    ) -> pb.ListDeadLettersResponse:
        """Look into a dead-letter queue."""
        page = await self._service.list_dead_letters(request.queue, max_messages=request.max_messages)
        return pb.ListDeadLettersResponse(
            dead_letters=map(_letter, page.letters), approximate_total=page.approximate_total
        )

    async def redrive_dead_letters(
        self,
        request: pb.RedriveDeadLettersRequest,
        _: RequestContext[pb.RedriveDeadLettersRequest, pb.RedriveDeadLettersResponse],
    ) -> pb.RedriveDeadLettersResponse:
        """Send dead letters back to their queue."""
        done = await self._service.redrive_dead_letters(
            Redrive(
                queue=request.queue,
                max_messages=request.max_messages,
                all=request.all,
                dry_run=request.dry_run,
            )
        )
        return pb.RedriveDeadLettersResponse(
            redriven=map(_letter, done.redriven), left=map(_letter, done.left)
        )

    async def purge_dead_letters(
        self,
        request: pb.PurgeDeadLettersRequest,
        _: RequestContext[pb.PurgeDeadLettersRequest, pb.PurgeDeadLettersResponse],
    ) -> pb.PurgeDeadLettersResponse:
        """Delete dead letters."""
        gone = await self._service.purge_dead_letters(
            request.queue, max_messages=request.max_messages, dry_run=request.dry_run
        )
        return pb.PurgeDeadLettersResponse(purged=map(_letter, gone))


def _letter(letter: DeadLetter) -> pb.DeadLetter:
    message = pb.DeadLetter(
        message_id=letter.message_id,
        reason=to_wire(letter.reason),
        job_id=letter.job_id,
        redrives=letter.redrives,
        body=letter.body,
        body_cut=letter.body_cut,
    )
    set_instant(message.sent_at, letter.sent_at)
    return message
