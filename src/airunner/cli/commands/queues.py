"""`airunner queues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import moment, print_json, print_table, say
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from airunner.domain.answers import QueueStats

queues = App(name="queues", help="List queues, pause and resume them.")

QueueName = Annotated[str, Parameter(help="The name of the queue.")]


@queues.default
def list_queues(*, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> None:
    """List the queues that were used, or pause or resume one."""
    from airunner.cli.json_schema import queue_to_json

    found = with_client(connection, lambda client: client.list_queues())
    if as_json:
        for queue in found:
            print_json("queue", queue_to_json(queue))
        return
    rows = [
        (
            queue.name,
            _state(queue),
            str(queue.scheduled),
            str(queue.running),
            moment(queue.oldest_scheduled_at),
        )
        for queue in found
    ]
    print_table(("queue", "state", "scheduled", "running", "oldest scheduled"), rows)


def _state(queue: QueueStats) -> str:
    if not queue.paused:
        return "open"
    return f"paused by {queue.paused_by}" if queue.paused_by else "paused"


@queues.command
def pause(name: QueueName, /, *, connection: ConnectionOptions = ANY_SERVER) -> None:
    """Stop workers from taking jobs of a queue. Jobs can still be added, and running jobs go on."""
    with_client(connection, lambda client: client.set_paused(name, paused=True))
    say(f"queue {name} is paused")


@queues.command
def resume(name: QueueName, /, *, connection: ConnectionOptions = ANY_SERVER) -> None:
    """Let workers take jobs of a queue again."""
    with_client(connection, lambda client: client.set_paused(name, paused=False))
    say(f"queue {name} is open")
