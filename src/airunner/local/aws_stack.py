"""`airunner dev --aws`: production in small, on an emulated AWS: two servers and a worker, each a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.cli.printing import announce, say
from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.local.aws_plan import StackPlan, plan_for
from airunner.local.children import ChildProcess

if TYPE_CHECKING:
    from airunner.local.aws_plan import StackRequest
    from airunner.local.emulator import EmulatorProcess

_PROVISION_SECONDS: Final = 120
_HURRIED_SECONDS: Final = 5.0


# Whose end is waited for: names, or the addresses of servers.
_Ends: TypeAlias = "dict[asyncio.Task[int] | asyncio.Task[None], str]"


def dev_on_aws(request: StackRequest) -> None:
    """Serve and work on the AWS that is asked for, until a signal or the end of what all depends on."""
    asyncio.run(_Stack(request).run())


class _Stack:
    """What was started, in the order in which it must not end.

    One server may die: the other one has all that it had. Without a worker, an AWS or any server the rest is
    ended.
    """

    def __init__(self, request: StackRequest) -> None:
        self._request = request
        self._children: list[ChildProcess] = []
        self._servers: dict[str, ChildProcess] = {}
        self._is_asked_to_end = False

    async def run(self) -> None:
        """Run until a signal, which is a good end, or until something that is needed ends."""
        self._catch_signals()
        with suppress(asyncio.CancelledError):
            async with AsyncExitStack() as stack:
                ends = await self._start(stack)
                await self._watch(ends)

    def _catch_signals(self) -> None:
        """Let the first signal end everything in order, and the second at once."""
        running = asyncio.current_task()

        def stop() -> None:
            if self._is_asked_to_end or running is None:
                for child in self._children:
                    child.kill()
            else:
                self._is_asked_to_end = True
                running.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

    async def _start(self, stack: AsyncExitStack) -> _Ends:
        """Start everything; the worker is last, and the first to end."""
        ends: _Ends = {}
        emulator_url = ""
        if self._request.wants_emulator:
            emulator = await _start_emulator(stack)
            emulator_url = emulator.url
            ends[asyncio.create_task(_end_of(emulator.pid))] = "emulator"
        plan = plan_for(self._request, emulator_url)
        await _provision(plan)
        servers = [await self._server(stack, plan, address) for address in plan.addresses]
        self._servers |= {await server.ready(): server for server in servers}
        worker = await self._child(plan.worker(list(self._servers)), plan, "airunner worker serves")
        stack.push_async_callback(self._stop, worker, _HURRIED_SECONDS + plan.worker_seconds)
        await worker.ready()
        ends |= {asyncio.create_task(server.ended()): url for url, server in self._servers.items()}
        ends[asyncio.create_task(worker.ended())] = "worker"
        _welcome(plan, self._servers)
        return ends

    async def _server(self, stack: AsyncExitStack, plan: StackPlan, address: str) -> ChildProcess:
        server = await self._child(plan.server(address), plan, "airunner server listening on")
        stack.push_async_callback(self._stop, server, _HURRIED_SECONDS + plan.server_seconds)
        return server

    async def _child(self, arguments: list[str], plan: StackPlan, awaited: str) -> ChildProcess:
        is_server = arguments[0] == "server"
        child = await ChildProcess.start(
            *arguments,
            folder=Path.cwd(),
            awaited=awaited,
            environment=plan.server_environment if is_server else plan.worker_environment,
            pass_on=announce,
        )
        self._children.append(child)
        return child

    async def _stop(self, child: ChildProcess, patience_seconds: float) -> None:
        # Who ends because something broke does not wait for jobs that cannot be completed any more.
        await child.stop(patience_seconds if self._is_asked_to_end else _HURRIED_SECONDS)

    async def _watch(self, ends: _Ends) -> None:
        """Wait for signals; raise Unavailable when something that is needed has ended."""
        while True:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for name, code in [(ends.pop(task), task.result()) for task in done]:
                self._servers.pop(name, None)
                if not self._servers or not name.startswith("http"):
                    raise Unavailable(f"the {_noun(name)} ended{_how(code)}, so all else was ended too")
                left = " and ".join(self._servers)
                say(f"the {_noun(name)} ended{_how(code)}; {left} goes on with all that it had")


async def _start_emulator(stack: AsyncExitStack) -> EmulatorProcess:
    from airunner.app import build_emulator
    from airunner.local.emulator import EmulatorFailed

    emulator = build_emulator()
    # Registered first: a start that is cancelled leaves nothing behind either.
    stack.callback(emulator.stop)
    try:
        await asyncio.to_thread(emulator.start)
    except EmulatorFailed as error:
        raise FailedPrecondition(str(error)) from None
    return emulator


async def _provision(plan: StackPlan) -> None:
    """Make queues and tables, with the environment of the servers and nothing of ours."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunner.cli", *plan.provision()),
        env=plan.server_environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), _PROVISION_SECONDS)
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = said.decode(errors="replace").replace("airunner: ", "").strip()
        raise FailedPrecondition(f"queues and tables could not be made: {text}")


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


def _welcome(plan: StackPlan, servers: dict[str, ChildProcess]) -> None:
    from airunner.client import DEFAULT_SERVER

    first, second = servers
    option = "" if first == DEFAULT_SERVER else f" --server {first}"
    announce(
        f"airunner dev ready on {first} and {second}, jobs and events in {plan.location}; Ctrl-C ends it"
    )
    announce(f"  try: airunner run{option} -- echo hello")
    announce(f"       airunner list --server {first},{second}")
    announce(f"       kill -9 {servers[second].pid}    # the second server; whoever named both goes on")


def _noun(name: str) -> str:
    return f"server on {name}" if name.startswith("http") else name


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f" (by signal {-code})" if code < 0 else f" (with exit code {code})"
