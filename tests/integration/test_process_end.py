from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.worker.process.process import Process, ProcessExit, Stop
from tests.support.child_processes import (
    LIMIT_SECONDS,
    finish,
    nothing_left_behind,
    on_both_loops,
    start,
    wait_until_gone,
)

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
__all__ = ["nothing_left_behind"]

STUBBORN = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print(os.getpid(), flush=True)
while signal.sigwait({signal.SIGTERM}):
    print("asked to end", flush=True)
"""


@pytest.mark.parametrize("exit_code", [0, 1, 126, 127, 255])
@on_both_loops
async def test_the_exit_code_is_reported(exit_code: int) -> None:
    ended, _ = await finish("sh", "-c", f"exit {exit_code}", clock=ManualClock())
    assert ended == ProcessExit(exit_code=exit_code, signal=None, stopped=None, duration_ms=0)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL])
@on_both_loops
async def test_death_by_signal_is_reported_as_shells_do(number: signal.Signals) -> None:
    ended, _ = await finish("sh", "-c", f"ulimit -c 0; kill -{number.value} $$", clock=ManualClock())
    assert ended == ProcessExit(exit_code=128 + number, signal=number, stopped=None, duration_ms=0)


@on_both_loops
async def test_a_timeout_asks_the_process_to_end_and_kills_it_after_the_grace_period() -> None:
    clock = ManualClock()
    limits = {"timeout_seconds": 60, "grace_seconds": 5}
    process, received = await start(sys.executable, "-c", STUBBORN, clock=clock, **limits)
    await received.pid()
    clock.advance(60)
    await received.until(b"asked to end")
    clock.advance(4.999)
    assert not process._child.has_exited()
    clock.advance(0.001)
    ended = await process.wait()
    assert ended == ProcessExit(exit_code=137, signal=9, stopped=Stop.TIMEOUT, duration_ms=65_000)


@on_both_loops
async def test_stopping_reaches_the_whole_group_and_leaves_it_its_grace_period() -> None:
    clock = ManualClock()
    process, received = await start("sh", "-c", '"$0" -c "$1" & wait', sys.executable, STUBBORN, clock=clock)
    pid = await received.pid()
    process.stop(Stop.CANCELLED)
    process.stop(Stop.TIMEOUT)
    await received.until(b"asked to end")
    await asyncio.wait({process._child.exited})
    process.stop(Stop.CANCELLED)
    clock.advance(9)  # well over the wait for pipes
    os.kill(pid, signal.SIGTERM)
    await received.until(b"asked to end\nasked to end")
    clock.advance(1)
    ended = await process.wait()
    wait_until_gone(pid)
    assert (ended.exit_code, ended.signal, ended.stopped) == (143, 15, Stop.CANCELLED)


@pytest.mark.parametrize("step", [-3600, 3600])
@on_both_loops
async def test_a_clock_that_is_set_changes_no_wait_and_no_duration(step: int) -> None:
    clock = ManualClock()
    script = """setsid sh -c 'echo $$; printf "name? "; exec sleep 1000' & wait"""
    process, received = await start("sh", "-c", script, clock=clock, grace_seconds=5)
    left_behind = await received.pid()
    await until(lambda: clock.waiting > 0)
    clock.step(step)
    clock.advance(0.1)
    await received.until(b"name? ")
    process.stop(Stop.CANCELLED)
    clock.step(step)
    await asyncio.wait({process._child.exited})
    clock.advance(5)
    ended = await process.wait()
    os.kill(left_behind, signal.SIGKILL)
    assert (ended.stopped, ended.duration_ms, ended.output_complete) == (Stop.CANCELLED, 100, False)


@pytest.mark.parametrize("reasons", [(Stop.LOST,), (Stop.CANCELLED, Stop.LOST)])
@on_both_loops
async def test_a_lost_process_is_killed_at_once(reasons: tuple[Stop, ...]) -> None:
    process, received = await start(sys.executable, "-c", STUBBORN, clock=ManualClock())
    await received.pid()
    for reason in reasons:
        process.stop(reason)
    ended = await process.wait()
    assert ended == ProcessExit(exit_code=137, signal=9, stopped=reasons[0], duration_ms=0)


@on_both_loops
async def test_a_process_that_has_ended_by_itself_was_not_stopped() -> None:
    process, _ = await start("sh", "-c", "exit 7")
    wait_until_gone(process.pid)  # the event loop has had no turn to notice
    process.stop(Stop.TIMEOUT)
    ended = await process.wait()
    process.stop(Stop.LOST)
    assert (ended.exit_code, ended.stopped) == (7, None)
    assert await process.wait() == ended


@on_both_loops
async def test_a_process_left_behind_keeps_the_pipe_for_a_bounded_time_only() -> None:
    process, received = await start("sh", "-c", "sleep 1000 & echo $!; exit 3", pipe_wait_seconds=0.2)
    ended = await process.wait()
    wait_until_gone(await received.pid())
    assert (ended.exit_code, ended.stopped, ended.output_complete) == (3, None, False)


@on_both_loops
async def test_a_process_left_behind_without_a_pipe_is_killed_too() -> None:
    process, received = await start("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
    ended = await process.wait()
    wait_until_gone(await received.pid())
    assert ended.output_complete


@pytest.mark.parametrize("left_behind", [False, True])
@on_both_loops
async def test_what_was_written_before_the_exit_is_delivered_however_late(
    left_behind: bool, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    clock, gate, entered, taken = ManualClock(), asyncio.Event(), asyncio.Event(), bytearray()

    async def take(lines: list[bytes], is_stderr: bool) -> None:
        entered.set()
        await gate.wait()
        taken.extend(b"".join(lines))

    script = "echo first; cat go; head -c 60000 /dev/zero"
    if left_behind:
        script += "; sleep 1000 & echo $! >left"
    process, _ = await start("sh", "-c", script, on_output=take, clock=clock, working_directory=str(tmp_path))
    await entered.wait()
    await asyncio.to_thread((tmp_path / "go").write_bytes, b"")
    await asyncio.wait({process._child.exited})
    clock.advance(2)
    if left_behind:
        wait_until_gone(int((tmp_path / "left").read_text()))
    gate.set()
    ended = await process.wait()
    assert taken == b"first\n" + bytes(60000)
    assert ended.output_complete == (not left_behind)


@on_both_loops
async def test_a_flood_from_outside_the_group_does_not_hold_the_end_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "escaped")
    pid = bytearray()

    def take_slowly(lines: list[bytes], is_stderr: bool) -> None:
        if is_stderr:
            pid.extend(b"".join(lines))
        else:  # until there is more, so that the pipe is never found empty
            select.select([process._child.outputs[0]._descriptor], [], [])

    script = f"setsid sh -c 'echo $$ >{tmp_path}/escaped; exec yes' & cat {tmp_path}/escaped >&2"
    process, _ = await start("sh", "-c", script, on_output=take_slowly, pipe_wait_seconds=0.1)
    ended = await process.wait()
    assert (ended.exit_code, ended.output_complete) == (0, False)
    wait_until_gone(int(pid))  # its pipe has no reader any more


@on_both_loops
async def test_cancelling_the_wait_kills_the_group_and_reaps() -> None:
    stuck = asyncio.Event()

    async def take(lines: list[bytes], is_stderr: bool) -> None:
        stuck.set()
        await asyncio.Event().wait()

    script = "trap '' TERM; echo; sleep 1000 & wait"
    process, _ = await start("sh", "-c", script, on_output=take)
    waiting = asyncio.create_task(process.wait())
    await stuck.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


@on_both_loops
async def test_cancelling_the_wait_before_its_first_turn_reaps_too() -> None:
    process, _ = await start("sleep", "1000")
    waiting = asyncio.ensure_future(process.wait())
    process._supervisor.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await reaped(process)


async def reaped(process: Process) -> None:
    """Return once somebody has collected the leader."""
    await until(lambda: process._child._popen.returncode is not None, limit_seconds=LIMIT_SECONDS)


@on_both_loops
async def test_a_second_cancellation_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that changed its user cannot be signalled: the loop must not wait for it."""
    os.mkfifo(tmp_path / "gate")
    clock = ManualClock()
    script = "echo; read line <gate"
    process, received = await start("sh", "-c", script, clock=clock, working_directory=str(tmp_path))
    await received.until(b"\n")
    refuse_signals(monkeypatch)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    process._supervisor.cancel()
    await asyncio.sleep(0)
    process._supervisor.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not process._child.has_exited()
    with capture_logs() as logged:
        clock.advance(10)
    assert [(entry["event"], entry["pid"]) for entry in logged] == [("process.left_running", process.pid)]
    await asyncio.to_thread((tmp_path / "gate").write_bytes, b"")
    await reaped(process)


@pytest.mark.parametrize("cancelled", [False, True])
@on_both_loops
async def test_a_process_that_cannot_be_killed_is_let_go(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    clock = ManualClock()
    script = "echo; read line <gate"
    process, received = await start("sh", "-c", script, clock=clock, working_directory=str(tmp_path))
    await received.until(b"\n")
    refuse_signals(monkeypatch)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    with capture_logs() as logged:
        if cancelled:
            waiting.cancel()
        else:
            process.stop(Stop.LOST)
        await until(lambda: process._kill_sent)
        clock.advance(9.9)
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(0.1)
        await asyncio.sleep(0)
        clock.advance(2)  # for its pipes
        await asyncio.wait({waiting})
    assert [(entry["event"], entry["pid"]) for entry in logged] == [("process.left_running", process.pid)]
    if cancelled:
        assert waiting.cancelled()
    else:
        assert waiting.result() == ProcessExit(
            exit_code=137,
            signal=9,
            stopped=Stop.LOST,
            duration_ms=10_000,
            output_complete=False,
            left_running=True,
        )
    assert not process._child.has_exited()
    await asyncio.to_thread((tmp_path / "gate").write_bytes, b"")
    await reaped(process)


def refuse_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as the kernel does with signals for a group of another user."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refuse)


@pytest.mark.parametrize("stream", ["1", "2"])
@on_both_loops
async def test_an_error_of_the_consumer_kills_the_process_and_is_raised(stream: str) -> None:
    def refuse(lines: list[bytes], is_stderr: bool) -> None:
        raise LookupError("not wanted")

    process, _ = await start("sh", "-c", f"echo output >&{stream}; sleep 1000", on_output=refuse)
    with pytest.raises(LookupError, match="not wanted"):
        await process.wait()


@on_both_loops
async def test_the_exit_is_noticed_where_pidfd_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(pid: int) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    ended, received = await finish("sh", "-c", "echo out; exit 5")
    assert (ended.exit_code, received.stdout) == (5, b"out\n")


PARENT = """
import asyncio
from airunner.domain.clock import SystemClock
from airunner.worker.process.process import Process, ProcessSpec

async def main():
    spec = ProcessSpec(command="/bin/sleep", args=("1000",), environment={})
    process = await Process.start(spec, on_output=print, clock=SystemClock())
    print(process.pid, flush=True)
    await process.wait()

asyncio.run(main())
"""


def test_killing_the_worker_takes_the_process_along() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        parent.kill()
    wait_until_gone(pid)
