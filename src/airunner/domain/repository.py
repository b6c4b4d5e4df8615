"""Where a repository may be, and how its parts are told apart. Nothing that git could misread is let through.

Allowed are `https://[user[:password]@]host[:port]/path`, `ssh://[user@]host[:port]/path`, its short form
`user@host:path`, and `file:///path`, which a worker refuses unless its operator allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from airunner.domain import limits
from airunner.domain.errors import InvalidArgument

MAX_URL_BYTES: Final = 2048
MAX_BRANCH_BYTES: Final = 255

_HOST: Final = r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])"
_USER: Final = r"(?P<user>[A-Za-z0-9_][A-Za-z0-9_.+~-]*)"
_WHOLE_URL: Final = re.compile(
    rf"(?P<scheme>https|ssh)://(?:(?P<userinfo>[^@/?#\\]+)@)?(?P<place>{_HOST}(?::[0-9]{{1,5}})?/[^?#\\]+)"
)
_SHORT_SSH: Final = re.compile(rf"{_USER}@{_HOST}:(?!-)[^?#\\:]+")
_FILE: Final = re.compile(r"file:///[^?#\\]+")
_PLAIN_USER: Final = re.compile(_USER)
_COMMIT: Final = re.compile(r"[0-9A-Fa-f]{7,64}")
_FULL_COMMIT_LENGTHS: Final = (40, 64)
# What git itself refuses in the name of a reference, and a leading dash.
_NO_BRANCH: Final = re.compile(r"^[-/]|[/.]$|//|\.\.|@\{|^@$|(?:^|/)\.|\.lock(?:/|$)|[\s~^:?*\[\\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class RepositoryScheme(StrEnum):
    """The protocol of an address."""

    HTTPS = "https"
    SSH = "ssh"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository's address, with its credentials apart."""

    scheme: RepositoryScheme
    url: str
    """Without credentials: fit for everybody's eyes and for the arguments of a process."""
    userinfo: str = field(default="", repr=False)
    """As it was written; only https has any, the user of ssh is a part of its address."""

    @property
    def username(self) -> str:
        """The user's name, or a token in its place."""
        return unquote(self.userinfo.partition(":")[0])

    @property
    def password(self) -> str:
        """The password; empty if there is none."""
        return unquote(self.userinfo.partition(":")[2])

    @property
    def secrets(self) -> frozenset[str]:
        """Every text that must not be seen, in the forms that were written and that are meant."""
        parts = (self.userinfo, *self.userinfo.split(":", 1), self.username, self.password)
        return frozenset(filter(None, parts))


def parse_repository(url: str) -> Repository:
    """Return the parts of an address, or refuse it. The refusal never repeats the address."""
    limits.check_size(url, "repository_url", MAX_URL_BYTES)
    if _CONTROL.search(unquote(url)) or re.search(r"\s", url):
        raise _refusal("must not contain blanks or control characters")
    if _FILE.fullmatch(url):
        return Repository(scheme=RepositoryScheme.FILE, url=url)
    if whole := _WHOLE_URL.fullmatch(url):
        scheme, userinfo = RepositoryScheme(whole["scheme"]), whole["userinfo"] or ""
        if scheme is RepositoryScheme.SSH:
            return _over_ssh(url, userinfo)
        return _over_https(f"https://{whole['place']}", userinfo)
    if _SHORT_SSH.fullmatch(url):
        return Repository(scheme=RepositoryScheme.SSH, url=url)
    raise _refusal("must be https://host/path, ssh://host/path, user@host:path or file:///path, no ? or #")


def masked_url(url: str, mask: str) -> str:
    """Return an address without its credentials; one that could not be parsed is all mask."""
    if "@" not in url:
        return url
    try:
        repository = parse_repository(url)
    except InvalidArgument:
        return mask
    if not repository.userinfo:
        return url
    return repository.url.replace("https://", f"https://{mask}@", 1)


def check_commit(commit: str) -> None:
    """Refuse what is not the hexadecimal name of a commit, whole or abbreviated to no less than 7 digits."""
    if not _COMMIT.fullmatch(commit):
        raise InvalidArgument("commit must be 7 to 64 hexadecimal digits")


def is_full_commit(commit: str) -> bool:
    """Return whether a commit is named in full, in SHA-1 or SHA-256."""
    return len(commit) in _FULL_COMMIT_LENGTHS


def check_branch(branch: str) -> None:
    """Refuse what git would not have as the name of a branch, or of a whole reference (`refs/...`)."""
    limits.check_size(branch, "branch", MAX_BRANCH_BYTES)
    if _NO_BRANCH.search(branch) or _CONTROL.search(branch):
        raise InvalidArgument("branch must be the name of a branch, or a reference that begins with refs/")


def _over_ssh(url: str, user: str) -> Repository:
    if user and not _PLAIN_USER.fullmatch(user):
        raise _refusal("must have at most a plain user name before the host with ssh, no password")
    return Repository(scheme=RepositoryScheme.SSH, url=url)


def _over_https(url: str, userinfo: str) -> Repository:
    repository = Repository(scheme=RepositoryScheme.HTTPS, url=url, userinfo=userinfo)
    password = repository.password
    if password and len(password.encode()) < limits.MIN_SECRET_BYTES:
        # As with other secrets: redacting so little would tear ordinary output apart.
        raise _refusal(f"must have a password of at least {limits.MIN_SECRET_BYTES} bytes, or none")
    return repository


def _refusal(rule: str) -> InvalidArgument:
    return InvalidArgument(f"repository_url {rule}")
