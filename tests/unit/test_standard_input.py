"""Whether somebody piped something in, told without waiting."""

from __future__ import annotations

import os
import pty
import socket
import sys
from pathlib import Path

import pytest

from airunner.cli import standard_input
from airunner.cli.standard_input import has_data, refuse_piped_input
from airunner.domain.errors import InvalidArgument


def test_a_pipe_has_data_once_somebody_wrote() -> None:
    reader, writer = os.pipe()
    assert not has_data(reader), "open and silent"
    os.write(writer, b"echo hi\n")
    assert has_data(reader)
    os.read(reader, 100)
    assert not has_data(reader)
    os.write(writer, b"x")
    os.close(writer)
    assert has_data(reader), "whoever wrote it may be gone"
    os.read(reader, 100)
    assert not has_data(reader), "at its end"
    os.close(reader)


def test_a_socket_has_data_once_somebody_wrote() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not has_data(ours.fileno())
        theirs.send(b"x")
        assert has_data(ours.fileno())


def test_a_file_has_data_up_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(b"echo hi\n")
    (tmp_path / "empty").touch()
    with (tmp_path / "script").open("rb") as script, (tmp_path / "empty").open("rb") as empty:
        assert has_data(script.fileno())
        assert not has_data(empty.fileno())
        os.lseek(script.fileno(), 0, os.SEEK_END)
        assert not has_data(script.fileno())


def test_what_is_no_pipe_has_none(tmp_path: Path) -> None:
    with Path(os.devnull).open("rb") as null, Path("/dev/zero").open("rb") as zero:
        assert not has_data(null.fileno())
        assert not has_data(zero.fileno())
    folder = os.open(tmp_path, os.O_RDONLY)
    assert not has_data(folder)
    os.close(folder)
    assert not has_data(folder), "closed"
    ours, theirs = pty.openpty()
    os.write(ours, b"typed ahead\n")
    assert not has_data(theirs)
    os.close(ours)
    os.close(theirs)


def test_only_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(standard_input, "STANDARD_INPUT", reader)
    refuse_piped_input()
    os.write(writer, b"x")
    with pytest.raises(InvalidArgument, match="/dev/null"):
        refuse_piped_input()
    # Python's sign that it was started without: the number may be another file's by now.
    monkeypatch.setattr(sys, "stdin", None)
    refuse_piped_input()
    os.close(reader)
    os.close(writer)
