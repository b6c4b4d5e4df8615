"""Who signs task tokens, from settings."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from airunner.app.stores import store_kind

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.config import Settings
    from airunner.domain.token import TokenSigner


def build_signer(settings: Settings) -> TokenSigner:
    """Return the signer of task tokens: with the keys that are set, or else with one that is made here.

    Where servers have no folder in common, a missing key is a ConfigError.
    """
    import secrets

    from airunner.config import ConfigError
    from airunner.domain.token import MIN_KEY_BYTES, TokenSigner
    from airunner.stores.registry import TokenKeys

    keys = [key.get_secret_value().encode() for key in settings.token_keys]
    if any(len(key) < MIN_KEY_BYTES for key in keys):
        raise ConfigError([f"token_keys: each must have at least {MIN_KEY_BYTES} bytes"])
    source = store_kind(settings).token_keys
    if not keys and source is TokenKeys.MUST_BE_SET:
        raise ConfigError([
            f"token_keys: must be set with store.type {settings.store.type}, the same on all servers; "
            "set AIRUNNER_TOKEN_KEYS, for example to the output of: openssl rand -hex 32"
        ])  # fmt: skip
    if not keys:
        kept = source is TokenKeys.KEPT_IN_FOLDER
        keys = [_kept_token_key(settings.data_dir) if kept else secrets.token_bytes(32)]
    return TokenSigner(keys)


def _kept_token_key(directory: Path) -> bytes:
    """Return the key of a data folder; the file appears whole or not at all, whenever we are killed."""
    import secrets
    import tempfile

    from airunner.stores.sqlite.store import TOKEN_KEY

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / TOKEN_KEY
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=directory) as draft:
            draft.write(secrets.token_hex(32))
            draft.flush()
            os.fsync(draft.fileno())
            # Unlike a rename, it never replaces the key of a server that was quicker.
            with suppress(FileExistsError):
                os.link(draft.name, path)
    return bytes.fromhex(path.read_text().strip())
