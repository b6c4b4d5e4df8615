"""`airunner demo`: a real server, a real worker and three jobs, in a temporary folder."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airunner.cli.exit_codes import ExitCode
from airunner.cli.printing import say
from airunner.cli.signals import on_shutdown_signals

if TYPE_CHECKING:
    from rich.console import Console

    from airunner.client import AsyncClient
    from airunner.local.demo_jobs import WatchedJob
    from airunner.local.demo_stack import DemoStack

_LIMIT_SECONDS = 90


def demo() -> int:
    """Start a server and a worker, watch three jobs live, and show what was stored.

    Everything is real and durable, in a temporary folder that is removed at the end.
    """
    from rich.console import Console

    return asyncio.run(_demo(Console(highlight=False)))


async def _demo(console: Console) -> int:
    from airunner.local.demo_stack import DemoStack

    with tempfile.TemporaryDirectory(prefix="airunner-demo-") as folder:
        stack = DemoStack(Path(folder))
        if task := asyncio.current_task():
            on_shutdown_signals(task.cancel, stack.kill)
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                return await _play(console, stack)
        except TimeoutError:
            say(f"the demo did not end within {_LIMIT_SECONDS} s")
            return ExitCode.FAILED
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED


async def _play(console: Console, stack: DemoStack) -> int:
    from airunner.client import AsyncClient

    console.print("[bold]airunner demo[/]: a server, a worker and three jobs\n")
    async with stack:
        server, url = await stack.start_server()
        where = f"SQLite in {stack.folder}"
        console.print(f"  [bold]server[/]  {url}, pid {server.pid}, {where}", soft_wrap=True)
        worker = await stack.start_worker(url)
        console.print(f"  [bold]worker[/]  pid {worker.pid}, three jobs at a time\n")
        async with AsyncClient(url) as client:
            watched = await _watch_all(console, client)
    _summarise(console, watched)
    return _report(console, watched)


async def _watch_all(console: Console, client: AsyncClient) -> list[WatchedJob]:
    from rich.text import Text

    from airunner.local.demo_jobs import DEMO_JOBS, watch
    from airunner.local.demo_stack import DEMO_QUEUE

    styles = dict(zip((job.name for job in DEMO_JOBS), ("cyan", "yellow", "magenta"), strict=True))

    def show(name: str, line: str, is_error: bool) -> None:
        prefix = Text(f"  {name:<8}│ ", style=styles[name])
        console.print(prefix + Text(line, style="red" if is_error else ""), overflow="ellipsis", no_wrap=True)

    async with asyncio.TaskGroup() as group:
        watching = []
        for job in DEMO_JOBS:
            enqueued = await client.enqueue(job.params, queue=DEMO_QUEUE)
            watching.append(group.create_task(watch(client, job, enqueued.job_id, show)))
    return [task.result() for task in watching]


def _summarise(console: Console, watched: list[WatchedJob]) -> None:
    from rich import box
    from rich.table import Table

    from airunner.local.demo_jobs import DEMO_JOBS
    from airunner.reading.instants import format_duration

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("  job")
    for column in ("state", "exit code", "time", "lines", "writes", "lines/write"):
        table.add_column(column, justify="left" if column == "state" else "right")
    for job, what in zip(DEMO_JOBS, watched, strict=True):
        result = what.job.result
        table.add_row(
            f"  {job.name}",
            what.job.state.name,
            str(result.exit_code if result else ""),
            format_duration(what.milliseconds),
            f"{what.lines:,}",
            f"{what.stored:,}",
            f"{what.lines / what.stored:.1f}",
        )
    console.print()
    console.print(table)


def _report(console: Console, watched: list[WatchedJob]) -> int:
    from airunner.local.demo_jobs import DEMO_JOBS

    problems = [text for job, what in zip(DEMO_JOBS, watched, strict=True) for text in what.problems(job)]
    for problem in problems:
        say(problem)
    if problems:
        return ExitCode.FAILED
    lines, stored = sum(what.lines for what in watched), sum(what.stored for what in watched)
    console.print(f"  {lines:,} lines were stored in {stored:,} writes, {lines / stored:.0f} times fewer,")
    console.print("  and every byte that was shown here matches the digest that the worker made.\n")
    console.print("  Go on with: [bold]airunner dev[/], then [bold]airunner run -- echo hello[/]")
    return ExitCode.OK
