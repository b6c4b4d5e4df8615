"""What a handler process tells its worker: each message whole, and nothing of a call behind its end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from airunner.handlers import Context, PermanentFailure
from airunner.handlers.calls import HandlerCall
from airunner.handlers.registry import Registry
from airunner.worker.handlers import child
from airunner.worker.handlers.child import WorkerConnection, WorkerOutput
from airunner.worker.handlers.frames import encode, receive

LIMIT_SECONDS = 20


class WorkerEnd:
    """The worker's end of a connection, which reads when all is over, and the process's."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self.connection = WorkerConnection(self.theirs)

    def do(self, function: Callable[..., Any]) -> None:
        """Have a call done."""
        registry, output = Registry(), WorkerOutput(self.connection)
        registry.add("it", function, "here")
        context = Context(job_id="job", queue="q", attempt=1, output=output)
        self.connection.do(HandlerCall(None, registry["it"], "", output=output, context=context))

    def heard(self) -> list[list[Any]]:
        self.theirs.shutdown(socket.SHUT_WR)
        return list(receive(self._ours))

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


@pytest.fixture
def worker() -> Iterator[WorkerEnd]:
    end = WorkerEnd()
    yield end
    end.close()


@pytest.mark.parametrize(
    "say",
    [
        lambda ctx: ctx.log("late"),
        lambda ctx: ctx.progress(1, 2, "late"),
        lambda ctx: ctx.output.flush(),
    ],
    ids=["log", "progress", "flush"],
)
def test_what_a_thread_is_about_to_say_when_its_call_ends_is_not_said(
    worker: WorkerEnd, monkeypatch: pytest.MonkeyPatch, say: Callable[[Context], None]
) -> None:
    saying, may_say = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def encode_slowly(*message: object) -> bytes:
        if threading.current_thread() in threads:
            saying.set()
            may_say.wait(LIMIT_SECONDS)
        return encode(*message)

    def leave_a_thread(ctx: Context) -> None:
        threads.append(threading.Thread(target=say, args=(ctx,), daemon=True))
        threads[0].start()
        assert saying.wait(LIMIT_SECONDS)

    monkeypatch.setattr(child, "encode", encode_slowly)
    worker.do(leave_a_thread)
    may_say.set()
    threads[0].join(LIMIT_SECONDS)
    worker.do(lambda: None)
    assert worker.heard() == [["begun"], ["returned", ""], ["begun"], ["returned", ""]]


class InterruptedSocket:
    """A socket that sends in halves, and between them does what the garbage collector might do there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.collect: Callable[[], None] | None = None

    def sendall(self, frame: bytes) -> None:
        collect, self.collect = self.collect, None
        self._connection.sendall(frame[:3])
        if collect:
            collect()
        self._connection.sendall(frame[3:])


def test_what_is_printed_in_the_midst_of_a_message_goes_behind_it(worker: WorkerEnd) -> None:
    interrupted = InterruptedSocket(worker.theirs)
    worker.connection = WorkerConnection(cast("socket.socket", interrupted))

    def talk(ctx: Context) -> None:
        interrupted.collect = lambda: ctx.log("freed")
        ctx.log("said")

    # In a thread: one that waited for itself would wait for ever.
    thread = threading.Thread(target=worker.do, args=(talk,), daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()
    said = [["output", "said\n", False], ["output", "freed\n", False]]
    assert worker.heard() == [["begun"], *said, ["returned", ""]]


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no text for this")


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (lambda: PermanentFailure(404, "no user 7"), ["404", "no user 7"]),  # type: ignore[arg-type]  # that is the point
        (lambda: PermanentFailure("mute", Unshowable()), ["mute", ""]),  # type: ignore[arg-type]  # that too
    ],
    ids=["number", "unshowable"],
)
def test_a_permanent_failure_is_one_whatever_it_is_made_of(
    worker: WorkerEnd, failure: Callable[[], Exception], told: list[str]
) -> None:
    def fail() -> None:
        raise failure()

    worker.do(fail)
    assert worker.heard() == [["begun"], ["permanent", *told]]
