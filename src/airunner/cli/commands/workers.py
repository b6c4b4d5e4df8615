"""`airunner workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import moment, print_json, print_table
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from airunner.domain.answers import WorkerSeen


def workers(*, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> None:
    """List the workers that the server has heard from recently."""
    from airunner.cli.json_schema import worker_to_json

    found = with_client(connection, lambda client: client.list_workers())
    if as_json:
        for worker in found:
            print_json("worker", worker_to_json(worker))
        return
    rows = [
        (
            worker.worker_id,
            worker.instance_id,
            ",".join(worker.queues),
            _abilities(worker),
            moment(worker.last_seen_at),
            ",".join(worker.job_ids),
        )
        for worker in found
    ]
    print_table(("worker", "instance", "queues", "can do", "last seen", "jobs"), rows)


def _abilities(worker: WorkerSeen) -> str:
    """Return what a worker can do: commands, and the names of its handlers."""
    if worker.abilities is None:
        return "everything"
    more = [f"{worker.more_handlers} more"] if worker.more_handlers else []
    return ",".join([*(["commands"] if worker.abilities.commands else []), *worker.abilities.handlers, *more])
