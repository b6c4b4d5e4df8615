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
    backup: Annotated[Path, Parameter(help="The file that 'airunner backup' wrote.")],
    /,
    *,
    data_dir: DataDir = None,
    force: Annotated[bool, Parameter(help="Replace the store in the folder.")] = False,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Restore the store of the data folder from a backup, and print the path of the database.

    It checks the backup first, and refuses a folder that a server uses. If FILE.token.key is beside the
    backup, workers that held jobs when the backup was made can still finish them.
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
            f"there is no {backup}.token.key: jobs that were running start again, "
            "unless token.key is in the folder"
        )
