"""Messages between a worker and its handler processes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from airunner.worker.handlers.frames import encode, receive


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_arrive_whole_and_in_order(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    sent: list[list[object]] = [["output", "x" * 50_000, True], ["stop"], ["progress", 1, 2, "\ud800\n"]]
    theirs.sendall(b"".join(encode(*message) for message in sent))
    theirs.shutdown(socket.SHUT_WR)
    assert list(receive(ours)) == sent


@pytest.mark.parametrize(
    "bad",
    [
        encode("cut off")[:-1],
        b"\0\0",
        struct.pack(">I", 2**31) + b"too large",
        struct.pack(">I", 3) + b"{]}",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"\xff\xff",
    ],
    ids=["cut", "cut in its length", "too large", "no JSON", "no message", "empty", "no text"],
)
def test_what_is_no_message_is_the_end(ends: tuple[socket.socket, socket.socket], bad: bytes) -> None:
    ours, theirs = ends
    theirs.sendall(encode("first") + bad)
    theirs.shutdown(socket.SHUT_WR)
    assert list(receive(ours)) == [["first"]]


def test_a_socket_that_is_closed_meanwhile_is_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    messages = receive(ours)
    ours.close()
    assert list(messages) == []
