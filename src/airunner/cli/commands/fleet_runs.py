"""`airunner fleet runs`: what housekeeping did lately."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from airunner.cli.fleet_text import print_runs, run_to_json
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import print_json
from airunner.cli.session import with_client


def runs(
    *,
    max_runs: Annotated[
        int, Parameter(name="--max", help="Maximum number of runs, up to 100. Default: 20")
    ] = 20,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """List the last housekeeping runs, newest first; --json also prints everything that they did."""
    found = with_client(connection, lambda client: client.list_housekeeping_runs(max_runs=max_runs))
    if as_json:
        for run in found:
            print_json("housekeeping_run", run_to_json(run))
    else:
        print_runs(found)
