"""`airunner logs`."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from airunner.cli.exit_codes import ExitCode
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import print_json
from airunner.cli.session import SOON_ROUNDS, with_clients

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from airunner.cli.screen.output_streams import OutputStream
    from airunner.client import AsyncClient
    from airunner.reading.log_lines import LineFilter, LogLine


def logs(
    job_id: JobId,
    /,
    *,
    grep: Annotated[
        str | None, Parameter(help="Print only lines in which this Python regular expression is found.")
    ] = None,
    ignore_case: Annotated[bool, Parameter(help="Let --grep ignore upper and lower case.")] = False,
    invert: Annotated[bool, Parameter(help="Print only lines in which --grep finds nothing.")] = False,
    stream: Annotated[
        Literal["stdout", "stderr"] | None, Parameter(help="Print only the output of this stream.")
    ] = None,
    attempt: Annotated[int, Parameter(help="Print only this attempt.")] = 0,
    tail: Annotated[int | None, Parameter(help="Print only the last N of these lines.")] = None,
    timestamps: Annotated[bool, Parameter(help="Print the time before each line.")] = False,
    as_json: AsJson = False,
    connection: ConnectionOptions = ANY_SERVER,
) -> int:
    """Print the stored output of a job, both streams in order, and exit.

    Everything goes to standard output. With --grep, the exit code is 1 if no line matches.
    """
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.event import StreamType
    from airunner.reading.log_lines import LineFilter

    if grep is None and (ignore_case or invert):
        raise InvalidArgument("--ignore-case and --invert need --grep")
    if tail is not None and tail < 1:
        raise InvalidArgument(f"--tail must be at least 1, not {tail}")
    try:
        chosen = LineFilter(
            grep,
            ignore_case=ignore_case,
            invert=invert,
            stream=StreamType[stream.upper()] if stream else None,
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"--grep: {error.text}") from None
    printer = _JsonPrinter(job_id) if as_json else _LinePrinter(chosen, timestamps=timestamps)
    is_plain = not (as_json or timestamps or tail or stream) and grep is None

    async def work(quick_client: AsyncClient, client: AsyncClient) -> int:
        if is_plain and isinstance(printer, _LinePrinter) and not sys.stdout.isatty():
            await _copy(client, job_id, attempt, printer)
            return 0
        printed = 0
        async with aclosing(_chosen_lines(quick_client, client, job_id, attempt, tail, chosen)) as lines:
            async for line in lines:
                printer.show(line)
                printed += 1
        return printed

    try:
        printed = with_clients(connection, work)
    finally:
        printer.finish()
    return ExitCode.FAILED if grep is not None and not printed else ExitCode.OK


async def _copy(client: AsyncClient, job_id: str, attempt: int, printer: _LinePrinter) -> None:
    """Write everything, whole batches at once where they consist of whole lines."""
    from airunner.cli.screen.event_view import say_gap
    from airunner.reading.log_lines import LineAssembly
    from airunner.reading.log_tail import feed, output_request

    assembly = LineAssembly()
    output = client.stream_output(output_request(job_id, attempt), first_rounds=SOON_ROUNDS)
    async with aclosing(output):
        async for piece in output:
            if isinstance(piece, bytes):
                printer.copy(piece)
                continue
            for event in piece:
                for line in feed(assembly, event, say_gap):
                    printer.show(line)
    for line in assembly.finish():
        printer.show(line)


async def _chosen_lines(
    quick_client: AsyncClient,
    client: AsyncClient,
    job_id: str,
    attempt: int,
    tail: int | None,
    chosen: LineFilter,
) -> AsyncGenerator[LogLine, None]:
    from airunner.cli.screen.event_view import say_gap
    from airunner.reading.log_tail import output_request, read_last_lines, read_lines

    if tail:
        job = await quick_client.get_job(job_id, abridge=True)
        last = await read_last_lines(client, job, tail, attempt=attempt, wants=chosen.wants, on_gap=say_gap)
        for line in last:
            yield line
        return
    events = client.stream_events(output_request(job_id, attempt), first_rounds=SOON_ROUNDS)
    async with aclosing(read_lines(events, on_gap=say_gap)) as lines:
        async for line in lines:
            if chosen.wants(line):
                yield line


class _JsonPrinter:
    """Each line as one object."""

    def __init__(self, job_id: str) -> None:
        from airunner.cli.json_schema import line_to_json

        self._job_id = job_id
        self._to_json = line_to_json

    def show(self, line: LogLine) -> None:
        print_json("line", self._to_json(self._job_id, line))

    def finish(self) -> None:
        """Nothing is held back."""


class _LinePrinter:
    """Lines on standard output: every byte in a pipe, safe text with the matches marked on a terminal."""

    def __init__(self, chosen: LineFilter, *, timestamps: bool) -> None:
        from airunner.cli.screen.output_streams import open_output_stream
        from airunner.cli.screen.terminal import MARK_BEGIN, MARK_END, wants_colours
        from airunner.domain.event import StreamType

        marks = wants_colours(sys.stdout)
        self._content = (
            (lambda line: chosen.mark(line, MARK_BEGIN, MARK_END)) if marks else (lambda line: line.content)
        )
        self._streams = {
            stream: open_output_stream(
                sys.stdout, is_error=stream is StreamType.STDERR, raw=False, timestamps=timestamps
            )
            for stream in StreamType
        }
        self._last: OutputStream | None = None

    def show(self, line: LogLine) -> None:
        stream, last = self._streams[line.stream], self._last
        if last and not last.at_line_start and (line.starts or last is not stream):
            last.write(b"\n", line.timestamp)
        stream.write(self._content(line), line.timestamp)
        self._last = stream

    def copy(self, lines: bytes) -> None:
        """Write whole lines as they are, of whichever stream."""
        stream = self._last = self._last or next(iter(self._streams.values()))
        stream.write(lines if stream.at_line_start else b"\n" + lines, 0)

    def finish(self) -> None:
        if self._last:
            self._last.finish()
