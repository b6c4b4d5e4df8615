"""Execution settings to and from protobuf: those that a job has, and what a request asks for instead."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.execution import BatchingConfig, ExecutionConfig

if TYPE_CHECKING:
    from airunner.domain.requests import ExecutionOverride


@functools.lru_cache(maxsize=256)
def encode_execution(execution: ExecutionConfig | ExecutionOverride) -> bytes:
    """Return the bytes of an execution config, or of what is set of an override."""
    return execution_to_pb(execution).SerializeToString(deterministic=True)


@functools.lru_cache(maxsize=256)
def decode_execution(encoded: bytes) -> ExecutionConfig:
    """Return the execution config of stored bytes."""
    return execution_from_pb(pb.ExecutionConfig.FromString(encoded), ExecutionConfig())


@functools.lru_cache(maxsize=256)
def decode_override(encoded: bytes) -> ExecutionOverride:
    """Return the override of the bytes of a request."""
    return override_from_pb(pb.ExecutionConfig.FromString(encoded))


def merge_execution(override: bytes, defaults: ExecutionConfig) -> ExecutionConfig:
    """Return the defaults with what an encoded override says instead, if that is within the limits."""
    merged = execution_from_pb(pb.ExecutionConfig.FromString(override), defaults)
    merged.validate()
    return merged


@functools.lru_cache(maxsize=256)
def execution_to_pb(execution: ExecutionConfig | ExecutionOverride) -> pb.ExecutionConfig:
    """Return the message of an execution config, or of what is set of an override; it is shared: copy it."""
    batching = execution.batching
    return pb.ExecutionConfig(
        batching=pb.BatchingConfig(
            flush_interval_seconds=batching.flush_interval_seconds,
            max_batch_size=batching.max_batch_size,
            max_batch_bytes=batching.max_batch_bytes,
            playback_interval_millis=batching.playback_interval_millis,
            adaptive=batching.adaptive,
        ),
        heartbeat_interval_seconds=execution.heartbeat_interval_seconds,
    )


def execution_from_pb(message: pb.ExecutionConfig, defaults: ExecutionConfig) -> ExecutionConfig:
    """Return the execution config of a message, with the defaults where it says nothing."""
    given, default = message.batching, defaults.batching
    return ExecutionConfig(
        batching=BatchingConfig(
            flush_interval_seconds=given.flush_interval_seconds or default.flush_interval_seconds,
            max_batch_size=given.max_batch_size or default.max_batch_size,
            max_batch_bytes=given.max_batch_bytes or default.max_batch_bytes,
            playback_interval_millis=given.playback_interval_millis or default.playback_interval_millis,
            adaptive=given.adaptive if given.HasField("adaptive") else default.adaptive,
        ),
        heartbeat_interval_seconds=message.heartbeat_interval_seconds or defaults.heartbeat_interval_seconds,
    )


def override_from_pb(message: pb.ExecutionConfig) -> ExecutionOverride:
    """Return the override of a message: what it does not say stays unset."""
    from airunner.domain.requests import BatchingOverride, ExecutionOverride  # late: clients read none

    given = message.batching
    return ExecutionOverride(
        batching=BatchingOverride(
            flush_interval_seconds=given.flush_interval_seconds,
            max_batch_size=given.max_batch_size,
            max_batch_bytes=given.max_batch_bytes,
            playback_interval_millis=given.playback_interval_millis,
            adaptive=given.adaptive if given.HasField("adaptive") else None,
        ),
        heartbeat_interval_seconds=message.heartbeat_interval_seconds,
    )
