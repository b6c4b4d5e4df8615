"""The composition root: the only module that names concrete backends."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from airunner.domain.clock import SystemClock
from airunner.domain.job import BatchingConfig, ExecutionConfig
from airunner.domain.token import TokenSigner
from airunner.server.asgi import AppOptions
from airunner.server.run import ServeOptions, Server
from airunner.services.jobs import JobRules
from airunner.services.platform import Platform, PlatformRules
from airunner.stores.base import JobStore, Retention
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.config import Settings
    from airunner.domain.clock import Clock

_DAY_MS = 24 * 3600 * 1000
_TOKEN_KEY_FILE = "token.key"  # noqa: S105  the name of a file


def build_server(settings: Settings) -> Server:
    """Return the server that the settings describe."""
    options = ServeOptions(
        host=settings.listen.host,
        port=settings.listen.port,
        app=AppOptions(
            services=settings.services,
            no_auth=settings.no_auth,
            max_message_bytes=settings.limits.max_message_bytes,
        ),
        cert_file=settings.tls.cert_file,
        key_file=settings.tls.key_file,
        shutdown_grace_seconds=settings.limits.shutdown_grace_seconds,
    )
    return Server(build_platform(settings, SystemClock()), options)


def build_platform(settings: Settings, clock: Clock) -> Platform:
    """Return the services on the store that the settings name."""
    batching = settings.execution.batching
    rules = PlatformRules(
        jobs=JobRules(
            execution=ExecutionConfig(
                batching=BatchingConfig(
                    flush_interval_seconds=batching.flush_interval_seconds,
                    max_batch_size=batching.max_batch_size,
                    max_batch_bytes=batching.max_batch_bytes,
                    playback_interval_millis=batching.playback_interval_millis,
                    adaptive=batching.adaptive,
                ),
                heartbeat_interval_seconds=settings.execution.heartbeat_interval_seconds,
            ),
            visibility_timeout_seconds=settings.defaults.visibility_timeout_seconds,
            max_attempts=settings.defaults.max_attempts,
            max_queued=settings.store.max_queued_jobs_per_queue,
        ),
        retention=Retention(
            jobs_ms=settings.store.job_retention_days * _DAY_MS,
            events_ms=settings.store.event_retention_days * _DAY_MS,
        ),
        max_streams_per_job=settings.limits.max_streams_per_job,
        maintenance_interval_seconds=settings.limits.maintenance_interval_seconds,
    )
    return Platform(build_store(settings, clock), clock, build_signer(settings), rules)


def build_store(settings: Settings, clock: Clock, *, owner: bool = True) -> JobStore:
    """Return the store that the settings name; `owner=False` opens it beside a running server."""
    if settings.store.type == "memory":
        return MemoryStore(clock)
    return SqliteStore(settings.data_dir, clock, owner=owner)


def build_signer(settings: Settings) -> TokenSigner:
    """Return the signer of task tokens: with the keys that are set, or with one of the data folder's own."""
    keys = [key.get_secret_value().encode() for key in settings.token_keys]
    if not keys:
        keep = settings.store.type != "memory"
        keys = [_own_token_key(settings.data_dir) if keep else secrets.token_bytes(32)]
    return TokenSigner(keys)


def _own_token_key(directory: Path) -> bytes:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / _TOKEN_KEY_FILE
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return bytes.fromhex(path.read_text().strip())
    key = secrets.token_bytes(32)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.hex())
    return key
