"""`airunner config show`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from airunner.cli.options import AsJson, ConfigFile, load
from airunner.cli.printing import print_json, print_table

config = App(name="config", help="Show the settings in effect.")


@config.command
def show(
    *,
    config_file: ConfigFile = None,
    given: Annotated[bool, Parameter(help="Only what was set somewhere, no defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every setting in effect and where it came from. Secrets are hidden."""
    from airunner.config import describe, to_jsonable

    loaded = load(config_file, {})
    if as_json:
        print_json("config", to_jsonable(loaded))
        return
    lines = [line for line in describe(loaded) if not given or line.origin != "default"]
    print_table(("setting", "value", "origin"), [(line.path, line.value_text, line.origin) for line in lines])
