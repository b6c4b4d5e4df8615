from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from airunner.domain.clock import SystemClock
from airunner.domain.lines import MAX_LINE_BYTES
from airunner.worker.process.process import CouldNotStart, Process, ProcessSpec
from tests.support.child_processes import (
    PATH,
    Received,
    children,
    finish,
    nothing_left_behind,
    on_both_loops,
    start,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
__all__ = ["nothing_left_behind"]

OUTPUTS = {
    "nothing": b"",
    "no newline": b"no newline",
    "empty lines": b"\n\n\n",
    "binary": random.Random(1).randbytes(500_000),
    "one line of 5 MB": b"x" * 5_000_000 + b"\n",
    "exactly full pieces": b"y" * MAX_LINE_BYTES * 3,
    "progress bar": b"".join(b"\r%3d %%" % percent for percent in range(101)) + b"\r\n",
    "many lines": b"".join(b"line %d\n" % number for number in range(200_000)),
}

# The C library keeps two signals for itself; nobody else can set how they are taken.
SETTABLE = sum(1 << (number - 1) for number in signal.valid_signals())


@pytest.mark.parametrize("written", OUTPUTS.values(), ids=OUTPUTS)
@on_both_loops
async def test_output_arrives_byte_by_byte_in_lines(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(written)
    ended, received = await finish("cat", str(tmp_path / "written"))
    assert ended.exit_code == 0
    assert ended.output_complete
    assert received.stdout == written
    assert received.stderr == b""
    pieces = [line for lines, _ in received.calls for line in lines]
    assert all(len(piece) <= MAX_LINE_BYTES and b"\n" not in piece[:-1] for piece in pieces)


@on_both_loops
async def test_standard_error_is_told_apart() -> None:
    script = "import os\nfor n in range(3000): os.write(1, b'out %d\\n' % n); os.write(2, b'err %d\\n' % n)"
    _, received = await finish(sys.executable, "-c", script)
    assert received.stdout == b"".join(b"out %d\n" % number for number in range(3000))
    assert received.stderr == b"".join(b"err %d\n" % number for number in range(3000))


@on_both_loops
async def test_an_unfinished_line_is_shown_while_the_process_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "answer")
    process, received = await start("sh", "-c", f"printf 'name? '; cat {tmp_path}/answer")
    await received.until(b"name? ")
    await asyncio.to_thread((tmp_path / "answer").write_bytes, b"airunner\n")
    await process.wait()
    assert received.calls == [([b"name? "], False), ([b"airunner\n"], False)]


@on_both_loops
async def test_a_slow_consumer_holds_the_process_up_and_not_in_memory() -> None:
    taken = 0

    async def take(lines: list[bytes], is_stderr: bool) -> None:
        nonlocal taken
        for _ in range(20):
            await asyncio.sleep(0)
        taken += sum(map(len, lines))

    tracemalloc.start()
    try:
        await finish("sh", "-c", f"yes {'z' * 1000} | head -c 20000000", on_output=take)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken == 20_000_000
    assert peak < 2_000_000


@on_both_loops
async def test_calls_for_both_streams_never_overlap() -> None:
    inside = 0

    async def take(lines: list[bytes], is_stderr: bool) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1

    await finish(
        "sh", "-c", "head -c 1000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait", on_output=take
    )


@on_both_loops
async def test_the_process_gets_its_arguments_environment_and_directory_and_no_input(tmp_path: Path) -> None:
    script = 'import os, sys; print(sys.argv[1:], dict(os.environb), os.getcwd(), sys.stdin.read() == "")'
    arguments = ("two words", "$HOME", "ü", os.fsdecode(b"\xff"), "")
    environment = PATH | {"LD_LIBRARY_PATH": "/nowhere", "LC_ALL": "C.UTF-8", "ODD": os.fsdecode(b"\xfe\n=")}
    command = (sys.executable, "-I", "-c", script, *arguments)
    ended, received = await finish(*command, environment=environment, working_directory=str(tmp_path))
    bytes_of = {os.fsencode(name): os.fsencode(setting) for name, setting in environment.items()}
    assert received.stdout.decode() == f"{list(arguments)} {bytes_of} {tmp_path} True\n"
    assert ended.exit_code == 0


@on_both_loops
async def test_signals_are_reset_descriptors_closed_and_the_group_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "typed").write_text("typed into the worker")
    leaked, stdin = os.open(tmp_path / "typed", os.O_RDONLY), os.dup(0)
    os.dup2(leaked, 0)
    os.set_inheritable(leaked, True)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        status = r"sed -n 's/^Sig\(Ign\|Blk\):\t//p' /proc/self/status; ls /proc/self/fd | wc -l"
        process, received = await start("sh", "-c", f"cat; {status}; cut -d' ' -f1,5,6 /proc/$$/stat")
        await process.wait()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGUSR1, before)
        os.dup2(stdin, 0)
        os.close(leaked)
        os.close(stdin)
    # The fourth descriptor is the directory that ls itself reads.
    ids = " ".join([str(process.pid)] * 3)
    blocked, ignored, *others = received.stdout.decode().splitlines()
    assert int(blocked, 16) & SETTABLE == int(ignored, 16) & SETTABLE == 0
    assert others == ["4", ids]


@on_both_loops
async def test_a_pseudo_terminal_looks_like_one_and_changes_no_byte() -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size; cat; echo 'to you' >/dev/tty; echo error >&2"
    ended, received = await finish("sh", "-c", f"{script}; seq 50000; exit 4", pty=True)
    numbers = "".join(f"{number}\n" for number in range(1, 50_001))
    assert received.stdout.decode() == f"24 80\nto you\nerror\n{numbers}"
    assert received.stderr == b""
    assert (ended.exit_code, ended.output_complete) == (4, True)


@on_both_loops
async def test_a_terminal_that_was_closed_by_its_command_can_be_opened_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"exec <&- >&- 2>&-; read line <{tmp_path}/go; seq 50000 >/dev/tty; exit 4"
    process, received = await start("sh", "-c", script, pty=True)
    await asyncio.to_thread((tmp_path / "go").write_bytes, b"on\n")
    ended = await process.wait()
    assert received.stdout.decode() == "".join(f"{number}\n" for number in range(1, 50_001))
    assert (ended.exit_code, ended.output_complete) == (4, True)


@on_both_loops
async def test_cancelling_the_start_leaves_nothing() -> None:
    starting = asyncio.create_task(start("sleep", "1000"))
    await asyncio.sleep(0)
    assert children()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"command": "no-such-command"}, "command not found: no-such-command"),
    "missing path": ({"command": "./none"}, "cannot run ./none: No such file"),
    "not executable": ({"command": "./plain"}, "cannot run ./plain: Permission denied"),
    "a directory": ({"command": "/"}, "cannot run /: Permission denied"),
    "no format": ({"command": "./nonsense"}, "cannot run ./nonsense: Exec format error"),
    "no interpreter": ({"command": "./orphan"}, "interpreter or loader that ./orphan names does not exist"),
    "no directory": ({"working_directory": "/no-such"}, "cannot enter .* /no-such: No such file"),
    "directory is a file": ({"working_directory": "/dev/null"}, "cannot enter .* /dev/null: Not a directory"),
    "too long": ({"args": ("x" * 3_000_000,)}, "cannot run true: Argument list too long"),
    "nothing": ({"command": ""}, "no command given"),
    "NUL": ({"args": ("a\0b",)}, "NUL"),
    "variable": ({"environment": {"A=B": ""}}, "not a possible environment variable: 'A=B'"),
}


@pytest.mark.parametrize(("change", "text"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "pty"])
@on_both_loops
async def test_what_cannot_start_says_why(
    change: dict[str, Any], text: str, pty: bool, tmp_path: Path
) -> None:
    for name, content, mode in (
        ("plain", "", 0o600),
        ("nonsense", "??", 0o700),
        ("orphan", "#!/none", 0o700),
    ):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    possible: dict[str, Any] = {
        "command": "true",
        "environment": PATH,
        "working_directory": str(tmp_path),
        "pty": pty,
    }
    with pytest.raises(CouldNotStart, match=text):
        await Process.start(ProcessSpec(**possible | change), on_output=Received(), clock=SystemClock())
