"""Lines out of events, however they were cut, and which of them are wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Event, Gap, Output, StreamType
from airunner.reading import log_lines
from airunner.reading.log_lines import LineAssembly, LineFilter, LogLine

OUT, ERR = StreamType.STDOUT, StreamType.STDERR


def event(sequence: int, output: bytes, stream: StreamType = OUT, attempt: int = 1) -> Event:
    return Event(sequence=sequence, timestamp=sequence * 1000, data=Output(output, stream), attempt=attempt)


def assemble(*events: Event, from_start: bool = True) -> list[LogLine]:
    assembly = LineAssembly(from_start=from_start)
    return [line for each in events for line in assembly.feed(each)] + assembly.finish()


def line(content: bytes, stream: StreamType = OUT) -> LogLine:
    return LogLine(attempt=1, sequence=1, timestamp=1, stream=stream, content=content)


def test_pieces_become_lines_under_the_place_of_the_first() -> None:
    lines = assemble(event(1, b"one"), event(2, b" and more\ntwo\nthr"), event(3, b"ee"), event(4, b"\n"))
    assert [(each.sequence, each.timestamp, each.content) for each in lines] == [
        (1, 1000, b"one and more\n"),
        (2, 2000, b"two\n"),
        (2, 2000, b"three\n"),
    ]
    assert all(each.starts for each in lines)


def test_the_streams_do_not_mix_within_a_line() -> None:
    lines = assemble(event(1, b"out "), event(2, b"err\n", ERR), event(3, b"goes on\n"), event(4, b"?", ERR))
    assert [(each.stream, each.content) for each in lines] == [
        (ERR, b"err\n"),
        (OUT, b"out goes on\n"),
        (ERR, b"?"),
    ]


def test_an_attempt_ends_the_lines_of_the_one_before() -> None:
    lines = assemble(event(1, b"lost in the mid"), event(1, b"again\n", attempt=2))
    assert [(each.attempt, each.content, each.starts) for each in lines] == [
        (1, b"lost in the mid", True),
        (2, b"again\n", True),
    ]


def test_who_begins_later_cannot_know_whether_the_first_lines_are_whole() -> None:
    lines = assemble(
        event(7, b"rest\n"),
        event(8, b"x\n", ERR),
        event(9, b"next\n"),
        event(10, b"y\n", ERR),
        event(1, b"anew\n", attempt=2),
        from_start=False,
    )
    assert [each.starts for each in lines] == [False, False, True, True, True]


def test_no_line_is_put_together_across_a_gap() -> None:
    gap = Gap(first_sequence=3, last_sequence=90, reason="the spool was damaged")
    lines = assemble(
        event(1, b"total: 1"),
        event(2, b"whole\n", ERR),
        Event(sequence=3, timestamp=3000, data=gap, attempt=1),
        event(91, b"00 errors\n"),
        event(92, b"maybe half\n", ERR),
        event(93, b"whole\n"),
    )
    assert [(each.sequence, each.content, each.starts) for each in lines] == [
        (2, b"whole\n", True),
        (1, b"total: 1", True),
        (91, b"00 errors\n", False),
        (92, b"maybe half\n", False),
        (93, b"whole\n", True),
    ]


def test_endless_lines_are_cut_and_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_LONGEST_LINE", 4)
    lines = assemble(event(1, b"123456"), event(2, b"78\n9\n"))
    assert [(each.content, each.starts) for each in lines] == [
        (b"1234", True),
        (b"5678", False),
        (b"\n", False),
        (b"9\n", True),
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from([OUT, ERR]), st.binary(max_size=9).map(lambda b: b.replace(b"a", b"\n")))
    )
)
def test_no_byte_of_a_stream_is_lost_or_moved(pieces: list[tuple[StreamType, bytes]]) -> None:
    lines = assemble(*(event(at, piece, stream) for at, (stream, piece) in enumerate(pieces, 1)))
    for stream in (OUT, ERR):
        written = b"".join(piece for kind, piece in pieces if kind is stream)
        shown = [each.content for each in lines if each.stream is stream]
        assert b"".join(shown) == written
        assert all(content.count(b"\n") == content.endswith(b"\n") for content in shown)


@pytest.mark.parametrize(
    ("pattern", "options", "content", "wanted"),
    [
        (None, {}, b"anything\n", True),
        ("err", {}, b"an error\n", True),
        ("ERR", {}, b"an error\n", False),
        ("ERR", {"ignore_case": True}, b"an error\n", True),
        ("err", {"invert": True}, b"an error\n", False),
        ("err", {"invert": True}, b"all is well\n", True),
        ("^error$", {}, b"error\r\n", True),
        ("\ufffd", {}, b"\xff\n", True),
        ("ü", {}, "grün\n".encode(), True),
        ("", {}, b"\n", True),
        (None, {"stream": ERR}, b"x\n", False),
        (None, {"stream": OUT}, b"x\n", True),
    ],
)
def test_a_filter_searches_the_text_of_a_line(
    pattern: str | None, options: dict[str, bool], content: bytes, wanted: bool
) -> None:
    assert LineFilter(pattern, **options).wants(line(content)) is wanted  # type: ignore[arg-type]  # a table


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is not a regular expression"):
        LineFilter("(")


def test_matches_are_marked_and_the_rest_is_left() -> None:
    assert LineFilter("o+").mark(line(b"foo bo\n"), "<", ">") == b"f<oo> b<o>\n"
    assert LineFilter("x*").mark(line(b"no match"), "<", ">") == b"no match"
    assert LineFilter("o", invert=True).mark(line(b"x\xff\n"), "<", ">") == b"x\xff\n"
    assert LineFilter().mark(line(b"x\xff\n"), "<", ">") == b"x\xff\n"
