"""`airunner demo`: a real server, a real worker and three jobs, in a temporary folder."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airunner.cli.exit_codes import ExitCode
from airunner.cli.printing import say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import Console

    from airunner.client import AsyncClient
    from airunner.local.children import ChildProcess
    from airunner.local.demo_jobs import Seen

_LIMIT_SECONDS = 90


def demo() -> int:
    """Start a server and a worker, watch three jobs live, and show what was stored.

    Everything is real and durable, and lives in a temporary folder that is removed at the end.
    """
    from rich.console import Console

    return asyncio.run(_demo(Console(highlight=False)))


async def _demo(console: Console) -> int:
    current = asyncio.current_task()
    if current:
        # A request to end is answered like Ctrl-C: what we started is ended first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    with tempfile.TemporaryDirectory(prefix="airunner-demo-") as folder:
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                return await _play(console, Path(folder))
        except TimeoutError:
            say(f"the demo did not end within {_LIMIT_SECONDS} s")
            return ExitCode.FAILED


async def _play(console: Console, folder: Path) -> int:
    from airunner.client import AsyncClient

    console.print("[bold]airunner demo[/]: a server, a worker and three jobs\n")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_server(folder))
        url = await server.ready()
        console.print(f"  [bold]server[/]  {url}, pid {server.pid}, SQLite in {folder}", soft_wrap=True)
        worker = await stack.enter_async_context(_worker(folder, url))
        await worker.ready()
        console.print(f"  [bold]worker[/]  pid {worker.pid}, three jobs at a time\n")
        client = await stack.enter_async_context(AsyncClient(url))
        seen = await _watch_all(console, client)
    _summarise(console, seen)
    return _verdict(console, seen)


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[ChildProcess]:
    arguments = ("server", "--listen", "127.0.0.1:0", "--no-auth", "--data-dir", "data")
    async with _child(*arguments, folder=folder, awaited="airunner server listening on") as child:
        yield child


@asynccontextmanager
async def _worker(folder: Path, url: str) -> AsyncIterator[ChildProcess]:
    arguments = ("worker", "--server", url, "--queue", "demo", "--concurrency", "3")
    async with _child(*arguments, folder=folder, awaited="airunner worker serves") as child:
        yield child


@asynccontextmanager
async def _child(*arguments: str, folder: Path, awaited: str) -> AsyncIterator[ChildProcess]:
    from airunner.domain.errors import FailedPrecondition
    from airunner.local.children import ChildProcess

    child = await ChildProcess.start(*arguments, folder=folder, awaited=awaited)
    try:
        yield child
    finally:
        code = await child.stop()
    if code:
        raise FailedPrecondition(f"the {arguments[0]} ended with {code}: {' / '.join(child.last_words)}")


async def _watch_all(console: Console, client: AsyncClient) -> list[Seen]:
    from rich.text import Text

    from airunner.local.demo_jobs import DEMO_JOBS, watch

    styles = dict(zip((job.name for job in DEMO_JOBS), ("cyan", "yellow", "magenta"), strict=True))

    def show(name: str, line: str, is_error: bool) -> None:
        prefix = Text(f"  {name:<8}│ ", style=styles[name])
        console.print(prefix + Text(line, style="red" if is_error else ""), overflow="ellipsis", no_wrap=True)

    async with asyncio.TaskGroup() as group:
        watching = []
        for job in DEMO_JOBS:
            enqueued = await client.enqueue(job.params, queue="demo")
            watching.append(group.create_task(watch(client, job, enqueued.job_id, show)))
    return [task.result() for task in watching]


def _summarise(console: Console, seen: list[Seen]) -> None:
    from rich import box
    from rich.table import Table

    from airunner.cli.instants import span
    from airunner.local.demo_jobs import DEMO_JOBS

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("  job")
    for column in ("state", "exit code", "time", "lines", "writes", "lines/write"):
        table.add_column(column, justify="left" if column == "state" else "right")
    for job, what in zip(DEMO_JOBS, seen, strict=True):
        result = what.job.result
        table.add_row(
            f"  {job.name}",
            what.job.state.name,
            str(result.exit_code if result else ""),
            span(what.milliseconds),
            f"{what.lines:,}",
            f"{what.stored:,}",
            f"{what.lines / what.stored:.1f}",
        )
    console.print()
    console.print(table)


def _verdict(console: Console, seen: list[Seen]) -> int:
    from airunner.local.demo_jobs import DEMO_JOBS

    problems = [text for job, what in zip(DEMO_JOBS, seen, strict=True) for text in what.problems(job)]
    for problem in problems:
        say(problem)
    if problems:
        return ExitCode.FAILED
    lines, stored = sum(what.lines for what in seen), sum(what.stored for what in seen)
    console.print(f"  {lines:,} lines were stored in {stored:,} writes, {lines / stored:.0f} times fewer,")
    console.print("  and every byte that was shown here matches the digest that the worker made.\n")
    console.print("  Go on with: [bold]airunner dev[/], then [bold]airunner run -- echo hello[/]")
    return ExitCode.OK
