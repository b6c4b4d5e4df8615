"""The client library: AsyncClient for asyncio, Client for everybody else."""

from __future__ import annotations

from airunner.client.async_client import DEFAULT_QUEUE, AsyncClient, StreamOptions
from airunner.client.monitor import ConnectionState
from airunner.client.sync_client import Client
from airunner.client.wire_client import DEFAULT_SERVER, WireClient
from airunner.domain.completeness import Coverage, LogProof, Verdict, VerdictKind
from airunner.domain.event_buffer import EventBuffer
from airunner.services.api import (
    CompleteRequest,
    DequeuedJob,
    DequeueRequest,
    EnqueueRequest,
    HeldJob,
    Published,
    ReleaseRequest,
    StreamRequest,
    UpdateRequest,
    WorkerSeen,
)
from airunner.stores.base import Enqueued, JobPage, JobQuery, QueueStats

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
    "Published",
    "QueueStats",
    "ReleaseRequest",
    "StreamOptions",
    "StreamRequest",
    "UpdateRequest",
    "Verdict",
    "VerdictKind",
    "WireClient",
    "WorkerSeen",
]
