"""Writing a piece of an answer at once: as its cycle would, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airunner.server.guarded_protocol import WriteNow


class Transport:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def cycle_of(**differing: Any) -> Any:
    usual = {
        "response_started": True,
        "response_complete": False,
        "disconnected": False,
        "chunked_encoding": True,
        "flow": SimpleNamespace(write_paused=False),
        "transport": Transport(),
    }
    return SimpleNamespace(**usual | differing)


def test_a_piece_is_written_as_a_chunk() -> None:
    cycle = cycle_of()
    assert WriteNow(cycle)(b"0123456789abcdef")
    assert cycle.transport.written == b"10\r\n0123456789abcdef\r\n"


@pytest.mark.parametrize(
    "differing",
    [
        {"response_started": False},
        {"response_complete": True},
        {"disconnected": True},
        {"chunked_encoding": False},
        {"flow": SimpleNamespace(write_paused=True)},
    ],
    ids=lambda differing: next(iter(differing)),
)
def test_nothing_is_written_where_it_would_wait_or_do_harm(differing: dict[str, Any]) -> None:
    cycle = cycle_of(**differing)
    assert not WriteNow(cycle)(b"piece")
    assert cycle.transport.written == b""
