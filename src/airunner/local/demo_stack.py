"""What `demo` starts: a real server and a real worker as child processes, on SQLite in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.local.child_stack import ChildStack

if TYPE_CHECKING:
    from airunner.local.children import ChildProcess

DEMO_QUEUE: Final = "demo"


class DemoStack(ChildStack):
    """The children of the demo."""

    async def start_server(self) -> tuple[ChildProcess, str]:
        """Return a server on a free port that is ready, and its URL."""
        options = ("--listen", "127.0.0.1:0", "--no-auth", "--data-dir", "data")
        server = await self.start("server", *options, awaited="airunner server listening on")
        return server, await server.ready()

    async def start_worker(self, url: str) -> ChildProcess:
        """Return a worker of that server that is ready."""
        options = ("--server", url, "--queue", DEMO_QUEUE, "--concurrency", "3")
        worker = await self.start("worker", *options, awaited="airunner worker serves")
        await worker.ready()
        return worker
