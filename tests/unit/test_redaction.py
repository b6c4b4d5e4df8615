from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.job import JobParams
from airunner.worker.secrets.forms import secret_values
from airunner.worker.secrets.redaction import LineRedactor, Redactor

KEY = b"-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7/x+Zq\nq1w2e3r4t5y6\n-----END KEY-----\n"
AWKWARD = 'p@ss "w/ö\\rd" <&~>'.encode()

secrets = st.one_of(
    st.text(alphabet="abXY", min_size=6, max_size=12),
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=6, max_size=30
    ),
).map(str.encode)
contents = st.one_of(st.binary(max_size=20), st.text(alphabet="abXY \n", max_size=20).map(str.encode))


def redact(secrets: Iterable[bytes], *chunks: bytes) -> bytes:
    redactor = Redactor(secrets)
    return b"".join([*map(redactor.feed, chunks), redactor.flush()])


def cut(text: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(position % (len(text) + 1) for position in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def encodings(secret: bytes) -> dict[str, bytes]:
    """What programs print for a value; made apart from the code under test."""
    text = secret.decode()
    url = quote(secret, safe="")
    return {
        "plain": secret,
        "base64": base64.b64encode(secret),
        "base64 for URLs": base64.urlsafe_b64encode(secret),
        "URL": url.encode(),
        "URL in lower case": "".join(
            quote(c, safe="").lower() if quote(c, safe="") != c else c for c in text
        ).encode(),
        "URL with plus": quote_plus(secret).encode(),
        "URL path": quote(secret).encode(),
        "JSON": json.dumps(text)[1:-1].encode(),
        "JSON in UTF-8": json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        "terminal": secret.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    }


@pytest.mark.parametrize("secret", [b"hunter2-hunter2", AWKWARD, KEY], ids=["word", "awkward", "key"])
@pytest.mark.parametrize("encoding", list(encodings(b"secret")))
def test_every_form_is_redacted_wherever_it_is_cut(secret: bytes, encoding: str) -> None:
    form = encodings(secret.strip())[encoding]
    text = b"before " + form + b" after\n"
    for position in range(len(text) + 1):
        assert redact([secret], text[:position], text[position:]) == b"before [redacted] after\n"
    assert redact([secret], *(text[n : n + 1] for n in range(len(text)))) == b"before [redacted] after\n"


@given(st.lists(secrets, min_size=1, max_size=3), st.data())
def test_no_form_of_a_secret_is_ever_shown(values: list[bytes], data: st.DataObject) -> None:
    forms = [form for value in values for form in encodings(value).values()]
    parts = data.draw(st.lists(st.one_of(st.sampled_from(forms), contents), max_size=8))
    text = b"".join(parts)
    shown = redact(values, *cut(text, data.draw(st.lists(st.integers(0, 400), max_size=8))))
    assert shown == redact(values, text)
    for form in forms:
        assert form not in shown.replace(b"[redacted]", b"\0")


@given(secrets, st.binary(max_size=40), st.binary(max_size=40), st.booleans(), st.integers(0, 200))
def test_base64_of_a_longer_text_is_redacted(
    secret: bytes, before: bytes, after: bytes, for_urls: bool, position: int
) -> None:
    encode = base64.urlsafe_b64encode if for_urls else base64.b64encode
    text = encode(before + secret + after)
    shown = redact([secret], *cut(text, [position]))
    first, *_, last = shown.split(b"[redacted]")
    blanks = len(secret) - len(secret.lstrip()), len(secret) - len(secret.rstrip())
    # At each side one character may remain that the neighbours have a part in.
    assert len(first) < (len(before) + blanks[0]) * 4 / 3 + 1
    assert len(last.rstrip(b"=")) < (len(after) + blanks[1]) * 4 / 3 + 2


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("before", range(40, 60))
def test_base64_wrapped_into_lines_is_redacted(width: int, end: bytes, before: int) -> None:
    secret = bytes(range(65, 85))
    lines = textwrap.wrap(base64.b64encode(b"." * before + secret + b"." * 80).decode(), width)
    text = end.join(line.encode() for line in lines) + end
    whole = redact([secret], text)
    assert whole.count(b"[redacted]") == 1
    # All that is left is what the neighbours of the secret have a part in.
    first, last = (part.translate(None, b"\r\n") for part in whole.split(b"[redacted]"))
    assert len(first) == -(-before * 8 // 6)
    assert len(last) <= sum(map(len, lines)) - (before + len(secret)) * 8 // 6
    for position in range(len(text)):
        assert redact([secret], text[:position], text[position:]) == whole
    assert redact([secret], *text.splitlines(keepends=True)) == whole


@given(secrets, st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_text_without_secrets_passes_unchanged(secret: bytes, text: bytes, places: list[int]) -> None:
    secret = b"\xf0\x9f\x94\x91" + secret
    text = text.replace(b"\xf0", b"").replace(b"8J", b"")
    assert redact([secret], *cut(text, places)) == text


def test_only_the_prefix_of_a_form_is_held_back() -> None:
    redactor = Redactor([b"hunter2-hunter2"])
    assert redactor.feed(b"Password: ") == b"Password: "
    assert redactor.feed(b"a line\n") == b"a line\n"
    assert redactor.feed(b"the hunt") == b"the "
    assert redactor.feed(b"ing of ") == b"hunting of "
    assert redactor.feed(b"hunter2-hunter") == b""
    assert redactor.feed(b"2") == b"[redacted]"
    assert redactor.feed(b"aHVu") == b""
    assert redactor.feed(b"\n") == b"aHVu\n"
    assert redactor.flush() == b""


def test_a_whole_line_waits_only_if_it_may_be_wrapped_base64() -> None:
    redactor = Redactor([b"hunter2-hunter2"])
    assert redactor.feed(b"word " * 20 + b"aHVu\n") == b"word " * 20 + b"aHVu\n"
    assert redactor.feed(b"A" * 72 + b"aHVu\n") == b"A" * 72
    assert redactor.feed(b"other\n") == b"aHVu\nother\n"


def test_the_longest_secret_wins_also_when_it_comes_late() -> None:
    both = [b"abcdef", b"abcdefgh"]
    assert redact(both, b"<abcdef", b"gh>") == b"<[redacted]>"
    assert redact(both, b"<abcdef", b"gx>") == b"<[redacted]gx>"
    assert redact([b"abcdef", b"xxabcdefyy"], b"<xxabcdef", b"y>") == b"<xx[redacted]y>"


def test_overlapping_secrets_become_one_mark() -> None:
    both = [b"abcdef", b"defghi"]
    for position in range(10):
        text = b"<abcdefghi>"
        assert redact(both, text[:position], text[position:]) == b"<[redacted]>"
    assert redact(both, b"<abcdef", b"gx>") == b"<[redacted]gx>"
    assert redact([b"ababab"], b"abab", b"abab", b"ababa.") == b"[redacted]a."


def test_blanks_around_a_secret_do_not_hide_it() -> None:
    assert redact([b" token-1\n"], b"<token-1>\n") == b"<[redacted]>\n"


def test_streams_are_redacted_apart_and_stay_lines() -> None:
    redactor = LineRedactor([b"hunter2-hunter2"])
    assert redactor.feed([b"one\n", b"hunter2"], False) == [b"one\n"]
    assert redactor.feed([b"-hunter2\n"], True) == [b"-hunter2\n"]
    assert redactor.feed([b"-hunter2 two\n", b"three\n", b"h"], False) == [b"[redacted] two\n", b"three\n"]
    assert redactor.text("no hunter2-hunter2 here") == "no [redacted] here"
    assert redactor.flush(False) == [b"h"]
    assert redactor.flush(True) == []


def test_values_are_secret_by_the_jobs_word_or_by_a_pattern_of_the_worker() -> None:
    params = JobParams(
        command="make",
        environment={
            "MINE": "chosen-by-job",
            "A_TOKEN": "by-pattern",
            "B_TOKEN": "short",
            "C_TOKEN": "sixsix",
            "PLAIN": "visible",
        },
        secret_names=("MINE",),
    )
    base = {"A_TOKEN": "overridden", "HOME": "/home/worker"}
    assert secret_values(params, base, ()) == {b"chosen-by-job"}
    assert secret_values(params, base, ("*_TOKEN",)) == {
        b"chosen-by-job",
        b"by-pattern",
        b"overridden",
        b"sixsix",
    }
    assert secret_values(JobParams(command="make"), base, ()) == frozenset()
