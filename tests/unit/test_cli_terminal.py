"""What reaches a terminal: text and colours, whatever a job writes and however it is cut."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.cli.screen.output_streams import ExactStream, TerminalStream
from airunner.cli.screen.terminal import StatusLine, TerminalText, wrap

SGR = re.compile(r"\x1b\[[0-9;:]*m")
PIECES = (
    *(
        b"\x1b",
        b"[",
        b"]",
        b"31m",
        b"0;",
        b"title",
        b"\x07",
        b"\\",
        b"2J",
        b"\r",
        b"\n",
        b"\t",
        b"P",
        b"\x9b",
    ),
    *(b"\xc2\x9b", b"\xc3\xa4", b"\x00", b"text", b"\xff", b"?25l", b" ", b"(B", b"\x7f", b"#8"),
)
HOSTILE = st.lists(st.sampled_from(PIECES)).map(b"".join)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"plain \xc3\xa4\n", "plain ä\n"),
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        (b"\x1b[38:2::1:2:3mtrue\x1b[m", "\x1b[38:2::1:2:3mtrue\x1b[m"),
        (b"a\x1b[2Jb\x1b[10;10Hc\x1b[?25ld", "abcd"),
        (b"\x1b]0;title\x07x\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        (b"\x1bPq#0\x1b\\\x1bcdone", "done"),
        (b"bell\x07 back\x08 del\x7f nul\x00", "bell back del nul"),
        ("eight\u009b31mbit".encode(), "eight31mbit"),
        (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
        (b"tab\tkept", "tab\tkept"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\x1b]0;never ends\nnext", "0;never ends\nnext"),
    ],
)
def test_only_text_and_colours_pass(written: bytes, shown: str) -> None:
    text = TerminalText()
    assert text.feed(written) + text.finish() == shown


def test_without_colours_not_even_they_pass() -> None:
    text = TerminalText(colours=False)
    assert text.feed(b"\x1b[31mred\x1b[0m") + text.finish() == "red"


@given(HOSTILE)
def test_nothing_else_ever_passes(written: bytes) -> None:
    text = TerminalText()
    shown = text.feed(written) + text.finish()
    rest = SGR.sub("", shown)
    assert all(char in "\n\t" or ord(char) >= 0x20 for char in rest)
    assert not re.search("[\x7f-\x9f]", rest)


@given(HOSTILE, st.integers(min_value=0))
def test_where_output_is_cut_makes_no_difference(written: bytes, cut: int) -> None:
    whole, parted = TerminalText(), TerminalText()
    at = cut % (len(written) + 1)
    assert whole.feed(written) + whole.finish() == (
        parted.feed(written[:at]) + parted.feed(written[at:]) + parted.finish()
    )


def test_an_endless_sequence_does_not_hold_output_back() -> None:
    text = TerminalText()
    assert len(text.feed(b"\x1b]" + b"x" * 5000)) == 5000


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("short", ["short"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("\x1b[31m0123456789\x1b[0mab", ["\x1b[31m0123456789\x1b[0m", "ab"]),
        ("日本語日本語", ["日本語日本", "語"]),
        ("a\tbcdefgh", ["a\tbc", "defgh"]),
        ("", [""]),
    ],
)
def test_lines_are_wrapped_by_columns(line: str, pieces: list[str]) -> None:
    assert wrap(line, 10) == pieces


def test_a_tab_ends_where_the_terminal_says() -> None:
    """Right of 25 columns the next stop is 7 further, not 8."""
    assert wrap("\tab", 9, 25) == ["\tab"]
    assert wrap("\tabc", 9, 25) == ["\tab", "c"]
    assert wrap("1234567\t", 9, 25) == ["1234567", "\t"]


def test_exact_bytes_stay_exact() -> None:
    stream = io.BytesIO()
    output = ExactStream(stream)
    for piece in (b"\x1b[2J", b"\xff\r\n", b"end"):
        output.write(piece, 0)
    assert stream.getvalue() == b"\x1b[2J\xff\r\nend"
    assert not output.at_line_start


def test_timestamps_stand_at_the_start_of_lines_only() -> None:
    stream = io.BytesIO()
    output = ExactStream(stream, timestamps=True)
    output.write(b"half", 1_000)
    output.write(b" line\nnext\n", 2_500)
    assert stream.getvalue() == b"1970-01-01T00:00:01.000Z half line\n1970-01-01T00:00:02.500Z next\n"


def test_standard_error_is_red_where_there_are_colours() -> None:
    coloured, plain = io.StringIO(), io.StringIO()
    for stream, colours in ((coloured, True), (plain, False)):
        output = TerminalStream(stream, colours=colours, red=True)
        output.write(b"bad\n", 0)
        output.finish()
    assert coloured.getvalue() == "\x1b[31mbad\x1b[0m\n\x1b[0m"
    assert plain.getvalue() == "bad\n"


def test_a_line_that_is_not_finished_is_finished_at_the_end() -> None:
    stream = io.StringIO()
    output = TerminalStream(stream, colours=False, red=False)
    output.write(b"prompt> ", 0)
    assert not output.at_line_start
    output.finish()
    assert stream.getvalue() == "prompt> \n"


def test_the_status_line_is_cleared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = io.StringIO()
    status = StatusLine(stream, enabled=True)
    status.draw("0123456789abc")
    status.clear()
    status.clear()
    assert stream.getvalue() == "\r\x1b[0m\x1b[2K\x1b[2m012345678\x1b[0m\r\x1b[2K"


def test_without_a_terminal_there_is_no_status_line() -> None:
    stream = io.StringIO()
    status = StatusLine(stream, enabled=False)
    status.draw("event 1")
    status.clear()
    assert stream.getvalue() == ""
