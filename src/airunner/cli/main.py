"""The command line: which commands there are, and how each of them may end."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from cyclopts import App, CycloptsError, Group, Parameter

from airunner import __version__
from airunner.cli.arguments import with_visible_divider
from airunner.cli.exit_codes import ExitCode, of_error
from airunner.cli.printing import say

if TYPE_CHECKING:
    from collections.abc import Sequence

TRY: Final = Group("Try it", sort_key=1)
JOBS: Final = Group("Jobs", sort_key=2)
QUEUES: Final = Group("Queues and workers", sort_key=3)
SERVING: Final = Group("Serve", sort_key=4)
ABOUT: Final = Group("About", sort_key=5)

# Each command is imported when it is used: most runs of the CLI need one of them, and shall be quick.
COMMANDS: Final = {
    "demo": ("demo:demo", TRY),
    "dev": ("dev:dev", TRY),
    "run": ("run:run", JOBS),
    "submit": ("submit:submit", JOBS),
    "monitor": ("monitor:monitor", JOBS),
    "logs": ("logs:logs", JOBS),
    "list": ("list:list_jobs", JOBS),
    "get": ("get:get", JOBS),
    "why": ("why:why", JOBS),
    "cancel": ("cancel:cancel", JOBS),
    "retry": ("retry:retry", JOBS),
    "queues": ("queues:queues", QUEUES),
    "workers": ("workers:workers", QUEUES),
    "dlq": ("dlq:dlq", QUEUES),
    "settings": ("settings:settings", QUEUES),
    "server": ("server:server", SERVING),
    "worker": ("worker:worker", SERVING),
    "outbox": ("outbox:outbox", SERVING),
    "generation": ("generation:generation", SERVING),
    "fleet": ("fleet:fleet", SERVING),
    "diag": ("diag:diag", SERVING),
    "keys": ("keys:keys", SERVING),
    "backup": ("backup:backup", SERVING),
    "restore": ("restore:restore", SERVING),
    "aws": ("aws:aws", SERVING),
    "config": ("config:config", ABOUT),
    "completion": ("completion:completion", ABOUT),
    "version": ("version:version", ABOUT),
}


# Those that run jobs, or start what does: their secrets are none of the jobs' business.
RUN_JOBS: Final = (("demo",), ("dev",), ("worker",), ("fleet", "runner"))


def build_app(*, describe: bool = False) -> App:
    """Return the application with all of its commands; `describe` loads them all, for their descriptions."""
    app = App(
        name="airunner",
        help="Run long jobs anywhere, watch every line of them live, and never lose one.",
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        suppress_keyboard_interrupt=False,
    )
    app["--help"].group = app["--version"].group = ABOUT
    for order, (name, (function, group)) in enumerate(COMMANDS.items()):
        app.command(f"airunner.cli.commands.{function}", name=name, group=group, sort_key=order)
        if describe:
            _ = app[name]
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says and exit with its code."""
    _open_standard_streams()
    if arguments is None and any(tuple(sys.argv[1 : 1 + len(words)]) == words for words in RUN_JOBS):
        _conceal_secrets()
    _leave(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: Sequence[str]) -> int:
    """Do what the arguments say; return the exit code. No error is shown as a traceback."""
    try:
        app = build_app(describe=not arguments or arguments[0].startswith("-"))
        code = app(
            with_visible_divider(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except CycloptsError as error:
        say(f"{error}\nsee 'airunner --help'")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # noqa: BLE001  what nobody expects is shown in full
        return _explained(error)
    return int(code or ExitCode.OK)


def _open_standard_streams() -> None:
    """Put nothing in the place of streams that are closed: the next file would get what is meant for them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


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
        say(error.text)
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
