"""`airunner backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from airunner.cli.options import AsJson, ConfigFile, DataDir, load
from airunner.cli.printing import print_json


def backup(
    target: Annotated[Path, Parameter(help="The new file; it must not exist.")],
    /,
    *,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy the database to a new file, even while a server uses it, and print the path of the file.

    The key that signs task tokens goes to a second file, FILE.token.key. 'airunner restore' restores both.
    """
    from airunner.app import back_up_store

    has_key = back_up_store(load(config_file, {"data_dir": data_dir}).settings, target)
    size = target.stat().st_size
    if as_json:
        print_json("backup", {"path": str(target), "bytes": size, "token_key": has_key})
    else:
        print(target)
