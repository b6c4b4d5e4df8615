"""The client library: AsyncClient for asyncio, Client for everybody else."""

from __future__ import annotations

from airunner.client.async_client import DEFAULT_QUEUE, AsyncClient, StreamOptions
from airunner.client.monitor import ConnectionState
from airunner.client.sync_client import Client
from airunner.client.wire_client import DEFAULT_SERVER, WireClient
from airunner.domain.answers import DequeuedJob, Enqueued, HeldJob, JobPage, Published, QueueStats, WorkerSeen
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    EnqueueRequest,
    JobQuery,
    ReleaseRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.reading.event_buffer import EventBuffer
from airunner.reading.proof import Coverage, LogProof, LogVerdict, VerdictKind

__all__ = [
    "DEFAULT_QUEUE",
    "DEFAULT_SERVER",
    "AsyncClient",
    "Client",
    "CompleteRequest",
    "ConnectionState",
    "Coverage",
    "DequeueRequest",
    "DequeuedJob",
    "EnqueueRequest",
    "Enqueued",
    "EventBuffer",
    "HeldJob",
    "JobPage",
    "JobQuery",
    "LogProof",
    "LogVerdict",
    "Published",
    "QueueStats",
    "ReleaseRequest",
    "StreamOptions",
    "StreamRequest",
    "UpdateRequest",
    "VerdictKind",
    "WireClient",
    "WorkerSeen",
]
