"""Which values are secret, and the forms in which they show up in output."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airunner.domain.limits import MIN_SECRET_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airunner.domain.job import JobParams

_URL_SAFE: Final = ("", "/", "!~*'()", "!~*'();/?:@&=+$,#")
"""What encoders leave as it is: strict ones, paths, and the two of browsers."""
_HTML_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&'"}
_TO_URL_ALPHABET: Final = bytes.maketrans(b"+/", b"-_")


def secret_values(
    params: JobParams, base_environment: Mapping[str, str], patterns: Sequence[str]
) -> frozenset[bytes]:
    """Return the values to redact: those the job calls secret, and of variables whose name fits a pattern.

    A value that is too short to be distinguished from ordinary text is left out.
    """
    if not params.secret_names and not patterns:
        return frozenset()
    values = [params.environment[name] for name in params.secret_names]
    for environment in (base_environment, params.environment) if patterns else ():
        values += [value for name, value in environment.items() if _fits(name, patterns)]
    encoded = (value.encode("utf-8", "surrogateescape") for value in values)
    return frozenset(value for value in encoded if len(value) >= MIN_SECRET_BYTES)


def plain_forms(secret: bytes) -> set[bytes]:
    """Return the value as it is, as a terminal prints it, URL-encoded and JSON-escaped."""
    value = _core(secret)
    return {value, re.sub(rb"\r?\n", b"\r\n", value), *_url_forms(value), *_json_forms(value)}


def base64_forms(secret: bytes) -> set[bytes]:
    """Return what any base64 of a text with the value in it contains, whatever surrounds the value.

    The value by itself is there with its last character too, which surroundings would change.
    """
    value = _core(secret)
    alone = b64encode(value)
    forms = {alone, alone.rstrip(b"=")}
    for offset in range(3):
        first, end = -(-8 * offset // 6), 8 * (offset + len(value)) // 6
        forms.add(b64encode(bytes(offset) + value)[first:end])
    return forms | {form.translate(_TO_URL_ALPHABET) for form in forms}


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _core(secret: bytes) -> bytes:
    """Return the value without blanks around it, which programs tend to strip."""
    core = secret.strip()
    return core if len(core) >= MIN_SECRET_BYTES else secret


def _url_forms(value: bytes) -> Iterator[bytes]:
    for safe in _URL_SAFE:
        encoded = quote(value, safe=safe)
        for form in (encoded, encoded.replace("~", "%7E")):
            for text in (form, form.replace("%20", "+")):
                yield text.encode()
                yield re.sub("%..", lambda escape: escape[0].lower(), text).encode()


def _json_forms(value: bytes) -> Iterator[bytes]:
    text = value.decode("utf-8", "surrogateescape")
    for ensure_ascii in (True, False):
        escaped = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
        for form in (escaped, escaped.replace("/", "\\/"), escaped.translate(_HTML_ESCAPES)):
            yield form.encode("utf-8", "surrogateescape")
            upper = re.sub(r"\\u[0-9a-f]{4}", lambda escape: "\\u" + escape[0][2:].upper(), form)
            yield upper.encode("utf-8", "surrogateescape")
