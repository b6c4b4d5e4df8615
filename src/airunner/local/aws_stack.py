"""Production in small, on an emulated AWS: two servers and a worker, each a process."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.errors import Unavailable
from airunner.local.aws_plan import StackPlan, plan_for
from airunner.local.child_stack import start_loopback
from airunner.local.children import ChildProcess, run_to_end
from airunner.local.emulator import EmulatorProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.local.aws_plan import StackRequest

_PROVISION_SECONDS: Final = 120
_HURRIED_SECONDS: Final = 5.0


# Whose end is waited for: names, or the addresses of servers.
_Ends: TypeAlias = "dict[asyncio.Task[int] | asyncio.Task[None], str]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCallbacks:
    """Who is told what a stack does; called on its event loop, in the order of things."""

    on_ready: Callable[[StackPlan, Mapping[str, int]], None]
    """Everything runs: the plan, and the process id of each server by its address, in their order."""
    on_line: Callable[[str], None]
    """A line that a child wrote to its standard error."""
    on_server_lost: Callable[[str], None]
    """A server ended and the rest goes on: a sentence for people."""


class AwsStack:
    """What was started, in the order in which it must not end.

    One server may die: the other one has all that it had. Without a worker, an AWS or any server the rest is
    ended. An error of a callback ends everything too.
    """

    def __init__(self, request: StackRequest, callbacks: StackCallbacks) -> None:
        self._request = request
        self._callbacks = callbacks
        self._children: list[ChildProcess] = []
        self._servers: dict[str, ChildProcess] = {}
        self._running: asyncio.Task[None] | None = None
        self._stop_requested = False

    async def run(self) -> None:
        """Run until `stop`, which is a good end, or raise Unavailable when something that is needed ends."""
        self._running = asyncio.current_task()
        if self._stop_requested:
            return
        try:
            async with AsyncExitStack() as stack:
                ends = await self._start(stack)
                await self._watch(ends)
        except asyncio.CancelledError:
            if not self._stop_requested:
                raise

    def stop(self) -> None:
        """Begin to end everything in good order, the worker first; may be repeated."""
        if not self._stop_requested:
            self._stop_requested = True
            if self._running:
                self._running.cancel()

    def kill(self) -> None:
        """End all children at once, after `stop` or instead of waiting for it."""
        self.stop()
        for child in self._children:
            child.kill()

    async def _start(self, stack: AsyncExitStack) -> _Ends:
        """Start everything; the worker is last, and the first to end."""
        ends: _Ends = {}
        emulator_url = ""
        if self._request.wants_emulator:
            emulator = await start_loopback(stack, EmulatorProcess())
            emulator_url = emulator.url
            ends[asyncio.create_task(_end_of(emulator.pid))] = "emulator"
        plan = plan_for(self._request, emulator_url)
        await _provision(plan)
        servers = [await self._server(stack, plan, address) for address in plan.addresses]
        self._servers |= {await server.ready(): server for server in servers}
        worker = await self._child(
            plan.worker(list(self._servers)), plan.worker_environment, "airunner worker serves"
        )
        stack.push_async_callback(self._end, worker, _HURRIED_SECONDS + plan.worker_seconds)
        await worker.ready()
        ends |= {asyncio.create_task(server.ended()): url for url, server in self._servers.items()}
        ends[asyncio.create_task(worker.ended())] = "worker"
        self._callbacks.on_ready(plan, {url: server.pid for url, server in self._servers.items()})
        return ends

    async def _server(self, stack: AsyncExitStack, plan: StackPlan, address: str) -> ChildProcess:
        server = await self._child(
            plan.server(address), plan.environment_of(address), "airunner server listening on"
        )
        stack.push_async_callback(self._end, server, _HURRIED_SECONDS + plan.server_seconds)
        return server

    async def _child(
        self, arguments: list[str], environment: Mapping[str, str], awaited: str
    ) -> ChildProcess:
        child = await ChildProcess.start(
            *arguments,
            folder=Path.cwd(),
            awaited=awaited,
            environment=environment,
            pass_on=self._callbacks.on_line,
        )
        self._children.append(child)
        return child

    async def _end(self, child: ChildProcess, grace_seconds: float) -> None:
        # Who ends because something broke does not wait for jobs that cannot be completed any more.
        await child.stop(grace_seconds if self._stop_requested else _HURRIED_SECONDS)

    async def _watch(self, ends: _Ends) -> None:
        """Wait for `stop`; raise Unavailable when something that is needed has ended."""
        while True:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for name, code in [(ends.pop(task), task.result()) for task in done]:
                self._servers.pop(name, None)
                if not self._servers or not name.startswith("http"):
                    raise Unavailable(
                        f"the {_noun(name)} ended{_how(code)}, so everything else was stopped too"
                    )
                left = " and ".join(self._servers)
                sentence = f"the {_noun(name)} ended{_how(code)}; {left} goes on with all that it had"
                self._callbacks.on_server_lost(sentence)


async def _provision(plan: StackPlan) -> None:
    """Make queues and tables, with the environment of the servers and nothing of ours."""
    await run_to_end(
        *plan.provision(),
        folder=Path.cwd(),
        environment=plan.server_environment,
        seconds=_PROVISION_SECONDS,
        purpose="queues and tables",
    )


async def _end_of(pid: int) -> None:
    """Wait for the end of a process that is not a child of the loop, and whose exit code is not known."""
    descriptor, ended = os.pidfd_open(pid), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _noun(name: str) -> str:
    return f"server on {name}" if name.startswith("http") else name


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f" (by signal {-code})" if code < 0 else f" (with exit code {code})"
