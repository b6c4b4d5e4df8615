"""The secret variables of this process, when what it starts must not see them.

The environment that a program was started with stays readable below /proc for other processes of its user.
So a program that runs jobs starts again without its secrets, and is handed them through a socket, which
nobody else can open: see `airunner.worker.secrets.concealment`.
"""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Final

from airunner.config.layers import known_variables
from airunner.config.settings import secret_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

DESCRIPTOR_VARIABLE: Final = "AIRUNNER_SECRETS_FD"
_READ_BYTES: Final = 64 * 1024

# Kept beside os.environ, so that no process inherits them by accident.
_handed_over: dict[str, str] = {}


def own_variables() -> dict[str, str]:
    """Return the variables that settings are read from: the environment, and what was handed over."""
    return {**os.environ, **_handed_over}


def exposed_secrets() -> dict[str, str]:
    """Return the variables of the environment that hold a secret setting."""
    known, secret = known_variables(), secret_paths()
    return {name: text for name, text in os.environ.items() if text and known.get(name) in secret}


def environment_handing_over(secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program that replaces this one: a descriptor in the place of secrets.

    The descriptor is inherited. OSError if they cannot be handed over.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)  # more than fits is an error, since nobody reads yet
        ours.sendall(json.dumps(secrets).encode())
        descriptor = os.dup(theirs.fileno())
    os.set_inheritable(descriptor, True)
    kept = {name: text for name, text in os.environ.items() if name not in exposed_secrets()}
    return {**kept, DESCRIPTOR_VARIABLE: str(descriptor)}


def take_over_secrets() -> None:
    """Take what the program before this one handed over, if it did; once."""
    descriptor = os.environ.pop(DESCRIPTOR_VARIABLE, "")
    if not descriptor.isdigit():
        return
    with socket.socket(fileno=int(descriptor)) as theirs:
        content = b""
        while piece := theirs.recv(_READ_BYTES):
            content += piece
    _handed_over.update(json.loads(content))
