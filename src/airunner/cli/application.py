"""The application: which commands there are, and where each of them is."""

from __future__ import annotations

from typing import Final

from cyclopts import App, Group, Parameter

from airunner import __version__

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


def build_app(*, describe: bool = False, command: str = "") -> App:
    """Return the application with all of its commands; `describe` loads them all, for their descriptions.

    With the name of one as `command`, the others are left out: the parser looks at all that it knows.
    """
    app = App(
        name="airunner",
        help="Run jobs on workers, watch every line of their output live, and never lose a job.",
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        suppress_keyboard_interrupt=False,
    )
    app["--help"].group = app["--version"].group = ABOUT
    for order, (name, (function, group)) in enumerate(COMMANDS.items()):
        if command in COMMANDS and name != command:
            continue
        app.command(f"airunner.cli.commands.{function}", name=name, group=group, sort_key=order)
    if describe:
        load_commands(app)
    return app


def load_commands(group: App) -> None:
    """Load all commands of a group, for their descriptions; one that is a group keeps its own for later."""
    for name in group:
        _ = group[name]
