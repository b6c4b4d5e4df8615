"""What a power failure leaves: the order of a real server's system calls, as strace sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from airunner.client import CompleteRequest
from airunner.domain.job import JobParams
from airunner.testing.factories import make_line, make_success
from tests.support.processes import Stack
from tests.support.programs import program

CALLS = "trace=pwrite64,fsync,fdatasync,write,writev,sendto,sendmsg"
LOG = "/airunner.db-wal"
ANSWER = '"HTTP/1.1 200 '
ANSWERS = 4
# A call as a line of the trace tells it, or its end where another thread's call came in between.
CALL = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\(\d+<(?P<path>[^>]*)>(?P<rest>.*)")
RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>")


async def test_what_is_acknowledged_was_synced_before(stack: Stack) -> None:
    (strace,) = program("strace")
    trace = stack.folder / "trace"
    # As a grandchild, so that the process we know is the server's.
    through = (strace, "-D", "-f", "-y", "-e", CALLS, "-e", "signal=none", "-o", str(trace))
    server = await stack.start_server(through=through)
    async with stack.client() as client:
        await client.enqueue(JobParams(command="true"))
        (held,) = await client.dequeue()
        await client.publish_events(held.task_token, [make_line(1)])
        await client.complete(CompleteRequest(task_token=held.task_token, result=make_success()))
    await server.kill()
    steps = list(steps_of(trace))
    assert steps.count("answered") == ANSWERS
    assert steps.count("synced") >= ANSWERS
    # Each of these calls writes, and none is answered while what it wrote may be lost.
    unsynced = False
    for before, step in zip(["", *steps], steps, strict=False):
        if step == "answered":
            assert (before, unsynced) == ("synced", False)
        unsynced = step == "written" or (unsynced and step != "synced")


def steps_of(trace: Path) -> Iterator[str]:
    """Yield what happened to the store's log, and when an answer began."""
    unfinished: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        if resumed := RESUMED.match(line):
            if step := unfinished.pop(resumed["thread"], ""):
                yield step
        elif (call := CALL.match(line)) and (step := step_of(call)):
            # A sync counts from its end on, an answer and a write from their beginning.
            if step == "synced" and call["rest"].endswith("<unfinished ...>"):
                unfinished[call["thread"]] = step
            else:
                yield step


def step_of(call: re.Match[str]) -> str:
    if call["path"].endswith(LOG):
        return "synced" if "sync" in call["name"] else "written"
    return "answered" if ANSWER in call["rest"] and call["path"].startswith(("socket:", "TCP:")) else ""
