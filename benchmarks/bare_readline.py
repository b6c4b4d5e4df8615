"""The limit of reading a command's output: a readline loop in a process of its own.

python -m benchmarks.bare_readline COMMAND... prints lines per second. On uvloop, as our worker is.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop


async def main(*command: str) -> None:
    """Read the command's lines and forget them."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    lines = 0
    async for _ in process.stdout:
        lines += 1
    await process.wait()
    print(lines / (time.perf_counter() - began))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
