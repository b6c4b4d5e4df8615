"""How the events of a job are shown: to people, to pipes, or as JSON."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airunner.cli.printing import hint, print_json, say
from airunner.cli.screen.output_streams import OutputStream, open_output_stream
from airunner.cli.screen.terminal import StatusLine, can_redraw
from airunner.domain.event import (
    Event,
    Gap,
    Output,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    Progress,
    StreamType,
)
from airunner.reading.instants import format_duration

if TYPE_CHECKING:
    from airunner.client import ConnectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """How somebody wants to see events."""

    raw: bool = False
    timestamps: bool = False
    as_json: bool = False


class EventView(Protocol):
    """Takes the events of one job in order."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def tick(self, now: int) -> None:
        """Let time pass; called a few times a second."""

    def connection_changed(self, state: ConnectionState, reason: str) -> None:
        """Take news of the connection: it was lost, or it was made again."""

    def mode_changed(self, mode: str) -> None:
        """Take the new mode of a playback: paused, or at a speed."""

    def played_to(self, offset: int) -> None:
        """Take how far a playback is, in milliseconds from the beginning of the recording."""

    def jumped(self, to: str) -> None:
        """Take note that a playback goes on elsewhere; the next event does not continue the last one."""

    def finish(self) -> None:
        """Show what was held back, and leave the terminal as it was."""


def open_view(job_id: str, options: ViewOptions, last_sequence: int = 0) -> EventView:
    """Return the view for the streams of this process; `last_sequence` is the number of events, if known."""
    if options.as_json:
        return JsonView(job_id)
    out = open_output_stream(sys.stdout, is_error=False, raw=options.raw, timestamps=options.timestamps)
    err = open_output_stream(sys.stderr, is_error=True, raw=options.raw, timestamps=options.timestamps)
    both = not options.raw and can_redraw(sys.stdout) and can_redraw(sys.stderr)
    return PeopleView(out, err, StatusLine(sys.stderr, enabled=both), last_sequence)


class JsonView:
    """Each event as one line of JSON."""

    def __init__(self, job_id: str) -> None:
        from airunner.cli.json_schema import event_to_json

        self._job_id = job_id
        self._to_json = event_to_json

    def show(self, event: Event) -> None:
        """Print the event."""
        print_json("event", self._to_json(self._job_id, event))

    def tick(self, now: int) -> None:
        """Nothing moves."""

    def connection_changed(self, state: ConnectionState, reason: str) -> None:
        """Say that the stream is interrupted."""
        say_connection(state, reason)

    def mode_changed(self, mode: str) -> None:
        """Objects have no pace."""

    def played_to(self, offset: int) -> None:
        """Each object has its own time."""

    def jumped(self, to: str) -> None:
        """Say where it goes on."""
        hint(f"at {to}")

    def finish(self) -> None:
        """Nothing is held back."""


class PeopleView:
    """Output to its stream; remarks and a status line only where there is a terminal."""

    def __init__(
        self, out: OutputStream, err: OutputStream, status: StatusLine, last_sequence: int = 0
    ) -> None:
        self._streams = {StreamType.STDOUT: out, StreamType.STDERR: err}
        self._status = status
        self._of = last_sequence
        self._replay = bool(last_sequence)
        self._sequence = 0
        self._first_at = 0
        self._last_at = 0
        self._offset: int | None = None
        self._mode = ""

    def show(self, event: Event) -> None:
        """Show output as it is, and anything else as a remark."""
        self._sequence = event.last_sequence
        self._first_at = self._first_at or event.timestamp
        self._last_at = event.timestamp
        self._status.clear()
        if isinstance(event.data, Output):
            self._streams[event.data.stream].write(event.data.output, event.timestamp)
            return
        if isinstance(event.data, ProcessEnd):
            self._of = event.sequence
        remark(event)

    def tick(self, now: int) -> None:
        """Draw the status line, unless a line of output is not finished yet."""
        if self._status.enabled and all(stream.at_line_start for stream in self._streams.values()):
            elapsed = (self._last_at if self._replay else now) - (self._first_at or now)
            if self._offset is not None:
                elapsed = self._offset
            of = f" of {self._of}" if self._of else ""
            mode = f", {self._mode}" if self._mode else ""
            self._status.draw(f"event {self._sequence}{of}, {format_duration(elapsed)}{mode}")

    def connection_changed(self, state: ConnectionState, reason: str) -> None:
        """Say that the stream is interrupted."""
        self._status.clear()
        say_connection(state, reason)

    def mode_changed(self, mode: str) -> None:
        """Show it in the status line."""
        self._mode = mode

    def played_to(self, offset: int) -> None:
        """Show it in the status line."""
        self._offset = offset

    def jumped(self, to: str) -> None:
        """Begin a new line, and say where it goes on."""
        self.finish()
        hint(f"at {to}")

    def finish(self) -> None:
        """Show what was held back."""
        self._status.clear()
        for stream in self._streams.values():
            stream.finish()


def remark(event: Event, who: str = "") -> None:
    """Say what an event means that is not output: what is bad to everybody, the rest at a terminal."""
    match event.data:
        case ProcessStart(pid=pid):
            hint(f"{who}attempt {event.attempt} started, pid {pid}")
        case ProcessEnd(exit_code=code, run_duration_ms=duration):
            hint(
                f"{who}attempt {event.attempt} ended with exit code {code} after {format_duration(duration)}"
            )
        case ProcessError(error_message=message):
            say(f"{who}{message}")
        case Gap() as gap:
            say_gap(gap, who)
        case Progress(done=done, total=total, message=message):
            hint(f"{who}{done}/{total} {message}")
        case _:
            pass


def say_gap(gap: Gap, who: str = "") -> None:
    """Say which events are lost."""
    say(f"{who}events {gap.first_sequence} to {gap.last_sequence} are lost: {gap.reason}")


def say_connection(state: ConnectionState, reason: str, who: str = "") -> None:
    """Say that a stream is interrupted, at a terminal."""
    if state == "reconnecting":
        hint(f"{who}reconnecting… ({reason})")
