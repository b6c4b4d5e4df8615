"""`airunner dlq`: messages that nobody could do anything with."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import moment, print_json, print_table, say
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airunner.client import AsyncClient
    from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
    from airunner.domain.requests import Redrive

dlq = App(name="dlq", help="List the messages of dead-letter queues, send them back, or delete them.")

QueueName = Annotated[str, Parameter(help="The queue whose dead letters to use.")]
MaxMessages = Annotated[int, Parameter(name="--max", help="Maximum number of messages. Default: 1000")]
Code = Annotated[
    str, Parameter(help="Only dead letters with this code, in the generation queue. Default: all")
]
DryRun = Annotated[bool, Parameter(help="Print what would be done, and change nothing.")]

_DEFAULT_MESSAGES: Final = 1_000
_AT_ONCE: Final = 100


@dlq.command(name="list")
def list_letters(
    queue: QueueName,
    /,
    *,
    max_messages: MaxMessages = _DEFAULT_MESSAGES,
    code: Code = "",
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters of a queue by reason and code, with the age of the oldest."""
    page = _look(connection, queue, max_messages, code)
    groups = _by_subject(page.letters)
    if as_json:
        for letters in groups.values():
            print_json("dead_letters", {"queue": queue, **_group_to_json(letters)})
    else:
        rows = [
            (about, str(len(letters)), moment(min(entry.sent_at for entry in letters)))
            for about, letters in groups.items()
        ]
        print_table(("about", "messages", "oldest"), rows)
    if page.approximate_total > len(page.letters) and not code:
        say(f"looked at {len(page.letters)} of about {page.approximate_total}")


@dlq.command
def show(
    queue: QueueName,
    /,
    *,
    max_messages: Annotated[
        int, Parameter(name="--max", help="Maximum number of messages. Default: 20")
    ] = 20,
    code: Code = "",
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show dead letters of a queue with the first characters of their bodies, and leave them there."""
    page = _look(connection, queue, max_messages, code)
    if as_json:
        _print_letters(queue, "", page.letters)
        return
    rows = [
        (
            entry.message_id,
            _subject(entry),
            moment(entry.sent_at),
            str(entry.redrives),
            f"{entry.body}…" if entry.body_cut else entry.body,
        )
        for entry in page.letters
    ]
    print_table(("message id", "about", "sent", "redrives", "body"), rows)


@dlq.command
def redrive(
    queue: QueueName,
    /,
    *,
    max_messages: MaxMessages = _DEFAULT_MESSAGES,
    rate: Annotated[float | None, Parameter(help="Messages per second. Default: no limit")] = None,
    every: Annotated[bool, Parameter(name="--all", help="Also send messages whose job is not open.")] = False,
    code: Code = "",
    dry_run: DryRun = False,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Send the dead letters of open jobs back to their queue; with --all, the others too.

    A message that was sent back three times stays, and is reported. To run a job that has ended again, use
    'airunner retry'; for work of the generation queue that has a verdict, use 'airunner outbox rerun'.
    """
    from airunner.domain.answers import DeadLetterReason
    from airunner.domain.requests import Redrive

    wish = Redrive(queue=queue, max_messages=max_messages, all=every, dry_run=dry_run, code=code)
    done = with_client(connection, lambda client: _redrive(client, wish, _checked(rate)))
    if as_json:
        _print_letters(queue, "redriven", done.redriven)
        _print_letters(queue, "left", done.left)
        return
    _report(queue, "would be sent back" if dry_run else "sent back", done.redriven)
    for about, letters in _by_subject(entry for entry in done.left if not entry.loops).items():
        say(f"{len(letters)} left: {about}")
    for entry in done.left:
        if entry.loops:
            say(f"left {entry.message_id}, which was sent back {entry.redrives} times: {_subject(entry)}")
    if any(entry.reason is DeadLetterReason.VERDICT for entry in done.left):
        say("a verdict is final; to repeat such work under a new id, use 'airunner outbox rerun ID'")


@dlq.command
def purge(
    queue: QueueName,
    /,
    *,
    max_messages: MaxMessages = _DEFAULT_MESSAGES,
    code: Code = "",
    dry_run: DryRun = False,
    yes: Annotated[bool, Parameter(help="Delete without asking.")] = False,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> int:
    """Delete dead letters of a queue. Their jobs stay as they are; an open job gets a new message."""
    if (
        not dry_run
        and not yes
        and not _confirmed(f"delete up to {max_messages} dead letters of queue {queue}?")
    ):
        say("nothing was deleted")
        return ExitCode.FAILED
    gone = with_client(
        connection, lambda client: _purge(client, queue, max_messages, dry_run=dry_run, code=code)
    )
    if as_json:
        _print_letters(queue, "purged", gone)
    else:
        _report(queue, "would be deleted" if dry_run else "deleted", gone)
    return ExitCode.OK


async def _redrive(client: AsyncClient, wish: Redrive, rate: float | None) -> Redriven:
    """Ask in small steps until nothing more comes; a dry run, which hides nothing, asks once."""
    from dataclasses import replace

    from airunner.domain.answers import Redriven
    from airunner.domain.clock import SystemClock

    if wish.dry_run:
        return await client.redrive_dead_letters(wish)
    sent: list[DeadLetter] = []
    left: dict[str, DeadLetter] = {}
    step = max(1, min(_AT_ONCE, int(rate))) if rate else _AT_ONCE
    while len(sent) < wish.max_messages:
        count = min(step, wish.max_messages - len(sent))
        done = await client.redrive_dead_letters(replace(wish, max_messages=count))
        if not done.redriven and not any(entry.message_id not in left for entry in done.left):
            break
        sent += done.redriven
        left |= {entry.message_id: entry for entry in done.left}
        if rate:
            await SystemClock().sleep(len(done.redriven) / rate)
    return Redriven(redriven=sent, left=list(left.values()))


async def _purge(
    client: AsyncClient, queue: str, max_messages: int, *, dry_run: bool, code: str
) -> list[DeadLetter]:
    if dry_run:
        found = await client.purge_dead_letters(queue, max_messages=max_messages, dry_run=True, code=code)
        return list(found)
    gone: list[DeadLetter] = []
    while len(gone) < max_messages:
        count = min(_AT_ONCE, max_messages - len(gone))
        purged = await client.purge_dead_letters(queue, max_messages=count, code=code)
        gone += purged
        if not purged:
            break
    return gone


def _checked(rate: float | None) -> float | None:
    from airunner.domain.errors import InvalidArgument

    if rate is not None and not rate > 0:
        raise InvalidArgument("--rate must be above 0")
    return rate


def _confirmed(question: str) -> bool:
    from airunner.domain.errors import InvalidArgument

    if not sys.stdin.isatty():
        raise InvalidArgument(
            "cannot ask for confirmation without a terminal; use --yes to delete, or --dry-run to look first"
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _report(queue: str, done: str, letters: Sequence[DeadLetter]) -> None:
    count = Counter(map(_subject, letters))
    parts = ", ".join(f"{number} {phrase}" for phrase, number in sorted(count.items()))
    say(f"{len(letters)} dead letters of queue {queue} {done}{f': {parts}' if parts else ''}")


def _look(connection: ConnectionOptions, queue: str, max_messages: int, code: str) -> DeadLetterPage:
    return with_client(
        connection, lambda client: client.list_dead_letters(queue, max_messages=max_messages, code=code)
    )


def _by_subject(letters: Iterable[DeadLetter]) -> dict[str, list[DeadLetter]]:
    groups: dict[str, list[DeadLetter]] = {}
    for letter in sorted(letters, key=lambda entry: (entry.reason, entry.code, entry.sent_at)):
        groups.setdefault(_subject(letter), []).append(letter)
    return groups


def _subject(letter: DeadLetter) -> str:
    """Return what a letter is about, with its code if it has one."""
    phrase = {
        "unspecified": "a reason that only a newer airunner knows",
        "unreadable": "unreadable body",
        "job_not_found": "job not found",
        "job_ended": "job already ended",
        "job_open": "job still open",
        "verdict": "work with a verdict",
        "no_verdict": "work without a verdict",
        "message": "message",
    }[letter.reason.name.lower()]
    return f"{phrase}: {letter.code}" if letter.code else phrase


def _group_to_json(letters: Sequence[DeadLetter]) -> dict[str, object]:
    from airunner.reading.instants import to_iso

    sent = [entry.sent_at for entry in letters]
    oldest, newest = to_iso(min(sent)), to_iso(max(sent))
    about = {"reason": letters[0].reason.name.lower(), "code": letters[0].code}
    return {**about, "messages": len(letters), "oldest_sent_at": oldest, "newest_sent_at": newest}


def _print_letters(queue: str, outcome: str, letters: Iterable[DeadLetter]) -> None:
    from airunner.cli.json_schema import dead_letter_to_json

    for letter in letters:
        print_json("dead_letter", {"queue": queue, "outcome": outcome, **dead_letter_to_json(letter)})
