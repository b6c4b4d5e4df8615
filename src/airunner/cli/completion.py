"""`airunner completion`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

Shell = Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that shall complete.")]


def completion(shell: Shell, /) -> None:
    """Print a script that lets a shell complete commands and options.

    For bash: source <(airunner completion bash). For zsh, save it as _airunner in a folder of fpath; for
    fish, as ~/.config/fish/completions/airunner.fish.
    """
    from airunner.cli.main import build_app

    print(build_app(describe=True).generate_completion(shell=shell))
