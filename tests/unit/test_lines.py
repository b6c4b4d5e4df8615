from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.lines import MAX_LINE_BYTES, LineSplitter

# A small alphabet, so that newlines, carriage returns and runs without either are all frequent.
chunks = st.lists(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\0"]), max_size=40).map(b"".join))


@given(chunks=chunks, max_line_bytes=st.integers(1, 9))
def test_what_comes_out_joined_is_what_went_in(chunks: list[bytes], max_line_bytes: int) -> None:
    splitter = LineSplitter(max_line_bytes)
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    assert b"".join(pieces) + (splitter.flush() or b"") == b"".join(chunks)


@given(chunks=chunks, max_line_bytes=st.integers(1, 9))
def test_every_piece_is_a_whole_line_or_full(chunks: list[bytes], max_line_bytes: int) -> None:
    splitter = LineSplitter(max_line_bytes)
    for chunk in chunks:
        for piece in splitter.feed(chunk):
            assert 0 < len(piece) <= max_line_bytes
            assert b"\n" not in piece[:-1]
            assert piece.endswith(b"\n") or len(piece) == max_line_bytes


@given(chunks=chunks, max_line_bytes=st.integers(1, 9))
def test_only_the_start_of_a_line_is_held_back(chunks: list[bytes], max_line_bytes: int) -> None:
    splitter = LineSplitter(max_line_bytes)
    for chunk in chunks:
        splitter.feed(chunk)
    assert splitter.pending == bool(tail := splitter.flush() or b"")
    assert b"\n" not in tail
    assert len(tail) < max_line_bytes
    assert not splitter.pending


def test_a_line_over_several_chunks_comes_as_one() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one\n"]
    assert splitter.feed(b"o") == []
    assert splitter.feed(b"\n\nthree\r") == [b"two\n", b"\n"]
    assert splitter.feed(b"\n") == [b"three\r\n"]


def test_nothing_held_back_is_nothing_to_flush() -> None:
    splitter = LineSplitter()
    assert splitter.flush() is None
    splitter.feed(b"rest")
    assert splitter.flush() == b"rest"
    assert splitter.flush() is None


def test_single_bytes_of_a_long_line_do_not_cost_quadratic_time() -> None:
    splitter = LineSplitter(max_line_bytes=MAX_LINE_BYTES * 16)
    began = time.process_time()
    for _ in range(MAX_LINE_BYTES * 16 - 1):
        splitter.feed(b"x")
    # Copying the tail at each of the million bytes would move 500 GB.
    assert time.process_time() - began < 20
    assert splitter.feed(b"x") == [b"x" * MAX_LINE_BYTES * 16]
