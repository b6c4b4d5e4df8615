"""`airunner why`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airunner.cli.options import ANY_SERVER, AsJson, Connection, JobId
from airunner.cli.printing import one_line, print_json
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.cli.answers import Answer
    from airunner.cli.timeline import Entry


def why(job_id: JobId, /, *, connection: Connection = ANY_SERVER, as_json: AsJson = False) -> None:
    """Tell why a job is where it is: everything that happened to it, and one sentence at the end."""
    from airunner.cli.answers import answer
    from airunner.cli.documents import why_document
    from airunner.cli.evidence import gather
    from airunner.cli.timeline import tell
    from airunner.domain.clock import SystemClock

    evidence = with_client(connection, lambda client: gather(client, job_id, SystemClock()))
    entries, closing = tell(evidence), answer(evidence)
    if as_json:
        print_json("why", why_document(evidence.job, entries, closing))
    else:
        _print_for_people(entries, closing)


def _print_for_people(entries: Sequence[Entry], closing: Answer) -> None:
    from airunner.cli.instants import to_iso

    terminal = sys.stdout.isatty()
    for entry in entries:
        time = to_iso(entry.at)
        print(f"{time:24}  {one_line(entry.text)}" if terminal else f"{time}\t{one_line(entry.text)}")
    print(one_line(closing.text))
