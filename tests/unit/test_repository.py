"""Which repositories are let through, and what of an address may be seen."""

from __future__ import annotations

import pytest

from airunner.domain.errors import InvalidArgument
from airunner.domain.job import SECRET_MASK, JobParams
from airunner.domain.repository import RepositoryScheme, parse_repository

HTTPS = "https://git.example.org/team/a.git"


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        (HTTPS, RepositoryScheme.HTTPS),
        ("https://git.example.org:8443/a", RepositoryScheme.HTTPS),
        ("https://[::1]:8443/a", RepositoryScheme.HTTPS),
        ("https://git.example.org/a%20b/~c/@d", RepositoryScheme.HTTPS),
        ("ssh://git@git.example.org:2222/team/a.git", RepositoryScheme.SSH),
        ("ssh://git.example.org/~me/a.git", RepositoryScheme.SSH),
        ("git@git.example.org:team/a.git", RepositoryScheme.SSH),
        ("git@[::1]:a.git", RepositoryScheme.SSH),
        ("file:///srv/git/a.git", RepositoryScheme.FILE),
    ],
)
def test_addresses_of_repositories_are_accepted_as_they_are(url: str, scheme: RepositoryScheme) -> None:
    repository = parse_repository(url)
    assert (repository.scheme, repository.url, repository.userinfo) == (scheme, url, "")
    params = JobParams(repository_url=url)
    params.validate()
    assert params.masked() == params


@pytest.mark.parametrize(
    "url",
    [
        "",
        "-",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x",
        "http://git.example.org/a",
        "HTTPS://git.example.org/a",
        "git://git.example.org/a",
        "ftp://git.example.org/a",
        "ext::sh -c id",
        "ext::sh",
        "fd::17",
        "https::https://git.example.org/a",
        "git@host::a",
        "/srv/git/a.git",
        "./a.git",
        "a.git",
        "C:a",
        "host:a.git",
        "file://host/srv/a.git",
        "file:/srv/a.git",
        "file:///",
        "https://",
        "https:///a",
        "https://git.example.org",
        "https://git.example.org/",
        "https://-git.example.org/a",
        "https://git.example.org:99999999/a",
        "https://git.example.org:a/a",
        "https://git.example.org/a?token=abcdef",
        "https://git.example.org/a#b",
        "https://git.example.org\\@evil.example/a",
        "https://a@b@git.example.org/a",
        "https://user:short@git.example.org/a",
        "https://user%0aname@git.example.org/a",
        "https://git.example.org/a b",
        "https://git.example.org/a\u00a0b",
        "https://git.example.org/a\nb",
        "https://git.example.org/a%0ab",
        "https://git.example.org/a%00",
        "https://git.example.org/\x1b[31m",
        "https://git.example.org/" + "a" * 2048,
        "ssh://-oProxyCommand=x/a",
        "ssh://-oProxyCommand=x@git.example.org/a",
        "ssh://%2doProxyCommand=x@git.example.org/a",
        "ssh://git:password@git.example.org/a",
        "-git@git.example.org:a",
        "git@-oProxyCommand=x:a",
        "git@git.example.org:-a",
        "git@git.example.org:",
    ],
)
def test_nothing_else_is_and_the_refusal_does_not_repeat_it(url: str) -> None:
    with pytest.raises(InvalidArgument, match="repository_url") as caught:
        parse_repository(url)
    assert len(url) < 9 or url not in caught.value.text
    with pytest.raises(InvalidArgument):
        JobParams(repository_url=url).validate()


@pytest.mark.parametrize(
    ("userinfo", "username", "password", "secrets"),
    [
        ("ghp_12345678", "ghp_12345678", "", {"ghp_12345678"}),
        ("me:pass-word", "me", "pass-word", {"me", "pass-word", "me:pass-word"}),
        ("me:p%40ss%3Aword", "me", "p@ss:word", {"me", "p%40ss%3Aword", "p@ss:word", "me:p%40ss%3Aword"}),
        ("token:", "token", "", {"token", "token:"}),
    ],
)
def test_credentials_are_told_apart_and_masked(
    userinfo: str, username: str, password: str, secrets: set[str]
) -> None:
    url = f"https://{userinfo}@git.example.org/team/a@b.git"
    repository = parse_repository(url)
    assert repository.url == "https://git.example.org/team/a@b.git"
    assert (repository.username, repository.password, set(repository.secrets)) == (
        username,
        password,
        secrets,
    )
    assert userinfo not in repr(repository)
    params = JobParams(repository_url=url)
    params.validate()
    assert params.masked().repository_url == f"https://{SECRET_MASK}@git.example.org/team/a@b.git"


def test_an_address_that_cannot_be_parsed_shows_nothing_that_may_be_secret() -> None:
    assert JobParams(repository_url="http://me:secret@host/a").masked().repository_url == SECRET_MASK


@pytest.mark.parametrize("commit", ["abc1234", "A" * 40, "0" * 64])
def test_commits_are_hexadecimal(commit: str) -> None:
    JobParams(repository_url=HTTPS, commit=commit).validate()


@pytest.mark.parametrize(
    "commit", ["abc123", "a" * 65, "main", "-abc1234", "abc1234 ", "HEAD~1", "abc1234\n"]
)
def test_other_commits_are_refused(commit: str) -> None:
    with pytest.raises(InvalidArgument, match="commit must be"):
        JobParams(repository_url=HTTPS, commit=commit).validate()


@pytest.mark.parametrize(
    "branch", ["main", "feature/a-b_c.d", "release/1.0", "refs/pull/12/head", "ä", "a@b"]
)
def test_branches_are_those_of_git(branch: str) -> None:
    JobParams(repository_url=HTTPS, branch=branch).validate()


@pytest.mark.parametrize(
    "branch",
    [
        *(
            "-b",
            "--upload-pack=x",
            "a b",
            "a\tb",
            "a\n",
            "a\x00b",
            "a\x7fb",
            "a..b",
            "a:b",
            "+a:b",
            "a~1",
            "a^",
        ),
        *(
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
            "a.lock/b",
            "@",
            "a@{1}",
        ),
        "a" * 256,
    ],
)
def test_other_branches_are_refused(branch: str) -> None:
    with pytest.raises(InvalidArgument, match="branch must"):
        JobParams(repository_url=HTTPS, branch=branch).validate()


@pytest.mark.parametrize(
    "params",
    [
        JobParams(command="make", commit="abc1234"),
        JobParams(command="make", branch="main"),
        JobParams(handler="resize", repository_url=HTTPS),
    ],
)
def test_commit_and_branch_need_a_repository_and_a_handler_has_none(params: JobParams) -> None:
    with pytest.raises(InvalidArgument, match="repository"):
        params.validate()


@pytest.mark.parametrize("directory", ["/etc", "..", "a/../../b", "a/.."])
def test_a_working_directory_is_inside_the_checkout(directory: str) -> None:
    JobParams(repository_url=HTTPS, command="make", working_directory="a/b").validate()
    with pytest.raises(InvalidArgument, match="working_directory"):
        JobParams(repository_url=HTTPS, command="make", working_directory=directory).validate()
