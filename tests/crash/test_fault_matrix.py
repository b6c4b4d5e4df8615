"""Every fault against every operation of a real server: nothing acknowledged is lost, nothing is RUNNING in
nobody's hands, and all goes on without a restart. A history checker judges what the clients were told.

One start of the server serves a row. By default all operations of a row meet the fault at once; the slow rows
give each operation a fault of its own.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from airunner.testing.conditions import until
from airunner.testing.factories import make_line, make_start
from tests.crash import faults
from tests.crash.fault_cells import CELLS, TOKEN_KEY, Cell, Rig, once, persistent
from tests.crash.faults import Fault
from tests.support.processes import integrity, running_stack

SHUTDOWN = "shutdown"
OPERATIONS = ("enqueue", "waiting dequeue", "publish", "complete", "stream", "upkeep", SHUTDOWN)
FAULTS: dict[str, tuple[type[faults.Nothing], ...]] = {
    "full disk": (faults.FullDisk, faults.FilesThatMayNotGrow),
    "full disk with the log on it": (faults.FullDiskWithTheLogOnIt,),
    "I/O error": (faults.IoError,),
    "locked file": (faults.FileLockedForAMoment, faults.LockedFile),
    "closed stderr": (faults.ClosedStderr,),
    "EMFILE": (faults.Emfile,),
    "clock steps": (faults.ClockAhead, faults.ClockBehind),
}
ROWS = [row for rows in FAULTS.values() for row in rows]
WITHOUT_MEANING: dict[tuple[str, str], str] = {
    # A fault and an operation, and why they need not meet. Today all of them do.
}
# A write waits ten seconds for its turn: operations one after the other would take minutes.
TOO_LONG_ONE_BY_ONE = faults.LockedFile
SLOW = (faults.FilesThatMayNotGrow, faults.LockedFile, faults.ClockBehind)
ENVIRONMENT = {
    "AIRUNNER_LIMITS__MAINTENANCE_INTERVAL_SECONDS": "0.2",
    "AIRUNNER_TOKEN_KEYS": TOKEN_KEY,
}
# Longer than a write waits for its turn, and what else a shutdown may take.
END_SECONDS = 30.0


@asynccontextmanager
async def rigged(folder: Path, fault: Fault) -> AsyncIterator[Rig]:
    async with running_stack(folder, ENVIRONMENT) as stack:
        try:
            await fault.start(stack)
            async with once(stack.url) as single, persistent(stack.url) as lasting:
                yield Rig(stack, fault, single, lasting)
        finally:
            fault.close()


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.slow] if row in SLOW else [], id=row.name) for row in ROWS],
)
async def test_all_operations_meet_a_fault_at_once(tmp_path: Path, row: type[faults.Nothing]) -> None:
    async with rigged(tmp_path, row()) as rig:
        await meet(rig, list(cells_of(row).values()))
        await shut_down(rig)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name) for row in ROWS if row is not TOO_LONG_ONE_BY_ONE]
)
async def test_each_operation_meets_a_fault_of_its_own(tmp_path: Path, row: type[faults.Nothing]) -> None:
    async with rigged(tmp_path, row()) as rig:
        for cell in cells_of(row).values():
            await meet(rig, [cell])
        await shut_down(rig)


def test_every_cell_of_the_matrix_is_run_or_listed_with_its_reason() -> None:
    assert (*CELLS, SHUTDOWN) == OPERATIONS
    for fault, rows in FAULTS.items():
        run = {*(name for row in rows for name in cells_of(row)), SHUTDOWN}
        listed = {operation for kind, operation in WITHOUT_MEANING if kind == fault}
        assert run | listed == set(OPERATIONS)
        assert not run & listed
    assert all(WITHOUT_MEANING.values())


def cells_of(row: type[faults.Nothing]) -> dict[str, Cell]:
    """Return what is run in a row, besides the shutdown."""
    (kind,) = (kind for kind, rows in FAULTS.items() if row in rows)
    return {name: cell for name, cell in CELLS.items() if (kind, name) not in WITHOUT_MEANING}


async def meet(rig: Rig, cells: Sequence[Cell]) -> None:
    """Let operations meet the fault, and see all of them through."""
    running = [cell(rig) for cell in cells]
    await asyncio.gather(*map(anext, running))
    rig.fault.begin()
    if rig.fault.bites:
        await rig.refused()
    await asyncio.gather(*map(anext, running))
    await rig.fault.end()
    await asyncio.gather(*(anext(cell, None) for cell in running))
    # One more job, which is logged.
    await rig.fill()
    await rig.judge()
    await until(rig.fault.log_goes_on)


async def shut_down(rig: Rig) -> None:
    """Shut the server down under the fault, and start it again where all is well."""
    if rig.fault.drops_logs:
        assert (await rig.metrics()).value("airunner_logs_dropped_total") > 0
    held = await rig.claim("shutdown")
    await rig.api.publish(held, make_start())
    server = rig.stack.server
    assert server
    rig.fault.begin()
    waiting = asyncio.create_task(rig.tried(rig.api.dequeue("nothing", wait_seconds=20)))
    if rig.fault.bites:
        await rig.refused()
    server.send(signal.SIGTERM)
    assert await server.ended(limit_seconds=END_SECONDS) == 0
    await waiting
    await rig.fault.end()
    assert integrity(rig.fault.database(rig.stack)) == "ok"
    await rig.fault.start(rig.stack)
    await rig.api.publish(held, make_line(2))
    await rig.complete(held, make_start(), make_line(2))
    await rig.judge()
