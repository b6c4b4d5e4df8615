"""How single entries that are sent at the same time share a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from airunner.client.shared_calls import LARGE_BYTES, MAX_ENTRIES, SharedCalls
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import (
    AirunnerError,
    InternalError,
    InvalidArgument,
    MessageTooLarge,
    Overloaded,
    Unavailable,
)
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until


class Server:
    """Answers each entry with its queue, once it may, and remembers the queues that each call named."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.cancelled: list[list[str]] = []
        self.refused: dict[str, AirunnerError] = {}
        """What a call with many entries says of some of them."""
        self.failure: Exception | None = None
        """What a call with many entries fails with."""
        self.max_entries = 1_000
        self.may_answer = asyncio.Event()
        self.clock = ManualClock()
        self.again: list[tuple[str, Exception, int]] = []
        """What went on by itself, after which error, and when it had begun."""
        self.shared = self.share(self.send_many)

    def share(
        self, send_many: Callable[[Sequence[pb.EnqueueJobRequest]], Awaitable[list[str | AirunnerError]]]
    ) -> SharedCalls[pb.EnqueueJobRequest, str]:
        return SharedCalls(self.send_one, send_many, self.send_again, self.clock)

    async def send_again(self, entry: pb.EnqueueJobRequest, error: Exception, began: int) -> str:
        self.again.append((entry.queue, error, began))
        return entry.queue

    async def send_one(self, entry: pb.EnqueueJobRequest) -> str:
        await self._called([entry])
        return entry.queue

    async def send_many(self, entries: Sequence[pb.EnqueueJobRequest]) -> list[str | AirunnerError]:
        await self._called(entries)
        if len(entries) > self.max_entries:
            raise MessageTooLarge
        if self.failure:
            raise self.failure
        return [self.refused.get(entry.queue) or entry.queue for entry in entries]

    def send(self, *queues: str, size: int = 0) -> list[asyncio.Task[str]]:
        """Let tasks send entries, all in the next turn of the loop."""
        params = pb.JobParams(command="x" * size)
        entries = [pb.EnqueueJobRequest(queue=queue, job_params=params) for queue in queues]
        return [asyncio.create_task(self.shared.send(entry)) for entry in entries]

    async def until_called(self, calls: int) -> None:
        await until(lambda: len(self.calls) == calls)

    async def _called(self, entries: Sequence[pb.EnqueueJobRequest]) -> None:
        queues = [entry.queue for entry in entries]
        self.calls.append(queues)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(queues)
            raise


@pytest.fixture
async def server() -> Server:
    return Server()


async def outcomes(tasks: Sequence[asyncio.Task[str]]) -> list[str | BaseException]:
    """Return what tasks return or raise; an error is always raised."""
    await asyncio.wait(tasks)
    raised = {task: task.exception() for task in tasks if not task.cancelled()}
    assert not any(isinstance(task.result(), Exception) for task, error in raised.items() if not error)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def send_beside_first(server: Server, *queues: str) -> list[str | BaseException]:
    """Return what becomes of entries that share a call, since another one is on its way."""
    tasks = server.send("first", *queues)
    await server.until_called(2)
    server.may_answer.set()
    first, *others = await outcomes(tasks)
    assert first == "first"
    return others


async def test_who_calls_alone_waits_for_nobody(server: Server) -> None:
    server.may_answer.set()
    for number in range(3):
        sending = server.shared.send(pb.EnqueueJobRequest(queue=str(number)))
        # Nothing but the server was awaited, and that answers at once.
        with pytest.raises(StopIteration) as answered:
            sending.send(None)
        assert answered.value.value == str(number)
    assert server.calls == [["0"], ["1"], ["2"]]


async def test_entries_of_one_turn_share_a_call_and_have_their_own_outcomes(server: Server) -> None:
    tasks = server.send("first", *"abc")
    await server.until_called(2)
    later = server.send(*"de")
    await server.until_called(3)
    server.may_answer.set()
    assert await outcomes([*tasks, *later]) == ["first", *"abcde"]
    assert server.calls == [["first"], [*"abc"], [*"de"]]


async def test_tasks_that_are_answered_together_ask_together_again(server: Server) -> None:
    async def send_often() -> None:
        for _ in range(3):
            await server.shared.send(pb.EnqueueJobRequest(queue="q"))

    blocking = server.send("slow")
    await server.until_called(1)
    tasks = [asyncio.create_task(send_often()) for _ in range(5)]
    server.may_answer.set()
    await asyncio.gather(*blocking, *tasks)
    assert [len(call) for call in server.calls] == [1, 5, 5, 5]


async def test_a_call_carries_no_more_than_its_limit(server: Server) -> None:
    queues = [str(number) for number in range(2 * MAX_ENTRIES + 1)]
    tasks = server.send("first", *queues)
    await server.until_called(4)
    server.may_answer.set()
    assert await outcomes(tasks) == ["first", *queues]
    assert [len(call) for call in server.calls] == [1, MAX_ENTRIES, MAX_ENTRIES, 1]


async def test_a_large_entry_goes_by_itself(server: Server) -> None:
    tasks = server.send("first")
    await server.until_called(1)
    tasks += server.send(*"ab", size=LARGE_BYTES)
    tasks += server.send(*"cd")
    await server.until_called(4)
    server.may_answer.set()
    assert await outcomes(tasks) == ["first", *"abcd"]
    assert sorted(server.calls) == [["a"], ["b"], [*"cd"], ["first"]]


async def test_an_entry_that_is_refused_fails_alone(server: Server) -> None:
    server.refused = {"b": InvalidArgument("no such queue")}
    assert await send_beside_first(server, *"abc") == ["a", server.refused["b"], "c"]
    assert server.calls == [["first"], [*"abc"]]


@pytest.mark.parametrize("error", [Unavailable(), Overloaded("later", retry_after_seconds=1)])
async def test_a_refusal_that_may_pass_goes_on_by_itself_as_what_began_before_it(
    server: Server, error: AirunnerError
) -> None:
    server.refused = {"b": error}
    tasks = server.send("first", *"abc")
    await server.until_called(2)
    began = server.clock.monotonic()
    server.clock.advance(3)
    server.may_answer.set()
    assert await outcomes(tasks) == ["first", *"abc"]
    assert server.calls == [["first"], [*"abc"]]
    assert server.again == [("b", error, began)]


@pytest.mark.parametrize("error", [Unavailable(), RuntimeError("the client is closed")])
async def test_what_a_call_fails_with_is_raised_for_all_its_entries(server: Server, error: Exception) -> None:
    server.failure = error
    raised = await send_beside_first(server, *"abc")
    assert [(type(one), str(one), vars(one)) for one in raised] == [
        (type(error), str(error), vars(error))
    ] * 3
    assert server.calls == [["first"], [*"abc"]]


async def test_the_error_of_each_is_its_own(server: Server) -> None:
    server.failure = Overloaded("later", retry_after_seconds=1)
    server.failure.add_note("on the way")
    raised = await send_beside_first(server, *"ab")
    for number, error in enumerate(raised):
        assert isinstance(error, Overloaded)
        assert error.retry_after_seconds == 1
        error.add_note(f"of {number}")
    assert [error.__notes__ for error in raised] == [["on the way", "of 0"], ["on the way", "of 1"]]  # type: ignore[union-attr]


async def test_a_server_that_takes_less_is_given_less(server: Server) -> None:
    server.max_entries = 2
    assert await send_beside_first(server, *"abcd") == [*"abcd"]
    assert server.calls == [["first"], [*"abcd"], [*"ab"], [*"cd"]]


async def test_outcomes_that_do_not_fit_are_an_error_for_all(server: Server) -> None:
    async def answer_too_little(entries: Sequence[pb.EnqueueJobRequest]) -> list[str | AirunnerError]:
        return (await server.send_many(entries))[1:]

    server.shared = server.share(answer_too_little)
    assert [type(outcome) for outcome in await send_beside_first(server, *"ab")] == [InternalError] * 2


async def test_cancelling_a_caller_leaves_the_others_alone(server: Server) -> None:
    tasks = server.send("first", *"abc")
    await server.until_called(2)
    tasks[2].cancel()
    await asyncio.wait(tasks[2:3])
    server.may_answer.set()
    first, a, b, c = await outcomes(tasks)
    assert (first, a, c) == ("first", "a", "c")
    assert isinstance(b, asyncio.CancelledError)
    assert server.cancelled == []


async def test_a_failure_is_raised_for_those_who_are_left(server: Server) -> None:
    server.failure = Unavailable()
    tasks = server.send("first", *"ab")
    await server.until_called(2)
    tasks[1].cancel()
    await asyncio.wait(tasks[1:2])
    server.may_answer.set()
    assert [type(error) for error in await outcomes(tasks[2:])] == [Unavailable]


async def test_an_entry_that_is_not_on_its_way_yet_is_not_sent(server: Server) -> None:
    tasks = server.send("first")
    await server.until_called(1)
    # The caller is cancelled in the turn in which it has asked, before the loop comes to send.
    tasks += server.send(*"ab")
    asyncio.get_running_loop().call_soon(tasks[1].cancel)
    await server.until_called(2)
    server.may_answer.set()
    first, a, b = await outcomes(tasks)
    assert (first, b) == ("first", "b")
    assert isinstance(a, asyncio.CancelledError)
    assert server.calls == [["first"], ["b"]]


async def test_a_call_is_not_made_when_nobody_waits_for_it_any_more(server: Server) -> None:
    tasks = server.send("first")
    await server.until_called(1)
    tasks += server.send(*"ab")
    for task in tasks[1:]:
        asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.wait(tasks[1:])
    tasks += server.send("c")
    await server.until_called(2)
    server.may_answer.set()
    assert [await tasks[0], await tasks[3]] == ["first", "c"]
    assert server.calls == [["first"], ["c"]]


async def test_a_call_is_cancelled_when_nobody_waits_for_it_any_more(server: Server) -> None:
    tasks = server.send("first", *"ab")
    await server.until_called(2)
    for task in tasks[1:]:
        task.cancel()
    await until(lambda: server.cancelled == [[*"ab"]])
    assert all(isinstance(error, asyncio.CancelledError) for error in await outcomes(tasks[1:]))
    server.may_answer.set()
    assert await tasks[0] == "first"


async def test_whoever_waits_ends_with_a_call_that_others_cancel(server: Server) -> None:
    tasks = server.send("first", *"ab")
    await server.until_called(2)
    (call,) = (task for task in asyncio.all_tasks() if task.get_name() == "shared call")
    call.cancel()
    first, *others = tasks
    assert all(isinstance(error, asyncio.CancelledError) for error in await outcomes(others))
    server.may_answer.set()
    assert await first == "first"


async def test_whoever_waits_ends_with_a_call_that_is_cancelled_before_its_first_step(server: Server) -> None:
    tasks = server.send("first")
    await server.until_called(1)
    tasks += server.send(*"ab")

    def cancel() -> None:
        calls = [task for task in asyncio.all_tasks() if task.get_name() == "shared call"]
        for call in calls:
            call.cancel()
        if not calls:
            asyncio.get_running_loop().call_soon(cancel)

    cancel()
    others = await asyncio.wait_for(outcomes(tasks[1:]), 10)
    assert all(isinstance(error, asyncio.CancelledError) for error in others)
    assert server.calls == [["first"]]
    server.may_answer.set()
    assert await tasks[0] == "first"


def test_a_call_of_a_loop_that_has_ended_is_open_for_nobody() -> None:
    ended = asyncio.new_event_loop()
    server = ended.run_until_complete(_make())
    # Both are under way when the loop stops for good, and the call of the second has not begun.
    sending = [ended.create_task(server.shared.send(pb.EnqueueJobRequest(queue=queue))) for queue in "ab"]
    ended.call_soon(ended.stop)
    ended.run_forever()
    assert server.calls == [["a"]]

    async def send() -> list[str | BaseException]:
        server.may_answer = asyncio.Event()
        server.may_answer.set()
        return await outcomes(server.send(*"cd"))

    assert asyncio.run(asyncio.wait_for(send(), 10)) == ["c", "d"]
    for task in sending:
        task.cancel()
    ended.run_until_complete(asyncio.wait(sending))
    ended.close()


async def _make() -> Server:
    return Server()
