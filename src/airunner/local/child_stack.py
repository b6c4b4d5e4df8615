"""Child processes that are started one after the other, and stopped together."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self, TypeVar

from airunner.domain.errors import FailedPrecondition
from airunner.local.children import AIRUNNER, ChildProcess
from airunner.local.emulator import EmulatorFailed
from airunner.local.emulator.loopback import LoopbackProcess
from airunner.local.postgres import PostgresMissing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path
    from types import TracebackType

Loopback = TypeVar("Loopback", bound=LoopbackProcess)


class ChildStack:
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

    def kill(self) -> None:
        """End the children at once; whoever waits for their end goes on."""
        for child in self._children:
            child.kill()

    async def start(
        self,
        *arguments: str,
        awaited: str,
        environment: Mapping[str, str] | None = None,
        module: str = AIRUNNER,
    ) -> ChildProcess:
        """Start a child, as `ChildProcess.start` does, in the folder of the stack."""
        child = await self._started.enter_async_context(
            _child(*arguments, folder=self.folder, awaited=awaited, environment=environment, module=module)
        )
        self._children.append(child)
        return child


async def start_loopback(stack: AsyncExitStack, process: Loopback) -> Loopback:
    """Start an emulator or a database that runs until the stack closes; FailedPrecondition if it cannot."""
    # Registered first: a start that is cancelled leaves nothing behind either.
    stack.callback(process.stop)
    starting = asyncio.ensure_future(asyncio.to_thread(process.start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread goes on: what it has not begun yet could not be stopped.
        with suppress(EmulatorFailed, PostgresMissing):
            await starting
        raise
    except (EmulatorFailed, PostgresMissing) as error:
        raise FailedPrecondition(str(error)) from None
    return process


@asynccontextmanager
async def _child(
    *arguments: str, folder: Path, awaited: str, environment: Mapping[str, str] | None, module: str
) -> AsyncIterator[ChildProcess]:
    child = await ChildProcess.start(
        *arguments, folder=folder, awaited=awaited, environment=environment, module=module
    )
    try:
        yield child
    finally:
        code = await child.stop()
    # Other programs may leave SIGTERM to the system, or raise it again when they are done.
    if code and (module == AIRUNNER or code != -signal.SIGTERM):
        raise FailedPrecondition(f"the {child.name} ended with {code}: {' / '.join(child.last_lines)}")
