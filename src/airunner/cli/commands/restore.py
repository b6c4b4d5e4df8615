"""`airunner restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.options import AsJson, ConfigFile, DataDir, load
from airunner.cli.printing import print_json, say

if TYPE_CHECKING:
    from airunner.config import Settings


def restore(
    backup: Annotated[Path, Parameter(help="The file that 'airunner backup' made.")],
    /,
    *,
    data_dir: DataDir = None,
    force: Annotated[bool, Parameter(help="Replace the store that is in the folder.")] = False,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a backup the store of the data folder again; print the path of the database.

    The backup is checked first. No server may use the folder. With FILE.token.key beside it, workers that
    held jobs when the backup was made can still finish them.
    """
    from airunner.app import locate_store, restore_store

    settings = load(config_file, {"data_dir": data_dir}).settings
    has_key = restore_store(settings, backup, force=force)
    location = locate_store(settings)
    if as_json:
        size = Path(location).stat().st_size
        print_json("restore", {"path": location, "bytes": size, "token_key": has_key})
    else:
        print(location)
    _remark(settings, backup, has_key=has_key)


def _remark(settings: Settings, backup: Path, *, has_key: bool) -> None:
    if not has_key and not settings.token_keys:
        say(
            f"there is no {backup}.token.key: jobs that were running are begun anew, unless token.key is here"
        )
