"""What `demo` starts: a real server and a real worker as child processes, on SQLite in one folder."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from airunner.domain.errors import FailedPrecondition
from airunner.local.children import ChildProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from types import TracebackType

DEMO_QUEUE: Final = "demo"


class DemoStack:
    """The children of a demo, an async context: at its end they are stopped, the last one started first.

    A child that ended with an exit code is FailedPrecondition then, unless something else went wrong before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[ChildProcess] = []
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Return the stack itself; nothing runs yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started."""
        await self._started.__aexit__(kind, error, trace)

    async def start_server(self) -> tuple[ChildProcess, str]:
        """Return a server on a free port that is ready, and its URL."""
        options = ("--listen", "127.0.0.1:0", "--no-auth", "--data-dir", "data")
        server = await self._start("server", *options, awaited="airunner server listening on")
        return server, await server.ready()

    async def start_worker(self, url: str) -> ChildProcess:
        """Return a worker of that server that is ready."""
        options = ("--server", url, "--queue", DEMO_QUEUE, "--concurrency", "3")
        worker = await self._start("worker", *options, awaited="airunner worker serves")
        await worker.ready()
        return worker

    def kill(self) -> None:
        """End the children at once; whoever waits for their end goes on."""
        for child in self._children:
            child.kill()

    async def _start(self, *arguments: str, awaited: str) -> ChildProcess:
        child = await self._started.enter_async_context(
            _child(*arguments, folder=self.folder, awaited=awaited)
        )
        self._children.append(child)
        return child


@asynccontextmanager
async def _child(*arguments: str, folder: Path, awaited: str) -> AsyncIterator[ChildProcess]:
    child = await ChildProcess.start(*arguments, folder=folder, awaited=awaited)
    try:
        yield child
    finally:
        code = await child.stop()
    if code:
        raise FailedPrecondition(f"the {arguments[0]} ended with {code}: {' / '.join(child.last_lines)}")
