"""Dead letters to and from the messages of the wire: what is asked about them, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from airunner.codec.building import refusing
from airunner.codec.enums import enum_or, to_wire
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant, set_instant
from airunner.domain.answers import DeadLetter, DeadLetterPage, DeadLetterReason, Redriven
from airunner.domain.requests import Redrive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ListArguments(TypedDict):
    """The arguments of `list_dead_letters`."""

    queue: str
    max_messages: int
    code: str


class PurgeArguments(ListArguments):
    """The arguments of `purge_dead_letters`."""

    dry_run: bool


@refusing
def list_to_pb(**arguments: Unpack[ListArguments]) -> pb.ListDeadLettersRequest:
    """Return the message that asks for dead letters."""
    return pb.ListDeadLettersRequest(**arguments)


def list_from_pb(message: pb.ListDeadLettersRequest) -> ListArguments:
    """Return which dead letters are asked for, and how many."""
    return ListArguments(queue=message.queue, max_messages=message.max_messages, code=message.code)


@refusing
def redrive_to_pb(redrive: Redrive) -> pb.RedriveDeadLettersRequest:
    """Return the message of a redrive."""
    return pb.RedriveDeadLettersRequest(
        queue=redrive.queue,
        max_messages=redrive.max_messages,
        all=redrive.all,
        dry_run=redrive.dry_run,
        code=redrive.code,
    )


def redrive_from_pb(message: pb.RedriveDeadLettersRequest) -> Redrive:
    """Return a redrive."""
    return Redrive(
        queue=message.queue,
        max_messages=message.max_messages,
        all=message.all,
        dry_run=message.dry_run,
        code=message.code,
    )


@refusing
def purge_to_pb(**arguments: Unpack[PurgeArguments]) -> pb.PurgeDeadLettersRequest:
    """Return the message of a purge."""
    return pb.PurgeDeadLettersRequest(**arguments)


def purge_from_pb(message: pb.PurgeDeadLettersRequest) -> PurgeArguments:
    """Return which dead letters to delete, how many, and whether to delete them at all."""
    return PurgeArguments(
        queue=message.queue, max_messages=message.max_messages, dry_run=message.dry_run, code=message.code
    )


def page_to_pb(page: DeadLetterPage) -> pb.ListDeadLettersResponse:
    """Return the message of dead letters that were looked at."""
    return pb.ListDeadLettersResponse(
        dead_letters=map(_letter_to_pb, page.letters), approximate_total=page.approximate_total
    )


def page_from_pb(message: pb.ListDeadLettersResponse) -> DeadLetterPage:
    """Return dead letters that were looked at."""
    return DeadLetterPage(
        letters=_letters_from_pb(message.dead_letters), approximate_total=message.approximate_total
    )


def redriven_to_pb(redriven: Redriven) -> pb.RedriveDeadLettersResponse:
    """Return the message of what a redrive did."""
    return pb.RedriveDeadLettersResponse(
        redriven=map(_letter_to_pb, redriven.redriven), left=map(_letter_to_pb, redriven.left)
    )


def redriven_from_pb(message: pb.RedriveDeadLettersResponse) -> Redriven:
    """Return what a redrive did."""
    return Redriven(redriven=_letters_from_pb(message.redriven), left=_letters_from_pb(message.left))


def purged_to_pb(letters: Sequence[DeadLetter]) -> pb.PurgeDeadLettersResponse:
    """Return the message of dead letters that were deleted."""
    return pb.PurgeDeadLettersResponse(purged=map(_letter_to_pb, letters))


def purged_from_pb(message: pb.PurgeDeadLettersResponse) -> list[DeadLetter]:
    """Return dead letters that were deleted."""
    return _letters_from_pb(message.purged)


def _letter_to_pb(letter: DeadLetter) -> pb.DeadLetter:
    message = pb.DeadLetter(
        message_id=letter.message_id,
        reason=to_wire(letter.reason),
        job_id=letter.job_id,
        redrives=letter.redrives,
        body=letter.body,
        body_cut=letter.body_cut,
        code=letter.code,
    )
    set_instant(message.sent_at, letter.sent_at)
    return message


def _letters_from_pb(messages: Iterable[pb.DeadLetter]) -> list[DeadLetter]:
    return [
        DeadLetter(
            message_id=message.message_id,
            reason=enum_or(DeadLetterReason, message.reason, DeadLetterReason.UNSPECIFIED),
            job_id=message.job_id,
            sent_at=instant(message.sent_at, "sent_at"),
            redrives=message.redrives,
            body=message.body,
            body_cut=message.body_cut,
            code=message.code,
        )
        for message in messages
    ]
