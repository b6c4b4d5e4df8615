"""`airunner fleet report`: what the pools have, and what they cost."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from airunner.cli.fleet_text import audit_to_json, print_report
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import print_json
from airunner.cli.session import with_client


def report(
    *,
    audits: Annotated[int, Parameter(help="Number of audits in the chart, up to 168. Default: 24")] = 24,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show the last audit of the pools, and a chart of their use over time.

    A cost is "unknown" if the price of an instance is not listed, or if there was no previous audit.
    """
    found = with_client(connection, lambda client: client.get_pool_report(max_audits=audits))
    if as_json:
        for entry in (entry for audit in found.audits for entry in audit):
            print_json("pool_audit", audit_to_json(entry))
    else:
        print_report(found)
