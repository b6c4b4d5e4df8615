"""Dead letters, to and from the messages of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant
from airunner.codec.jobs import enum_from_pb
from airunner.codec.requests import refusing
from airunner.domain.answers import DeadLetter, DeadLetterPage, DeadLetterReason, Redriven

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airunner.domain.requests import Redrive


@refusing
def list_to_pb(queue: str, max_messages: int) -> pb.ListDeadLettersRequest:
    """Return the message of a look."""
    return pb.ListDeadLettersRequest(queue=queue, max_messages=max_messages)


@refusing
def redrive_to_pb(redrive: Redrive) -> pb.RedriveDeadLettersRequest:
    """Return the message of a redrive."""
    return pb.RedriveDeadLettersRequest(
        queue=redrive.queue, max_messages=redrive.max_messages, all=redrive.all, dry_run=redrive.dry_run
    )


@refusing
def purge_to_pb(queue: str, max_messages: int, *, dry_run: bool) -> pb.PurgeDeadLettersRequest:
    """Return the message of a purge."""
    return pb.PurgeDeadLettersRequest(queue=queue, max_messages=max_messages, dry_run=dry_run)


def page_from_pb(reply: pb.ListDeadLettersResponse) -> DeadLetterPage:
    """Return what was looked at."""
    return DeadLetterPage(
        letters=letters_from_pb(reply.dead_letters), approximate_total=reply.approximate_total
    )


def redriven_from_pb(reply: pb.RedriveDeadLettersResponse) -> Redriven:
    """Return what became of the messages."""
    return Redriven(redriven=letters_from_pb(reply.redriven), left=letters_from_pb(reply.left))


def letters_from_pb(messages: Iterable[pb.DeadLetter]) -> list[DeadLetter]:
    """Return dead letters."""
    return [
        DeadLetter(
            message_id=message.message_id,
            reason=enum_from_pb(DeadLetterReason, message.reason, "reason"),
            job_id=message.job_id,
            sent_at=instant(message.sent_at, "sent_at"),
            redrives=message.redrives,
            body=message.body,
            body_cut=message.body_cut,
        )
        for message in messages
    ]
