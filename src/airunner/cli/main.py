"""The command line: how a command begins, and how each of them may end."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from airunner.cli.arguments import with_visible_divider
from airunner.cli.exit_codes import ExitCode, of_error
from airunner.cli.printing import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App

# Those that run jobs, or start what does: their secrets are none of the jobs' business.
RUN_JOBS: Final = (("demo",), ("dev",), ("worker",), ("fleet", "runner"))
# More than a command that asks a server makes.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says and exit with its code."""
    # What is loaded stays: to look for cycles among all of it, again and again, finds none.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _open_standard_streams()
    try:
        if arguments is None and any(tuple(sys.argv[1 : 1 + len(words)]) == words for words in RUN_JOBS):
            _conceal_secrets()
        code = execute(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        # It comes while modules are loaded, too, of which some are what errors are told by.
        code = ExitCode.INTERRUPTED
    _leave(code)


def execute(arguments: Sequence[str]) -> int:
    """Do what the arguments say; return the exit code. No error is shown as a traceback."""
    from cyclopts import CycloptsError  # late: it is most of what a command loads

    try:
        code = _application(arguments)(
            with_visible_divider(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except CycloptsError as error:
        words = " ".join(("airunner", *(error.command_chain or ())))
        say(f"{error}\nsee '{words} --help'")
        return ExitCode.USAGE
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # noqa: BLE001  what nobody expects is shown in full
        return _explained(error)
    return int(code or ExitCode.OK)


def _application(arguments: Sequence[str]) -> App:
    """Return the application with what the arguments need; all of a group only where its help is shown."""
    from airunner.cli.application import COMMANDS, build_app, load_commands

    first, second = (*arguments[:2], "", "")[:2]
    app = build_app(describe=_shows_help(first), command=first)
    if first in COMMANDS and _shows_help(second):
        load_commands(app[first])
    return app


def _shows_help(word: str) -> bool:
    """Return whether a list of commands may be shown, where a word stands in the place of one."""
    return not word or word.startswith("-")


def _open_standard_streams() -> None:
    """Put nothing in the place of streams that are closed: the next file would get what is meant for them.

    What standard output has no letters for is written as standard error has it, with backslashes.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _conceal_secrets() -> None:
    """Keep jobs from reading our secrets; this may start the program again, once."""
    from airunner.worker.secrets.concealment import conceal_secrets

    try:
        conceal_secrets()
    except (OSError, ValueError) as error:
        say(f"warning: jobs may read the secrets of this process: {error}")


def _explained(error: Exception) -> int:
    """Say what went wrong: in a line if it is something that may, else with all that helps to mend it."""
    from airunner.config import ConfigError
    from airunner.domain.errors import AirunnerError

    if isinstance(error, AirunnerError):
        say(error.operator_text)
    elif isinstance(error, ConfigError | OSError):
        say(str(error))
    else:
        import traceback

        traceback.print_exception(error)
        return ExitCode.AIRUNNER_FAILED
    return of_error(error)


def _leave(code: int) -> NoReturn:
    """Exit without tearing down the interpreter.

    The HTTP library has threads of its own. One that returns to Python while the interpreter goes away aborts
    the process, and the exit code with it.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  there is no public way to run them before leaving
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _reader_gone() -> int:
    # What is still buffered would fail again when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.READER_GONE
