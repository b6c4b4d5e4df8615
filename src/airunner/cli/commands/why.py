"""`airunner why`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import one_line, print_json
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.reading.why.explain import Explanation
    from airunner.reading.why.timeline import TimelineEntry


def why(job_id: JobId, /, *, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> None:
    """Explain why a job is in its current state: everything that happened to it, and one sentence."""
    from airunner.cli.json_schema import why_to_json
    from airunner.domain.clock import SystemClock
    from airunner.reading.why.explain import explain
    from airunner.reading.why.facts import gather_facts
    from airunner.reading.why.timeline import build_timeline

    facts = with_client(connection, lambda client: gather_facts(client, client, job_id, SystemClock()))
    entries, explanation = build_timeline(facts), explain(facts)
    if as_json:
        print_json("why", why_to_json(facts.job, entries, explanation))
    else:
        _print_for_people(entries, explanation)


def _print_for_people(entries: Sequence[TimelineEntry], explanation: Explanation) -> None:
    from airunner.reading.instants import to_iso

    terminal = sys.stdout.isatty()
    for entry in entries:
        time = to_iso(entry.at)
        print(f"{time:24}  {one_line(entry.text)}" if terminal else f"{time}\t{one_line(entry.text)}")
    print(one_line(explanation.text))
