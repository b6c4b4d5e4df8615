"""What `airunner dev --aws` starts: arguments and environments, worked out before anything runs."""

from __future__ import annotations

import secrets
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airunner.config import ListenAddress, Loaded, Settings

REAL_AWS: Final = "aws"
"""What `--endpoint` says for AWS itself, which nothing else leads to."""

_ADVERTISE: Final = "AIRUNNER_CLUSTER__ADVERTISE"
_QUEUES: Final = ("priority", "default")
_CONCURRENCY: Final = 4
_MOST_PORTS: Final = 100
_MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRequest:
    """What the person asked for, by options and settings."""

    loaded: Loaded
    config_file: Path | None = None
    real: bool = False

    @property
    def wants_emulator(self) -> bool:
        """An emulator of our own is the rule: real credentials that lie around change nothing."""
        return not self.real and not self.loaded.settings.store.aws.endpoint_url


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """Everything that is started, but for the emulator."""

    addresses: Sequence[str]
    queues: Mapping[str, str]
    worker_queues: Sequence[str]
    handlers: Sequence[str]
    concurrency: int
    location: str
    server_seconds: float
    worker_seconds: float
    shared_options: Sequence[str]
    server_environment: Mapping[str, str] = field(repr=False)
    worker_environment: Mapping[str, str] = field(repr=False)

    def provision(self) -> list[str]:
        """Return the command that makes queues and tables."""
        config = self.shared_options[:2] if "--config" in self.shared_options else ()
        return ["aws", "provision", *_repeated("--queue", self.queues), *config]

    def server(self, address: str) -> list[str]:
        """Return the command of one server."""
        options = ("--listen", address, "--store", "aws", "--no-auth", "--services", "jobs,events")
        return ["server", *options, *self.shared_options]

    def environment_of(self, address: str) -> dict[str, str]:
        """Return the environment of one server, which says where the other one can ring, if that is known."""
        shared = {name: text for name, text in self.server_environment.items() if name != _ADVERTISE}
        is_known = not address.endswith(":0")
        return {**shared, _ADVERTISE: f"http://{address}"} if is_known else shared

    def worker(self, urls: Sequence[str]) -> list[str]:
        """Return the command of the worker of these servers."""
        options = ("--server", ",".join(urls), "--concurrency", str(self.concurrency))
        served = (*_repeated("--queue", self.worker_queues), *_repeated("--handlers", self.handlers))
        return ["worker", *options, *served, *self.shared_options]


def plan_for(request: StackRequest, emulator_url: str) -> StackPlan:
    """Return what to start, on the emulator at this address if there is one."""
    from airunner.config import process_environment

    settings, origins = request.loaded.settings, request.loaded.origins
    queues = _configured_queues(request)
    worker_queues = settings.worker.queues
    if origins["worker.queues"] == "default":
        worker_queues = tuple(queues) or _QUEUES
    # A job that names no queue goes to `default`, unless a file says which queues there are.
    extra = worker_queues if queues else (*worker_queues, "default")
    queues = dict.fromkeys(extra, "") | queues
    ours = process_environment()
    return StackPlan(
        addresses=(settings.listen, _beside(settings.listen)),
        queues=queues,
        worker_queues=worker_queues,
        handlers=settings.worker.handlers,
        concurrency=settings.worker.concurrency
        if origins["worker.concurrency"] != "default"
        else _CONCURRENCY,
        location=_location(settings, emulator_url),
        server_seconds=settings.limits.shutdown_grace_seconds,
        worker_seconds=settings.worker.drain_seconds + settings.worker.grace_seconds,
        shared_options=_shared_options(request),
        server_environment=_server_environment(settings, ours, queues, emulator_url),
        worker_environment=ours,
    )


def emulated(url: str, region: str = "") -> dict[str, str]:
    """Return the variables with which a process uses an emulator, and nothing of the person's AWS."""
    from airunner.local.emulator import ACCESS_KEY, REGION, SECRET_KEY

    return {
        "AIRUNNER_STORE__AWS__ENDPOINT_URL": url,
        "AIRUNNER_STORE__AWS__REGION": region or REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _configured_queues(request: StackRequest) -> dict[str, str]:
    """Return the queues that the settings name, if they do, with their URLs."""
    configured = request.loaded.settings.store.sqs.queues
    if request.loaded.origins["store.sqs.queues"] == "default":
        return {}
    # The URLs of a file lead to other queues than those of the emulator.
    return dict.fromkeys(configured, "") if request.wants_emulator else dict(configured)


def _location(settings: Settings, emulator_url: str) -> str:
    if emulator_url:
        return f"an emulated AWS on {emulator_url} that forgets them at the end"
    aws = settings.store.aws
    return f"AWS on {aws.endpoint_url}" if aws.endpoint_url else f"AWS in {aws.region}"


def _shared_options(request: StackRequest) -> tuple[str, ...]:
    settings = request.loaded.settings
    # The children's errors go through us, so that they cannot see what ours go to.
    style = "console" if settings.log_format == "auto" and sys.stderr.isatty() else settings.log_format
    config = ("--config", str(request.config_file)) if request.config_file else ()
    return (*config, "--log-level", settings.log_level, "--log-format", style)


def _server_environment(
    settings: Settings, ours: Mapping[str, str], queues: Mapping[str, str], emulator_url: str
) -> dict[str, str]:
    """Return what servers and provisioning need; on an emulator of ours nothing of the person's AWS."""
    addresses = (f"{queue}={url}" if url else queue for queue, url in queues.items())
    keys = (key.get_secret_value() for key in settings.token_keys)
    values = {
        "AIRUNNER_STORE__SQS__QUEUES": ",".join(addresses),
        "AIRUNNER_TOKEN_KEYS": ",".join(keys) or secrets.token_hex(32),
    }
    if emulator_url:
        kept = {name: text for name, text in ours.items() if not name.startswith("AWS_")}
        return {**kept, **values, **emulated(emulator_url, settings.store.aws.region)}
    if settings.store.aws.endpoint_url:
        from airunner.local.emulator import REGION

        values["AIRUNNER_STORE__AWS__ENDPOINT_URL"] = settings.store.aws.endpoint_url
        values["AIRUNNER_STORE__AWS__REGION"] = settings.store.aws.region or REGION
    return {**ours, **values}


def _beside(address: ListenAddress) -> str:
    """Return the address with the next port that is free; a port that the system chooses stays so."""
    host = address.rpartition(":")[0]
    if not address.port:
        return address
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for port in range(address.port + 1, min(address.port + _MOST_PORTS, _MAX_PORT) + 1):
        try:
            with socket.create_server((address.host, port), family=family):
                return f"{host}:{port}"
        except OSError:
            continue
    return f"{host}:0"


def _repeated(option: str, values: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [word for value in values for word in (option, value)]
