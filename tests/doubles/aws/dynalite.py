"""dynalite, a second opinion on DynamoDB: it refuses much that moto lets pass, but has no transactions.

It needs Node. It is installed once, in the pinned version, into a folder that the caller names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.local.emulator.loopback import EmulatorFailed, LoopbackProcess
from tests.doubles.node_packages import NodePackageMissing, install, node_for

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.0.0"

_PROGRAM: Final = """
const server = require(process.argv[1])({createTableMs: 0, deleteTableMs: 0, updateTableMs: 0});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
"""


class DynaliteProcess(LoopbackProcess):
    """DynamoDB alone, in the memory of one process that ends with this one."""

    def __init__(self, folder: Path, *, start_seconds: float = 60) -> None:
        super().__init__("dynalite", start_seconds=start_seconds)
        self._folder = folder

    def command(self) -> tuple[str, ...]:
        """Return what starts dynalite, which is installed first where it is missing."""
        try:
            node = node_for("dynalite")
            install(self._folder, "dynalite", VERSION)
        except NodePackageMissing as error:
            raise EmulatorFailed(str(error)) from None
        return node, "--eval", _PROGRAM, str(self._folder / "node_modules" / "dynalite")
