"""Commands as child processes, which never outlive us: long-lived ones, and such as come to their end."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import FailedPrecondition, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

AIRUNNER: Final = "airunner.cli"
_PR_SET_PDEATHSIG: Final = 1
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 15
_KEPT_LINES: Final = 20
_LONGEST_LINE: Final = 1024 * 1024
_libc = ctypes.CDLL(None)


class ChildProcess:
    """One command, ready once it has said so on standard error."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        name: str,
        awaited: str,
        pass_on: Callable[[str], None] | None = None,
    ) -> None:
        self.pid = process.pid
        self.name = name
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process = process
        self._awaited = awaited
        self._pass_on = pass_on
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        *arguments: str,
        folder: Path,
        awaited: str,
        environment: Mapping[str, str] | None = None,
        pass_on: Callable[[str], None] | None = None,
        module: str = AIRUNNER,
    ) -> ChildProcess:
        """Start `airunner` in a folder; `awaited` begins its ready line, `pass_on` gets all others.

        Its environment is ours without any setting, unless another one is given. `module` is another program
        of Python.
        """
        from airunner.config import environment_without_settings

        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            cwd=folder,
            env=environment_without_settings() if environment is None else environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C is for us; we end our children in order
            preexec_fn=_die_with_parent,  # no thread of ours holds a lock yet
        )
        return cls(process, arguments[0] if module == AIRUNNER else module, awaited, pass_on)

    async def ready(self) -> str:
        """Return the rest of the ready line; raise Unavailable when it does not come."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._ready), _START_SECONDS)
        raise Unavailable(f"the {self.name} did not start in time")

    async def ended(self) -> int:
        """Wait for its end, however that comes about; return its exit code, negative for a signal."""
        return await self._process.wait()

    async def stop(self, seconds: float = _STOP_SECONDS) -> int:
        """End it in good order, by force if that takes longer than so long; return its exit code."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        await self._listening
        return code

    def kill(self) -> None:
        """End it at once; nothing if it has ended."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101  it was asked for
        async for line in stream:
            text = line.decode(errors="replace").rstrip("\n")
            self.last_lines.append(text)
            if text.startswith(self._awaited) and not self._ready.done():
                self._ready.set_result(text.removeprefix(self._awaited).strip())
            elif self._pass_on:
                self._pass_on(text)
        if not self._ready.done():
            self._ready.set_exception(Unavailable(f"the {self.name} ended: {' / '.join(self.last_lines)}"))


async def run_to_end(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    purpose: str,
    module: str = AIRUNNER,
) -> str:
    """Run `airunner`, or another program of Python, and return what it prints.

    FailedPrecondition with its words if it fails, Unavailable if it takes longer than so long; `purpose` says
    what is not there then: "the queues".
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        raise Unavailable(f"{purpose} could not be created in time") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = errors.decode(errors="replace").replace("airunner: ", "").strip()
        raise FailedPrecondition(f"{purpose} could not be created: {text}")
    return printed.decode(errors="replace")


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
