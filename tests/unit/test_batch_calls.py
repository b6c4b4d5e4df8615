"""How the client divides many entries into calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airunner.client.batch_calls import send_batch
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import (
    AirunnerError,
    InvalidArgument,
    MessageTooLarge,
    PermissionDenied,
    Unavailable,
)

MILLION = 1_000_000


class Server:
    """Answers each entry with its queue, and remembers the calls; takes so many bytes in one."""

    def __init__(self, most_bytes: int = 4 * 1024 * 1024) -> None:
        self.calls: list[int] = []
        self._most_bytes = most_bytes

    async def send_one(self, entry: pb.EnqueueJobRequest) -> str:
        return (await self.send_many([entry]))[0]

    async def send_many(self, entries: Sequence[pb.EnqueueJobRequest]) -> list[str]:
        if pb.EnqueueJobsRequest(jobs=entries).ByteSize() > self._most_bytes:
            raise MessageTooLarge
        self.calls.append(len(entries))
        return [entry.queue for entry in entries]

    async def ask(self, *sizes: int) -> Sequence[str | AirunnerError]:
        return await send_batch(list(enumerate(sizes)), build, self.send_one, self.send_many)


def build(entry: tuple[int, int]) -> pb.EnqueueJobRequest:
    number, size = entry
    if size < 0:
        raise InvalidArgument
    params = pb.JobParams(command="x" * size)
    return pb.EnqueueJobRequest(queue=str(number), job_params=params)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([1] * 500, [500]),
        ([], [0]),
        ([MILLION] * 7, [3, 3, 1]),
        ([1, 2 * MILLION, 2 * MILLION, 1, 1], [2, 3]),
        ([1, -1, 1], [2]),
    ],
)
async def test_entries_go_in_as_few_calls_as_a_server_takes(sizes: list[int], calls: list[int]) -> None:
    server = Server()
    outcomes = await server.ask(*sizes)
    assert server.calls == calls
    assert [str(number) for number, size in enumerate(sizes) if size >= 0] == [
        outcome for outcome in outcomes if not isinstance(outcome, AirunnerError)
    ]


async def test_a_server_that_takes_less_is_given_less() -> None:
    server = Server(most_bytes=10_000)
    outcomes = await server.ask(*[3_000] * 4, 20_000, 3_000)
    assert [str(outcome) for outcome in outcomes[:4]] == ["0", "1", "2", "3"]
    assert isinstance(outcomes[4], MessageTooLarge)
    assert outcomes[5] == "5"


async def test_what_the_whole_call_fails_with_is_raised() -> None:
    class Away(Server):
        async def send_many(self, entries: Sequence[pb.EnqueueJobRequest]) -> list[str]:
            raise Unavailable

    for sizes in ([1], [1, 1]):
        with pytest.raises(Unavailable):
            await Away().ask(*sizes)


@pytest.mark.parametrize("sizes", [[1], [1, 1], [4 * MILLION]], ids=["one", "two", "a large one"])
async def test_an_entry_that_is_not_permitted_fails_alone_however_many_there_are(sizes: list[int]) -> None:
    class Bound(Server):
        async def send_one(self, entry: pb.EnqueueJobRequest) -> str:
            raise PermissionDenied(f"not for queue {entry.queue}")

        async def send_many(self, entries: Sequence[pb.EnqueueJobRequest]) -> list[Any]:
            return [PermissionDenied(f"not for queue {entry.queue}") for entry in entries]

    outcomes = await Bound().ask(*sizes)
    assert [str(outcome) for outcome in outcomes] == [
        f"not for queue {number}" for number in range(len(sizes))
    ]


@pytest.mark.parametrize("sizes", [[1], [1, 1]])
async def test_a_call_that_is_not_permitted_is_raised_however_many_entries_it_has(sizes: list[int]) -> None:
    class WithoutScope(Server):
        async def send_many(self, entries: Sequence[pb.EnqueueJobRequest]) -> list[str]:
            raise PermissionDenied("this API key has no scope jobs:submit")

    with pytest.raises(PermissionDenied, match="scope"):
        await WithoutScope().ask(*sizes)
