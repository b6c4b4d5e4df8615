"""What a job is: its parameters, its result, and the job itself.

How it changes is in `lifecycle`; a job's `life` is the part that changes.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from enum import IntEnum
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from airunner.domain import limits
from airunner.domain.errors import InvalidArgument
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.domain.execution import ExecutionConfig
    from airunner.domain.lifecycle import Lifecycle

SECRET_MASK = "********"  # noqa: S105  the mask shown in place of a secret
_UUID_7: Final = 0x7000_8000_0000_0000_0000
"""The bits of a UUIDv7 that are always the same: its version and its variant."""


class JobState(IntEnum):
    """The state of a job.

    SCHEDULED: waiting in its queue; a dequeue moves it out. RUNNING: an attempt is on its way; its holder
    moves it out, or another dequeue once its visibility lapsed, or maintenance when no try is left.
    COMPLETED, FAILED and CANCELLED are final. UNSPECIFIED is no state of a job: a client reads it where a
    newer server names a state that the client does not know.
    """

    UNSPECIFIED = 0
    SCHEDULED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def terminal(self) -> bool:
        """Whether the job stays in this state for ever."""
        return self >= JobState.COMPLETED


JOB_STATES: Final = tuple(state for state in JobState if state is not JobState.UNSPECIFIED)
"""The states that a job can be in."""


def stored_state(number: int) -> JobState:
    """Return the state that a store keeps as a number; ValueError if a job cannot be in it."""
    return JOB_STATES[JOB_STATES.index(number)]


class Outcome(IntEnum):
    """How a job ended."""

    SUCCESS = 1
    FAILURE = 2
    TIMEOUT = 3
    INTERRUPTED = 4
    CANCELLED = 5
    LOST = 6


class ProcessType(IntEnum):
    """How a process is connected: to pipes, or to a terminal of its own."""

    PIPE = 1
    PTY = 2


@record
class JobParams:
    """What to do: a command in an environment, or a Python handler with a JSON payload."""

    repository_url: str = ""
    commit: str = ""
    branch: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_names: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    working_directory: str = ""
    timeout_seconds: int = 0
    process_type: ProcessType = ProcessType.PIPE
    handler: str = ""
    payload_json: str = ""
    encoded: bytes = field(default=b"", init=False, compare=False, repr=False)
    """The canonical encoding, set by the codec that decoded it. A copy that differs has none."""

    def validate(self) -> None:
        """Refuse parameters that no worker could carry out."""
        if bool(self.command) == bool(self.handler) and not (self.repository_url and not self.handler):
            raise InvalidArgument("job_params must have either a command or a handler")
        if self.handler:
            limits.check_handler_name(self.handler)
        limits.check_range(self.timeout_seconds, "timeout_seconds", 0, limits.MAX_TIMEOUT_SECONDS)
        if self.environment or self.secret_names:
            self._validate_environment()
        if self.payload_json:
            self._validate_payload()
        if "\0" in "".join((self.command, self.working_directory, *self.args)):
            raise InvalidArgument("command, args and working_directory must not contain NUL")
        if self.repository_url or self.commit or self.branch:
            self._validate_repository()

    @property
    def handler_key(self) -> str:
        """What a worker must have to do it: the key of its handler; empty for commands."""
        return limits.handler_key(self.handler)

    @property
    def may_hold_secrets(self) -> bool:
        """Whether there may be anything to mask."""
        return bool(self.secret_names) or "@" in self.repository_url

    def masked(self) -> JobParams:
        """Return a copy with secret values masked."""
        if not self.may_hold_secrets:
            return self
        secret = frozenset(self.secret_names)
        shown = {name: SECRET_MASK if name in secret else value for name, value in self.environment.items()}
        url = self._masked_url()
        return replace(self, environment=shown, repository_url=url)

    def without_secrets(self) -> JobParams:
        """Return a copy without secret values, or these parameters if they hold none."""
        if not self.may_hold_secrets:
            return self
        secret = frozenset(self.secret_names)
        kept = {name: value for name, value in self.environment.items() if name not in secret}
        url = self._masked_url()
        if (len(kept), url) == (len(self.environment), self.repository_url):
            return self
        return replace(self, environment=kept, repository_url=url)

    @property
    def missing_secrets(self) -> tuple[str, ...]:
        """What secret values were removed, by their names."""
        names = [name for name in self.secret_names if name not in self.environment]
        if SECRET_MASK in self.repository_url:
            names.append("the credentials in repository_url")
        return tuple(names)

    def _masked_url(self) -> str:
        if not self.repository_url:
            return ""
        from airunner.domain.repository import masked_url  # late: few jobs have a repository

        return masked_url(self.repository_url, SECRET_MASK)

    def _validate_environment(self) -> None:
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise InvalidArgument(
                    "environment names must not be empty or contain '=', and nothing may contain NUL"
                )
        for name in self.secret_names:
            if name not in self.environment:
                raise InvalidArgument(f"secret_names: {name!r} is not in the environment")
            if len(self.environment[name].encode("utf-8", "surrogatepass")) < limits.MIN_SECRET_BYTES:
                # Redacting so little would tear ordinary output apart.
                least = limits.MIN_SECRET_BYTES
                raise InvalidArgument(f"secret_names: the value of {name!r} must have at least {least} bytes")

    def _validate_repository(self) -> None:
        from airunner.domain.repository import check_branch, check_commit, parse_repository

        if self.handler:
            raise InvalidArgument("a handler has no repository")
        if not self.repository_url:
            raise InvalidArgument("commit and branch need a repository_url")
        parse_repository(self.repository_url)
        if self.commit:
            check_commit(self.commit)
        if self.branch:
            check_branch(self.branch)
        place = PurePosixPath(self.working_directory)
        if place.is_absolute() or ".." in place.parts:
            raise InvalidArgument("working_directory must be a relative path inside the checkout")

    def _validate_payload(self) -> None:
        if not self.handler:
            raise InvalidArgument("payload_json needs a handler")
        try:
            json.loads(self.payload_json)
        except (ValueError, RecursionError):
            raise InvalidArgument("payload_json must be JSON") from None


@record
class JobResult:
    """How a job ended, as its worker or the server says."""

    success: bool
    outcome: Outcome
    exit_code: int = 0
    error_message: str = ""
    started_at: int = 0
    completed_at: int = 0
    output_json: str = ""
    final_sequence: int = 0
    output_sha256: bytes = b""

    @property
    def common(self) -> tuple[object, ...]:
        """All but what each job has of its own, its output: jobs that end together mostly share it."""
        return (
            self.success,
            self.outcome,
            self.exit_code,
            self.error_message,
            self.started_at,
            self.completed_at,
            self.final_sequence,
        )

    def with_output(self, output_json: str, output_sha256: bytes) -> JobResult:
        """Return the result of a job that ended likewise, with an output of its own."""
        return JobResult(
            self.success,
            self.outcome,
            self.exit_code,
            self.error_message,
            self.started_at,
            self.completed_at,
            output_json,
            self.final_sequence,
            output_sha256,
        )

    def validate(self) -> None:
        """Refuse a result that contradicts itself or the limits."""
        if self.success != (self.outcome is Outcome.SUCCESS):
            raise InvalidArgument("job_result.success and outcome contradict each other")
        if self.success and self.exit_code != 0:
            raise InvalidArgument("job_result.success contradicts a non-zero exit_code")
        limits.check_range(self.final_sequence, "final_sequence", 0, limits.MAX_SEQUENCE)
        if self.error_message:
            limits.check_size(self.error_message, "error_message", limits.MAX_ERROR_TEXT_BYTES)
        if self.output_json:
            limits.check_size(self.output_json, "output_json", limits.MAX_RESULT_OUTPUT_BYTES)
        if self.output_sha256 and len(self.output_sha256) != 32:
            raise InvalidArgument("output_sha256 must have 32 bytes")


@record
class Job:
    """One job: what was requested, which never changes, and `life`, which does."""

    job_id: str
    """A UUIDv7. Minted by the server at enqueue; never changes."""
    queue: str
    """The queue that the job was added to. Set by the caller at enqueue; never changes."""
    params: JobParams
    """What to do. Set by the caller at enqueue; never changes. Secret values are masked for everybody but
    the worker that dequeues the job."""
    execution: ExecutionConfig
    """How its worker batches and how often it sends heartbeats: the server's settings, with the caller's
    override merged in at enqueue. Never changes."""
    created_at: int
    """The instant of the enqueue, by the server's clock."""
    request_id: str
    """A UUID chosen by the caller, which makes the enqueue repeatable."""
    principal: str
    """The name of the API key that enqueued the job, or `anonymous`."""
    life: Lifecycle
    """The part that changes: state, attempt, visibility, result."""
    retried_from: str = ""
    """The job of which this one is a copy. Set by RetryJob; empty for any other job."""
    receipt: str = ""
    """On SQS, of a job that was just claimed: the handle of its message. Set by the store; never leaves the
    server."""
    params_url: str = ""
    """Where the encoded parameters can be read directly for a while. Set by GetJob on request, where the
    store keeps them apart."""
    result_url: str = ""
    """The same for the result."""
    abridged: bool = False
    """Whether parts that are large or cannot be read were left out. Set by ListJobs, and by GetJob where that
    is asked for; else GetJob returns the whole job."""

    @property
    def has_params(self) -> bool:
        """Whether its parameters could be read, abridged or not: no job has empty ones."""
        return self.params != JobParams()

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.life.state

    @property
    def attempt(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return self.life.attempt

    @property
    def result(self) -> JobResult | None:
        """How the job ended, once it has."""
        return self.life.result

    def masked(self) -> Job:
        """Return a copy without secret values."""
        return replace(self, params=self.params.masked())


def mint_uuid(now: int) -> str:
    """Return a new UUIDv7. They sort by the time at which they were made, to the millisecond.

    So new ones lie together in an index, and a commit writes fewer of its pages: for jobs and for requests.
    """
    # 48 bits of time, the version, 12 random bits, the variant, 62 random bits; by hand since it is hot.
    bits = _random_bits()(74)
    number = (now & 0xFFFF_FFFF_FFFF) << 80 | bits >> 62 << 64 | bits & 0x3FFF_FFFF_FFFF_FFFF | _UUID_7
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@cache
def _random_bits() -> Callable[[int], int]:
    import random  # late: who only reads jobs mints no ids

    return random.getrandbits
