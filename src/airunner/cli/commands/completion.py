"""`airunner completion`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

Shell = Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell to write the script for.")]

# The generated function is reached only in a file of its own name; ours is reached in any. Either the script
# is called by the completion system, or it is sourced, and the system has to hear of it.
_ZSH_END: Final = """
_airunner_matches() {
  # An argument that may be anything makes zsh insert nothing, also where an option was begun.
  local insert=$compstate[insert] found
  _cyclopts_airunner "$@"
  found=$?
  (( compstate[nmatches] )) && compstate[insert]=$insert
  return found
}
if (( $+compstate )); then _airunner_matches "$@"; else compdef _airunner_matches airunner; fi
"""


def completion(shell: Shell, /) -> None:
    """Print a script that completes commands and options in a shell.

    For bash: source <(airunner completion bash). For zsh, save it as _airunner in a folder of fpath; for
    fish, as ~/.config/fish/completions/airunner.fish.
    """
    from airunner.cli.application import build_app

    app = build_app(describe=True)
    ends = {"bash": "", "zsh": _ZSH_END, "fish": _fish_end(app)}
    print(app.generate_completion(shell=shell) + ends[shell])


def _fish_end(app: App) -> str:
    """Say where no file is wanted, but the name of a command; fish would offer both."""
    from airunner.cli.application import COMMANDS

    groups = [name for name in COMMANDS if any(not word.startswith("-") for word in app[name])]
    lines = (f"complete -c airunner -n '__fish_airunner_using_command {name}' -f\n" for name in ("", *groups))
    return "\n" + "".join(lines)
