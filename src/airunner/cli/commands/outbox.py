"""`airunner outbox`: work that applications enqueue in their own transactions, and its way to a queue."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from cyclopts import App, Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.metrics import collected_metrics, relay_instruments, served_probes
from airunner.cli.options import DEFAULT_DATABASE, AsJson, DatabaseOptions, LogFormat, LogLevel, MetricsListen
from airunner.cli.printing import announce, moment, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.config import Settings
    from airunner.outbox.table import OutboxTable

T = TypeVar("T")

outbox = App(name="outbox", help="Send what applications enqueue in their PostgreSQL transactions.")

_MIGRATION_SECONDS: Final = 600.0


RowId = Annotated[str, Parameter(help="Ids of rows.")]


@outbox.command
def migrate(
    *,
    sql: Annotated[bool, Parameter(help="Print the SQL for an empty schema, and change nothing.")] = False,
    app_role: Annotated[
        tuple[str, ...], Parameter(help="Role that may enqueue under its own name. Repeatable.")
    ] = (),
    server_role: Annotated[
        tuple[str, ...],
        Parameter(help="Role of servers, relays and workers, if it is not the owner. Repeatable."),
    ] = (),
    database: DatabaseOptions = DEFAULT_DATABASE,
) -> None:
    """Create or update the schema of the outbox. It may be run repeatedly."""
    from airunner.outbox.schema import migrate_outbox, outbox_sql
    from airunner.outbox.start import open_database

    settings = database.load()
    schema = settings.postgres.schema
    if sql:
        print(outbox_sql(schema, app_roles=app_role, server_roles=server_role), end="")
        return

    async def apply() -> int:
        async with open_database(settings, statement_seconds=_MIGRATION_SECONDS) as opened:
            return len(await migrate_outbox(opened, schema, app_roles=app_role, server_roles=server_role))

    taken = asyncio.run(apply())
    say(f"schema {schema} is up to date{f'; steps taken: {taken}' if taken else ''}")


@outbox.command
def relay(
    *,
    sink: Annotated[str | None, Parameter(help="sqs or jobs. Default: sqs")] = None,
    handlers: Annotated[
        tuple[str, ...],
        Parameter(help="Handlers whose hooks end lost generation work. Repeatable. Default: none"),
    ] = (),
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database: DatabaseOptions = DEFAULT_DATABASE,
) -> None:
    """Send rows of the outbox until SIGTERM or SIGINT. Any number of relays may run.

    The first signal drains: the relay claims nothing more, and finishes what it is sending. A second signal
    ends it at once; other relays send what it held, possibly again.
    """
    from airunner import telemetry
    from airunner.cli.event_loop import run_on_uvloop
    from airunner.config import check_handler_origins, process_environment

    loaded = database.load_with_origins({
        "outbox.sink": sink,
        "generation.handlers": ",".join(handlers) if handlers else None,
        "outbox.metrics_listen": metrics_listen,
        "log_level": log_level,
        "log_format": log_format,
    })  # fmt: skip
    check_handler_origins(loaded)
    settings = loaded.settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    is_measured = settings.outbox.metrics_listen or telemetry.otlp_is_wanted(process_environment())
    with collected_metrics("airunner-outbox", relay_instruments(settings)) if is_measured else nullcontext():
        run_on_uvloop(_relay(settings))


@outbox.command
def status(*, database: DatabaseOptions = DEFAULT_DATABASE, as_json: AsJson = False) -> None:
    """Count the rows that wait, are parked, or were sent but have no verdict yet."""
    from dataclasses import asdict

    found = _ask(database, lambda table: table.status())
    if as_json:
        print_json("outbox", asdict(found))
        return
    row = (found.pending, found.parked, found.open, f"{found.oldest_due_seconds:.0f} s", found.relays_waiting)
    print_table(("pending", "parked", "open", "oldest due", "relays waiting"), [tuple(map(str, row))])


@outbox.command
def parked(
    *,
    max_rows: Annotated[int, Parameter(name="--max", help="Maximum number of rows. Default: 100")] = 100,
    database: DatabaseOptions = DEFAULT_DATABASE,
    as_json: AsJson = False,
) -> None:
    """List rows that could not be sent, oldest first, and why."""
    from dataclasses import asdict

    from airunner.reading.instants import to_iso

    rows = _ask(database, lambda table: table.parked(max_rows))
    if as_json:
        for row in rows:
            print_json("parked_row", {**asdict(row), "created_at": to_iso(row.created_at)})
        return
    print_table(
        ("id", "queue", "name", "attempts", "created", "reason"),
        [
            (row.row_id, row.queue, row.name, str(row.attempts), moment(row.created_at), row.reason)
            for row in rows
        ],
    )


@outbox.command
def retry(
    *ids: RowId,
    every: Annotated[bool, Parameter(name="--all", help="Send all parked rows.")] = False,
    database: DatabaseOptions = DEFAULT_DATABASE,
) -> int:
    """Send parked rows again, with their full number of attempts."""
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.limits import check_uuid

    if bool(ids) == every:
        raise InvalidArgument("give the ids of rows, or --all")
    wanted = None if every else [check_uuid(entry, "id") for entry in ids]
    taken = _ask(database, lambda table: table.retry(wanted))
    say(f"{len(taken)} rows will be sent again")
    for missing in sorted(set(wanted or ()) - set(taken)):
        say(f"there is no parked row {missing}")
    return ExitCode.OK if wanted is None or len(taken) == len(set(wanted)) else ExitCode.NOT_FOUND


@outbox.command
def rerun(
    row_id: Annotated[str, Parameter(help="Id of a row or session.")],
    /,
    *,
    database: DatabaseOptions = DEFAULT_DATABASE,
) -> int:
    """Repeat the work of a row under a new id, and print that id. The effects of the first run stay.

    Records that the application itself keeps for each id, such as a reservation or a payment, are not copied:
    its handler creates them for an id that has none, or the work is free. Run again, the command prints the
    same id and enqueues nothing; to do the work a third time, rerun the new id.
    """
    from airunner.domain.limits import check_uuid

    wanted = check_uuid(row_id, "id")
    found = _ask(database, lambda table: table.rerun(wanted))
    if found is None:
        say(f"there is no row {wanted}")
        return ExitCode.NOT_FOUND
    print(found.row_id)
    if found.is_new:
        say("the handler must create your application's own records for the new id, such as a reservation")
    else:
        say(
            "this work was already repeated under this id, so nothing is enqueued; "
            "to repeat it once more, 'rerun' that id"
        )
    return ExitCode.OK


def _ask(options: DatabaseOptions, question: Callable[[OutboxTable], Awaitable[T]]) -> T:
    """Ask the outbox something, and return its answer."""
    from airunner.outbox.schema import check_outbox
    from airunner.outbox.start import open_database
    from airunner.outbox.table import OutboxTable

    settings = options.load()

    async def ask() -> T:
        async with open_database(settings) as database:
            await check_outbox(database, settings.postgres.schema)
            return await question(OutboxTable(database, settings.postgres.schema))

    return asyncio.run(ask())


async def _relay(settings: Settings) -> None:
    from airunner.app import build_outbox_relay
    from airunner.cli.signals import on_shutdown_signals

    relay = build_outbox_relay(settings)
    running = asyncio.create_task(relay.run())
    draining: list[asyncio.Task[None]] = []
    on_shutdown_signals(lambda: draining.append(asyncio.create_task(relay.stop())), running.cancel)
    async with served_probes("outbox", settings.outbox.metrics_listen, lambda: relay.state):
        announce(f"airunner outbox relay sends to {settings.outbox.sink}")
        try:
            await running
        except asyncio.CancelledError:
            say("the relay ended at once, without draining")
    await asyncio.gather(*draining)
