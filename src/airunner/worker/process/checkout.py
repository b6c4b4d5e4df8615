"""Checking out a job's repository with git, safe against any address, branch or commit.

git runs as a process of the attempt, in the attempt's new folder: its progress is output of the attempt, and
whatever ends the attempt ends it. It sees the job's environment, but neither prompts nor runs hooks or
filters, reads no configuration of the machine or the user (unless GIT_CONFIG_GLOBAL names a file), and uses
only the protocol of the address. Credentials reach it in its environment, never in its arguments, and
are not left in the checkout. Submodules are not fetched.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import InvalidArgument
from airunner.domain.limits import MIN_SECRET_BYTES
from airunner.domain.repository import RepositoryScheme, is_full_commit, parse_repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.domain.job import JobParams
    from airunner.domain.repository import Repository
    from airunner.worker.process.process import ProcessSpec

# Arguments: object format, address, depth or nothing, what to fetch, what to check out.
_SCRIPT: Final = """
git init --quiet --template= --object-format="$1" &&
git remote add -- origin "$2" &&
git fetch --progress --no-tags --no-recurse-submodules ${3:+--depth="$3"} --end-of-options origin "$4" &&
exec git checkout --progress --detach "$5" --
"""
_USER_VARIABLE: Final = "AIRUNNER_GIT_USERNAME"
_PASSWORD_VARIABLE: Final = "AIRUNNER_GIT_PASSWORD"  # noqa: S105  the name of a variable
_CREDENTIAL_HELPER: Final = (
    f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USER_VARIABLE}" """
    f""""${_PASSWORD_VARIABLE}"; }}; f"""
)
_CONFIGURATION: Final = (
    ("protocol.ext.allow", "never"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("credential.helper", ""),  # forgets the helpers of configuration that comes before
    ("advice.detachedHead", "false"),
    ("gc.auto", "0"),  # would go on in the background
    ("maintenance.auto", "false"),
)
_SHA256_DIGITS: Final = 64
_EVERY_BRANCH: Final = "+refs/heads/*:refs/remotes/origin/*"
# Variables with which git would work on another repository than the one in its folder.
_MISLEADING: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRules:
    """What the operator of a worker decides about repositories."""

    allow_file: bool = False
    """Whether repositories may be folders of this machine."""
    depth: int = 1
    """How many commits of history are fetched; 0 is all of them."""


def checkout_refusal(params: JobParams, environment: Mapping[str, str], rules: CheckoutRules) -> str:
    """Return why a repository cannot be checked out on this worker; empty if it can."""
    try:
        params.validate()
        repository = parse_repository(params.repository_url)
    except InvalidArgument as error:
        return error.text
    if repository.scheme is RepositoryScheme.FILE and not rules.allow_file:
        return "this worker takes no repositories from files (worker.git_allow_file)"
    if shutil.which("git", path=environment.get("PATH", "")) is None:
        return "git is not installed on this worker"
    return ""


def repository_secrets(params: JobParams) -> frozenset[bytes]:
    """Return the credentials in a repository's address that must not show in output."""
    if "@" not in params.repository_url:
        return frozenset()
    try:
        secrets = parse_repository(params.repository_url).secrets
    except InvalidArgument:  # it is refused anyway, by a text that does not repeat it
        return frozenset()
    encoded = (secret.encode() for secret in secrets)
    return frozenset(secret for secret in encoded if len(secret) >= MIN_SECRET_BYTES)


def checkout_spec(params: JobParams, command: ProcessSpec, rules: CheckoutRules) -> ProcessSpec:
    """Return the process that checks out, with the environment, folder and limits of the command."""
    repository = parse_repository(params.repository_url)
    commit = params.commit
    depth, wanted = rules.depth, _reference(params.branch)
    if commit and is_full_commit(commit):
        wanted = commit
    elif commit:
        # No server resolves an abbreviation: it has to be among what was fetched.
        depth, wanted = 0, wanted if params.branch else _EVERY_BRANCH
    object_format = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
    arguments = (object_format, repository.url, str(depth or ""), wanted, commit or "FETCH_HEAD")
    return replace(
        command,
        command="sh",
        args=("-c", _SCRIPT, "airunner-checkout", *arguments),
        environment=_environment(command.environment, repository),
        pty=False,
    )


def _reference(branch: str) -> str:
    if not branch:
        return "HEAD"
    return branch if branch.startswith("refs/") else f"refs/heads/{branch}"


def _environment(given: Mapping[str, str], repository: Repository) -> dict[str, str]:
    """Return the environment of git: ours, and the job's as far as it cannot mislead git."""
    kept = {name: value for name, value in given.items() if name not in _MISLEADING}
    defaults = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_ASKPASS": "",
    }
    fixed = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": repository.scheme.value,
    }
    entries = list(_CONFIGURATION)
    if repository.userinfo:
        entries.append((f"credential.{_origin(repository.url)}.helper", _CREDENTIAL_HELPER))
        fixed |= {_USER_VARIABLE: repository.username, _PASSWORD_VARIABLE: repository.password}
    # What the job itself configures comes last: it may bring a credential helper of its own.
    return {**defaults, **kept, **fixed, **_configuration([*entries, *_configured(given)])}


def _configuration(entries: list[tuple[str, str]]) -> dict[str, str]:
    """Return configuration as variables: unlike arguments, others cannot see them."""
    variables = {"GIT_CONFIG_COUNT": str(len(entries))}
    for number, (key, value) in enumerate(entries):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _configured(given: Mapping[str, str]) -> list[tuple[str, str]]:
    count = given.get("GIT_CONFIG_COUNT", "")
    numbers = range(min(int(count), len(given))) if count.isascii() and count.isdigit() else ()
    names = [(f"GIT_CONFIG_KEY_{number}", f"GIT_CONFIG_VALUE_{number}") for number in numbers]
    return [(given[key], given[value]) for key, value in names if key in given and value in given]


def _origin(url: str) -> str:
    """Return scheme, host and port: where credentials may be sent."""
    return "/".join(url.split("/", 3)[:3])
