"""The kinds of value a setting can have, beyond plain text and numbers.

Every rule raises ValueError with a text that completes "<key>: ..." and never repeats the value:
the caller decides whether a value may be shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from airunner.config.errors import HIDDEN
from airunner.config.section import Limits
from airunner.domain.limits import is_loopback, is_replica_address

Item = TypeVar("Item")
MAX_PORT = 65_535


class Rule:
    """What is done with a value when it is read; no dataclass, since these take longer to make."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


class Before(Rule):
    """A rule that makes of a value what its kind expects."""

    __slots__ = ()


class After(Rule):
    """A rule for a value of the right kind."""

    __slots__ = ()


class Secret:
    """A text that nothing prints."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """Return the text itself."""
        return self._text

    def __len__(self) -> int:
        return len(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret('{HIDDEN if self._text else ''}')"

    def __str__(self) -> str:
        return HIDDEN if self._text else ""


class ListenAddress(str):
    """`host:port` to bind; an IPv6 host stands in brackets, port 0 lets the system choose."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Raises ValueError unless the text is such an address."""
        host, port = _split_address(text)
        _check_host(host)
        if int(port) > MAX_PORT:
            raise ValueError(f"must have a port from 0 to {MAX_PORT}")
        return super().__new__(cls, text)

    @property
    def host(self) -> str:
        """The host without brackets, as sockets want it."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """0 when the system is to choose."""
        return int(self.rpartition(":")[2])

    @property
    def is_loopback(self) -> bool:
        """True only for what certainly is this machine."""
        return is_loopback(self.host)


def _split_address(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]]+):([0-9]{1,5})", text)
    if match is None:
        raise ValueError(
            'must be host:port, with an IPv6 host in brackets, such as "127.0.0.1:8080" or "[::1]:8080"'
        )
    return match[1], match[2]


def _check_host(host: str) -> None:
    if host.startswith("["):
        _check_ip(host[1:-1], IPv6Address)
    elif re.fullmatch(r"[0-9.]+", host):
        _check_ip(host, ip_address)
    elif not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?", host):
        raise ValueError("must have a host name or an IP address before the port")


def _check_ip(host: str, parse: Callable[[str], object]) -> None:
    try:
        parse(host)
    except ValueError:
        raise ValueError("must have a valid IP address before the port") from None


def _split_commas(value: object) -> object:
    """Text is a comma list; a list stays as it is. Blank entries are dropped."""
    if not isinstance(value, str):
        return value
    return [entry for entry in (part.strip() for part in value.split(",")) if entry]


def _refuse_repeats(entries: tuple[Item, ...]) -> tuple[Item, ...]:
    if len(set(entries)) != len(entries):
        raise ValueError("must not name the same entry twice")
    return entries


def _refuse_bool(value: object) -> object:
    """Python counts true as 1; in a configuration it is a mistake."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _parse_path(value: object) -> object:
    if value == "":
        raise ValueError('must not be empty; write "." for the current folder')
    if not isinstance(value, str | Path):
        return value
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("must start with a home folder that exists") from None


def _check_url(text: str) -> str:
    """Credentials are refused since a URL is shown in logs and messages; API keys are the way to sign in."""
    url = _split_url(text)
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("must be an http:// or https:// URL")
    if url.username is not None or url.query or url.fragment:
        raise ValueError("must be a URL without user name, password, query or fragment")
    return text.rstrip("/")


def _split_url(text: str) -> SplitResult | None:
    """None for blanks and control characters, which urlsplit drops, and for a port that is no port."""
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        return None
    with suppress(ValueError):
        url = urlsplit(text)
        return url if url.port != 0 else None
    return None


def _check_replica_url(text: str) -> str:
    address = text.rstrip("/")
    if not is_replica_address(address):
        raise ValueError("must be http:// or https://, a host and a port, such as http://10.0.0.7:8080")
    return address


def _check_queue_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", text):
        raise ValueError("must be a queue name: 1 to 80 letters, digits, - and _")
    return text


def _split_addresses(value: object) -> object:
    """`name=url` entries with commas, or a list of names; a name alone has no URL, which is empty text."""
    entries = _split_commas(value)
    if not isinstance(entries, list | tuple):
        return value
    pairs = [(name.strip(), url.strip()) for name, _, url in (str(entry).partition("=") for entry in entries)]
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("must not name the same entry twice")
    return dict(pairs)


def _split_prices(value: object) -> object:
    """`type=price` entries with commas, or a mapping."""
    entries = _split_commas(value)
    if not isinstance(entries, list | tuple):
        return value
    pairs = [(name.strip(), price) for name, _, price in (str(entry).partition("=") for entry in entries)]
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("must not name the same entry twice")
    if not all(price for _, price in pairs):
        raise ValueError("must be entries such as m7i.large=0.1008: a type of instance and its price")
    return dict(pairs)


def _check_address(value: object) -> object:
    """The URL may be left out."""
    return _check_url(value) if isinstance(value, str) and value else value or ""


def _matching(pattern: str, what: str) -> After:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {what}")
        return text

    return After(check)


def _check_secret(secret: Secret) -> Secret:
    """Keys travel in HTTP headers, and a stray line break from a file is a common accident."""
    if not re.fullmatch(r"[\x21-\x7e]+", secret.get_secret_value()):
        raise ValueError("must be printable ASCII text without blanks")
    return secret


CommaList = Annotated[tuple[Item, ...], Before(_split_commas)]
DistinctCommaList = Annotated[CommaList[Item], Limits(min_length=1), After(_refuse_repeats)]
OptionalDistinctCommaList = Annotated[CommaList[Item], After(_refuse_repeats)]
WholeNumber = Annotated[int, Before(_refuse_bool)]
Seconds = Annotated[float, Before(_refuse_bool), Limits(allow_inf_nan=False)]
FilePath = Annotated[Path, Before(_parse_path)]
ServerUrl = Annotated[str, After(_check_url)]
ReplicaUrl = Annotated[str, After(_check_replica_url)]
QueueName = Annotated[str, After(_check_queue_name)]
QueueAddresses = Annotated[
    Mapping[QueueName, Annotated[str, Before(_check_address)]],
    Before(_split_addresses),
    Limits(min_length=1),
]
OutboxAddresses = Annotated[
    Mapping[QueueName, ServerUrl],
    Before(_split_addresses),
]
HourlyPrices = Annotated[
    Mapping[
        Annotated[str, _matching(r"[a-z0-9.-]{1,40}", "a type of instance, such as m7i.large")],
        Annotated[float, Before(_refuse_bool), Limits(ge=0, le=1_000_000, allow_inf_nan=False)],
    ],
    Before(_split_prices),
]
ParameterPath = Annotated[
    str,
    _matching(
        r"(/[A-Za-z0-9_.-]{1,100}){1,10}",
        "a path of parameters: /, then letters, digits, -, _ and ., up to ten times; no / at its end",
    ),
]
RegionName = Annotated[str, _matching(r"[a-z0-9-]{0,40}", "the name of a region, such as eu-west-1")]
AccountId = Annotated[str, _matching(r"|[0-9]{12}", "the 12 digits of an account of AWS")]
EnvironmentName = Annotated[str, _matching(r"[A-Za-z0-9_-]{1,20}", "1 to 20 letters, digits, - and _")]
TableName = Annotated[str, _matching(r"|[A-Za-z0-9_.-]{3,255}", "3 to 255 letters, digits, -, _ and .")]
BucketName = Annotated[
    str,
    _matching(
        r"|[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "the name of a bucket: 3 to 63 small letters, digits, - and .",
    ),
]
MetricNamespace = Annotated[
    str,
    _matching(
        r"|(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#: -]{0,254}",
        "a namespace of CloudWatch, which does not begin with AWS/",
    ),
]
SchemaName = Annotated[
    str, _matching(r"(?s)(?=.{1,63}$)[^\0]+", "the name of a schema of PostgreSQL: 1 to 63 characters")
]
SecretKey = Annotated[Secret, After(_check_secret)]
