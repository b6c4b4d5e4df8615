"""`airunner version`."""

from __future__ import annotations

import platform

from airunner import __version__
from airunner.cli.options import AsJson
from airunner.cli.printing import print_json


def version(*, as_json: AsJson = False) -> None:
    """Print the version of airunner."""
    if as_json:
        print_json("version", {"version": __version__, "python": platform.python_version()})
    else:
        print(__version__)
