"""Two servers as processes on one set of tables and queues, and clients that know both."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from airunner.client import AsyncClient
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.aws_stores import make_resources
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack, unused_port


class ReplicaStack(Stack):
    """A stack of several servers; `url` names all of them."""

    def __init__(self, folder: Path, environment: dict[str, str], count: int = 2) -> None:
        super().__init__(folder, environment)
        self.ports = [unused_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.url = ",".join(self.urls)
        self.through: dict[int, Sequence[str]] = {}
        """Commands through which replicas are started, by their numbers."""
        self._replicas: dict[int, RunningProcess] = {}

    async def start_replica(self, number: int) -> None:
        """Start one of the servers, for the first time or again, and return once it serves."""
        listen, data_dir = f"127.0.0.1:{self.ports[number]}", str(self.folder / f"data-{number}")
        asked = ("server", "--listen", listen, "--data-dir", data_dir, "--no-auth")
        through = self.through.get(number, ())
        # What is started by another command may be of a version that cannot ring.
        rings = {} if through else {"AIRUNNER_CLUSTER__ADVERTISE": self.urls[number]}
        self._replicas[number] = self._launch(*asked, name=f"server-{number}", through=through, **rings)
        await self._replicas[number].until_said("listening on")

    async def stop_replica(self, number: int) -> None:
        """End one of the servers in good order."""
        self._replicas[number].send(signal.SIGTERM)
        assert await self._replicas[number].ended() == 0

    async def kill_replica(self, number: int) -> None:
        await self._replicas[number].kill()

    def client(self) -> AsyncClient:
        return AsyncClient(self.urls, timeout_seconds=LIMIT_SECONDS)


@asynccontextmanager
async def running_replicas(
    folder: Path, emulator_url: str, env: str, *, through: Mapping[int, Sequence[str]] | None = None
) -> AsyncIterator[ReplicaStack]:
    """Give two servers that serve, `through` commands if any are given; all processes are gone afterwards."""
    layout = await make_resources(emulator_url, env)
    stack = ReplicaStack(
        folder,
        {
            "AIRUNNER_STORE__TYPE": "aws",
            "AIRUNNER_STORE__AWS__REGION": REGION,
            "AIRUNNER_STORE__AWS__ENDPOINT_URL": emulator_url,
            "AIRUNNER_STORE__SQS__QUEUES": f"default={layout.queues['builds']}",
            "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": layout.jobs_table,
            "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": layout.events_table,
            "AIRUNNER_STORE__LISTING_SHARDS": "1",
            "AIRUNNER_LIMITS__MAINTENANCE_INTERVAL_SECONDS": "2",
            "AIRUNNER_TOKEN_KEYS": "a-key-of-both-servers-only-for-tests",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        },
    )
    stack.through |= through or {}
    try:
        for number in range(len(stack.ports)):
            await stack.start_replica(number)
        yield stack
    except BaseException:
        print(stack.printed())  # noqa: T201  pytest shows it with the failure
        raise
    finally:
        stack.close()
