from __future__ import annotations

import subprocess
import sys

import pytest

import airunner


def test_the_package_is_cheap_until_the_client_is_wanted() -> None:
    script = (
        "import sys, airunner\n"
        "assert not {'connectrpc', 'google.protobuf', 'asyncio'} & set(sys.modules)\n"
        "from airunner import AsyncClient, Client, EventBuffer\n"
        "assert not {'uvicorn', 'starlette', 'sqlite3'} & set(sys.modules)\n"
        "print(Client.__name__, AsyncClient.__name__, EventBuffer.__name__)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "Client AsyncClient EventBuffer\n"


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="Klient"):
        _ = airunner.Klient
