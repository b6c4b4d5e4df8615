"""The options of commands that add a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from airunner.cli.arguments import repository_and_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.domain.requests import EnqueueRequest, ExecutionOverride

JOB_GROUP = Group("Job", sort_key=10)
Command = Annotated[
    str,
    Parameter(
        name=("[REPOSITORY] [-- CMD]",),
        help="A repository to check out first: https, ssh or user@host:path. Write the command and its "
        "arguments after '--'; no shell is used.",
    ),
]


@Parameter(name="*", group=JOB_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a job is, besides its command."""

    queue: str = "default"
    """Queue to add the job to. Default: default"""
    env: tuple[str, ...] = ()
    """Variable for the job: NAME=VALUE, or NAME to pass on your own value. Repeatable."""
    secret: tuple[str, ...] = ()
    """NAME of one of your variables to pass on as a secret: only the worker sees its value. Repeatable."""
    handler: str = ""
    """Name of the Python handler that does the job, instead of a command."""
    payload: str = ""
    """JSON for the handler, or @FILE to read it from a file."""
    timeout: int = 0
    """Seconds that the job may run before it is stopped. Default: no limit"""
    max_attempts: int = 0
    """How many times the job may be started if workers die or a handler fails. Default: the server's"""
    pty: bool = False
    """Run the job on a terminal; all of its output is then standard output."""
    working_directory: str = ""
    """Folder on the worker to run in; with a repository, a folder below its checkout."""
    commit: str = ""
    """Commit of the repository, 7 to 64 hexadecimal digits. Default: the newest of the branch"""
    branch: str = ""
    """Branch of the repository, or a reference (refs/...). Default: its default branch"""
    delay: int = 0
    """Seconds to wait before the job may start."""
    owner: str = ""
    """Owner of the job; kept with it and shown."""
    metadata: tuple[str, ...] = ()
    """KEY=VALUE to keep with the job and show; neither worker nor job reads it. Repeatable."""
    request_id: str = ""
    """UUID that makes this repeatable: the same UUID gives the same job."""

    def request(self, tokens: Sequence[str], override: ExecutionOverride | None = None) -> EnqueueRequest:
        """Return the request to add the job."""
        import uuid

        from airunner.config import process_environment
        from airunner.domain.errors import InvalidArgument
        from airunner.domain.job import JobParams, ProcessType
        from airunner.domain.requests import EnqueueRequest

        repository, command = repository_and_command(tokens)
        if not command and not self.handler and not repository:
            raise InvalidArgument("there is no command; write it after '--', as in: -- echo hello")
        if command and self.handler:
            raise InvalidArgument("a job has either a command or a --handler")
        params = JobParams(
            command=command[0] if command else "",
            args=tuple(command[1:]),
            environment=self.environment(process_environment()),
            secret_names=self.secret,
            metadata=self.metadata_entries(),
            owner=self.owner,
            working_directory=self.working_directory,
            repository_url=repository,
            commit=self.commit,
            branch=self.branch,
            timeout_seconds=self.timeout,
            handler=self.handler,
            payload_json=self.payload_json(),
            process_type=ProcessType.PTY if self.pty else ProcessType.PIPE,
        )
        return EnqueueRequest(
            request_id=self.request_id or str(uuid.uuid4()),
            queue=self.queue,
            params=params,
            delay_seconds=self.delay,
            max_attempts=self.max_attempts,
            execution=override,
        )

    def metadata_entries(self) -> dict[str, str]:
        """Return the metadata by its keys; the last value of a key counts."""
        from airunner.domain.errors import InvalidArgument

        chosen: dict[str, str] = {}
        for entry in self.metadata:
            key, given, value = entry.partition("=")
            if not key or not given:
                raise InvalidArgument(f"--metadata must be KEY=VALUE, not {entry!r}")
            chosen[key] = value
        return chosen

    def payload_json(self) -> str:
        """Return the payload, read from its file if one is given, or refuse what is not JSON."""
        from airunner.domain.errors import InvalidArgument

        if self.payload and not self.handler:
            raise InvalidArgument("--payload needs --handler")
        if not self.payload.startswith("@"):
            return _json_of("--payload", self.payload)
        file = self.payload[1:]
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"--payload: cannot read {file}: {error}") from None
        return _json_of(f"--payload: {file}", text)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the job's variables, with those of the caller where only a name is given."""
        chosen: dict[str, str] = {}
        for entry in self.env:
            name, given, value = entry.partition("=")
            chosen[name] = value if given else _value_of(environ, name, "--env")
        return chosen | {name: _value_of(environ, name, "--secret") for name in self.secret}


PLAIN_JOB = JobOptions()


def _json_of(name: str, text: str) -> str:
    """Return a text, which is empty or JSON; the error says where it is not, and repeats nothing of it."""
    import json

    from airunner.domain.errors import InvalidArgument

    try:
        if text:
            json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name} must be JSON: {error}") from None
    return text


def _value_of(environ: Mapping[str, str], name: str, option: str) -> str:
    from airunner.domain.errors import InvalidArgument

    if name not in environ:
        raise InvalidArgument(f"{option} {name}: there is no such variable in your environment")
    return environ[name]
