"""Calling handlers with a payload and a Context, here of messages: no job is anywhere near."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from airunner.domain.errors import PermanentFailure
from airunner.handlers import Context
from airunner.handlers.calls import HandlerCall, HandlerCalls, HandlerEnded
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.handlers.registry import Registry
from airunner.testing.conditions import until

LIMIT_SECONDS = 20


class NoOutput:
    """An OutputSink that remembers nothing."""

    def write(self, text: str, *, is_stderr: bool) -> None: ...

    def flush(self) -> None: ...

    def progress(self, done: int, total: int, message: str) -> None: ...

    def room(self) -> None: ...

    def seal(self) -> None: ...


Call: TypeAlias = HandlerCall[str, NoOutput]


class Bench:
    def __init__(self) -> None:
        self.ended: list[str] = []
        callbacks = LoopCallbacks(asyncio.get_running_loop())
        self.calls: HandlerCalls[Call] = HandlerCalls(threads=2, callbacks=callbacks, on_ended=self._note)

    def begin(self, function: Callable[..., Any], payload_json: str = "", key: str = "message-1") -> Call:
        registry, output = Registry(), NoOutput()
        registry.add("it", function, "here")
        context = Context(job_id=key, queue="orders", attempt=2, output=output)
        call = HandlerCall(key, registry["it"], payload_json, output=output, context=context)
        self.calls.begin([call])
        return call

    def _note(self, calls: Sequence[Call]) -> None:
        self.ended += [call.key for call in calls]


@asynccontextmanager
async def calling() -> AsyncIterator[Bench]:
    bench = Bench()
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield bench
    finally:
        bench.calls.close()


def tell(payload: dict[str, int], ctx: Context) -> list[object]:
    return [ctx.job_id, ctx.queue, ctx.attempt, dict(ctx.environment), dict(ctx.metadata), payload["n"]]


async def tell_later(payload: dict[str, int], ctx: Context) -> list[object]:
    await asyncio.sleep(0)
    return tell(payload, ctx)


@pytest.mark.parametrize("function", [tell, tell_later])
async def test_a_message_is_its_id_its_queue_and_its_receive_count(function: Callable[..., Any]) -> None:
    async with calling() as bench:
        call = bench.begin(function, '{"n": 7}')
        assert await call.done() == '["message-1","orders",2,{},{},7]'
        assert (call.settled, call.failed, bench.ended) == (True, False, ["message-1"])


async def test_a_call_without_a_context_is_enough_for_who_takes_none() -> None:
    async with calling() as bench:
        registry = Registry()
        registry.add("double", lambda payload: 2 * payload, "here")
        call: Call = HandlerCall("key", registry["double"], "21", output=NoOutput(), context=None)
        bench.calls.begin([call])
        assert await call.done() == "42"


async def test_errors_are_told_to_whoever_waits_however_late() -> None:
    def fail() -> None:
        raise PermanentFailure("no_stock")

    async def leave() -> None:
        raise SystemExit(3)

    async with calling() as bench:
        failed, left = bench.begin(fail, key="one"), bench.begin(leave, key="two")
        await until(lambda: sorted(bench.ended) == ["one", "two"])
        with pytest.raises(PermanentFailure):
            await failed.done()
        with pytest.raises(HandlerEnded, match="SystemExit: 3"):
            await left.done()
        assert failed.failed
        assert left.failed


async def test_stopping_sets_the_flag_of_a_thread_and_cancels_a_task() -> None:
    waits = threading.Event()

    def in_thread(ctx: Context) -> bool:
        waits.set()
        return ctx.wait(LIMIT_SECONDS)

    async def in_task() -> None:
        waits.set()
        await asyncio.Event().wait()

    async with calling() as bench:
        call = bench.begin(in_thread)
        await asyncio.to_thread(waits.wait, LIMIT_SECONDS)
        call.stop()
        assert await call.done() == "true"
        waits.clear()
        call = bench.begin(in_task)
        await asyncio.to_thread(waits.wait, LIMIT_SECONDS)
        call.stop()
        with pytest.raises(HandlerEnded, match="CancelledError"):
            await call.done()
