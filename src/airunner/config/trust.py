"""What a file that merely lies in the current folder may not decide: who gets a key, and which code is run.

Whoever changes into a folder of somebody else has not read its `.env` and `airunner.yaml`. A file that is
named with `--config` counts as read. AIRUNNER_TRUST_FOLDER=1 vouches for both, but not in `.env` itself.
"""

from __future__ import annotations

from typing import Final

from airunner.config.errors import ConfigError
from airunner.config.loading import TRUST_VARIABLE, Loaded

_KEY: Final = "client.api_key"
_ADDRESSES: Final = ("client.server", "client.events_server")
_DIAG_ADDRESSES: Final = ("diag.base_url",)
_HANDLERS: Final = ("worker.handlers", "generation.handlers")


def check_key_destination(loaded: Loaded, *, is_diag: bool = False) -> None:
    """Refuse to send a key to an address that a file of the current folder names, unless both are its own."""
    if loaded.settings.client.api_key is None or _KEY in loaded.from_folder:
        return
    problems = [
        f"{path} comes from this folder ({loaded.origins[path]}), but {_KEY} does not "
        f"({loaded.origins[_KEY]}): your key is not sent to an address that a folder names. "
        f"{_remedy('--server')}"
        for path in (*_ADDRESSES, *(_DIAG_ADDRESSES if is_diag else ()))
        if path in loaded.from_folder
    ]
    if problems:
        raise ConfigError(problems)


def check_handler_origins(loaded: Loaded) -> None:
    """Refuse to run code that only a file of the current folder asks for."""
    problems = [
        f"{path} comes from this folder ({loaded.origins[path]}): code that a folder names is not run. "
        f"{_remedy('--handlers')}"
        for path in _HANDLERS
        if path in loaded.from_folder
    ]
    if problems:
        raise ConfigError(problems)


def _remedy(flag: str) -> str:
    return f"Set it with {flag}, name the file with --config, or trust the folder with {TRUST_VARIABLE}=1"
