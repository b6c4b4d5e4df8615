"""`airunner diag`: whether everything works together, shown by sending something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.json_schema import diagnosis_to_json
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import one_line, print_json, print_table, say

if TYPE_CHECKING:
    from airunner.generation.diagnosis.hops import Diagnosis, Hop

diag = App(name="diag", help="Send a test item through all parts, and find the part that does not work.")


@diag.command
def queue(
    *,
    timeout: Annotated[float, Parameter(help="Seconds that the item may take in total. Default: 60")] = 60.0,
    schema: Annotated[str | None, Parameter(help="Schema of the outbox. Default: airunner")] = None,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> int:
    """Send a real item through server, outbox, relay, queue, worker, NOTIFY and SSE, and time each hop.

    It needs INTEGRATION_TEST_USER_ID, the application's database (DATABASE_URL), and a server that offers
    generations (--server, else INTEGRATION_BASE_URL). If a hop is broken, it exits with 1, names the hop and
    says what to check.
    """
    from airunner.domain.clock import SystemClock
    from airunner.generation.diagnosis.run import diagnose_queue

    flags = {"postgres.schema": schema, "diag.base_url": connection.server}
    settings = connection.load_with_origins(flags, is_diag=True).settings
    found = asyncio.run(diagnose_queue(settings, SystemClock(), timeout_seconds=timeout))
    if as_json:
        print_json("diagnosis", diagnosis_to_json(found))
    else:
        print_table(("hop", "state", "time", "what"), [_row(hop) for hop in found.hops])
    _conclude(found)
    return ExitCode.FAILED if found.broken else ExitCode.OK


def _row(hop: Hop) -> tuple[str, str, str, str]:
    time = "" if hop.seconds is None else f"{hop.seconds * 1000:.1f} ms"
    return hop.name.value, "ok" if hop.is_ok else "broken", time, hop.text


def _conclude(found: Diagnosis) -> None:
    if found.broken:
        say(f"{found.broken.name.value} is broken: {one_line(found.broken.text)}")
    else:
        say(f"all hops work; the item was {found.session_id}")
