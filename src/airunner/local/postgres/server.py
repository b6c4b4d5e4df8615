"""A server of PostgreSQL as a child of this process, on a Unix socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airunner.local.emulator.loopback import LoopbackProcess
from airunner.local.postgres.binaries import find_binaries

if TYPE_CHECKING:
    from collections.abc import Sequence

USER: Final = "airunner"
_PROGRAM: Final = "airunner.local.postgres.program"


class LocalPostgres(LoopbackProcess):
    """A server that ends with this process, however that ends. Nothing listens on the network.

    Under root it runs as nobody, since PostgreSQL refuses root. It does not sync to disk: it survives the end
    of its processes, not that of the machine. A folder that is given stays, and can be started again.
    """

    def __init__(self, folder: Path | None = None, *, start_seconds: float = 60) -> None:
        super().__init__("PostgreSQL", start_seconds=start_seconds)
        self._is_temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="airunner-pg-"))

    def dsn(self, database: str = "postgres", *, user: str = USER) -> str:
        """Return the address of a database of it."""
        return f"postgresql://{quote(user)}@/{quote(database)}?host={quote(str(self.folder))}"

    def command(self) -> Sequence[str]:
        """Return what starts it; raises PostgresMissing where it is not installed."""
        return sys.executable, "-m", _PROGRAM, str(find_binaries()), str(self.folder)

    def stop(self) -> None:
        """End it and wait for it; its folder goes with it, if nobody named one."""
        super().stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server's first process with SIGKILL, as a crash would; `start` brings it up again."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        super().stop()
