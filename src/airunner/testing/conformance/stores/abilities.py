"""Workers that can do some jobs and not others: each gets what it can do, and the rest waits for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import Abilities
from airunner.testing.factories import make_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DequeuedJob
    from airunner.domain.requests import EnqueueRequest
    from airunner.testing.conformance.stores.backend import Api

COMMANDS = Abilities(commands=True)
RESIZE = Abilities(handlers=("resize",))
MAIL = Abilities(handlers=("mail",))
# A store on SQS lets a job rest for a second that a caller could not do: who waits gets it all the same.
WAIT_SECONDS = 20


def for_handler(name: str, *, queue: str = "builds", delay_seconds: int = 0) -> EnqueueRequest:
    return make_request(queue, params=JobParams(handler=name), delay_seconds=delay_seconds)


def numbered(count: int, *, length: int = 4) -> Abilities:
    return Abilities(handlers=[f"{number:04}".ljust(length, "h") for number in range(count)])


def ids(held: Sequence[DequeuedJob]) -> list[str]:
    return [one.job.job_id for one in held]


class AbilitiesConformance:
    async def test_a_handler_job_waits_for_who_has_its_handler(self, api: Api) -> None:
        job_id = await api.enqueue(for_handler("resize"))
        for _ in range(2):
            assert await api.dequeue(abilities=COMMANDS) == []
            assert await api.dequeue(abilities=MAIL) == []
        assert (await api.jobs.get_job(job_id)).state is JobState.SCHEDULED
        (held,) = await api.dequeue(abilities=RESIZE, wait_seconds=WAIT_SECONDS)
        assert (held.job.job_id, held.job.attempt, held.job.life.handed_back) == (job_id, 1, 0)

    async def test_a_command_waits_for_who_runs_commands(self, api: Api) -> None:
        job_id = await api.enqueue()
        assert await api.dequeue(abilities=RESIZE) == []
        both = Abilities(handlers=("resize",), commands=True)
        assert ids(await api.dequeue(abilities=both, wait_seconds=WAIT_SECONDS)) == [job_id]

    async def test_who_declares_nothing_gets_everything(self, api: Api) -> None:
        added = [await api.enqueue(for_handler("resize")), await api.enqueue()]
        assert sorted(ids(await api.dequeue(max_jobs=10))) == sorted(added)

    async def test_names_compare_case_insensitively(self, api: Api) -> None:
        for named, declared in (("Resize", "rESIZE"), ("GRÖSSE", "größe")):
            job_id = await api.enqueue(for_handler(named))
            (held,) = await api.dequeue(abilities=Abilities(handlers=(declared,)))
            assert (held.job.job_id, held.job.params.handler) == (job_id, named)

    async def test_what_a_caller_can_do_comes_in_the_order_of_enqueueing(self, api: Api) -> None:
        names = ("resize", "mail", "", "resize", "scan", "mail", "resize")
        added = [await api.enqueue(for_handler(name) if name else None) for name in names]
        able = Abilities(handlers=("resize", "mail"))
        wanted = [job_id for job_id, name in zip(added, names, strict=True) if name in able.handlers]
        if not api.capabilities.strict_fifo:
            taken = ids(await api.dequeue(abilities=able, max_jobs=10))
            assert set(taken) <= set(wanted)
            return
        assert ids(await api.dequeue(abilities=able, max_jobs=3)) == wanted[:3]
        assert ids(await api.dequeue(abilities=able, max_jobs=3)) == wanted[3:]
        assert ids(await api.dequeue(max_jobs=10)) == [job_id for job_id in added if job_id not in wanted]

    async def test_a_waiting_call_gets_what_it_can_do_and_nothing_else(self, api: Api) -> None:
        call = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=COMMANDS))
        await api.enqueue(for_handler("resize"))
        await api.advance(1)
        assert not call.done()
        job_id = await api.enqueue()
        assert ids(await call) == [job_id]

    async def test_a_job_goes_past_those_who_cannot_do_it(self, api: Api) -> None:
        unable = [
            await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=abilities))
            for abilities in (COMMANDS, MAIL, COMMANDS)
        ]
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        job_id = await api.enqueue(for_handler("resize"))
        assert ids(await able) == [job_id]
        assert not any(call.done() for call in unable)
        await api.advance(WAIT_SECONDS)
        assert await asyncio.gather(*unable) == [[], [], []]

    async def test_of_those_who_can_do_it_the_first_gets_it(self, api: Api) -> None:
        calls = [
            await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=abilities))
            for abilities in (MAIL, RESIZE, None)
        ]
        first = await api.enqueue(for_handler("resize"))
        assert ids(await calls[1]) == [first]
        second = await api.enqueue(for_handler("resize"))
        assert ids(await calls[2]) == [second]
        assert not calls[0].done()
        third = await api.enqueue(for_handler("mail"))
        assert ids(await calls[0]) == [third]

    async def test_a_job_that_falls_due_wakes_who_can_do_it(self, api: Api) -> None:
        job_id = await api.enqueue(for_handler("resize", delay_seconds=2))
        unable = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=MAIL))
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        await api.advance(2)
        assert ids(await able) == [job_id]
        assert not unable.done()
        await api.advance(WAIT_SECONDS)
        assert await unable == []

    async def test_a_job_that_fell_due_before_one_who_cannot_do_it_is_there_for_others(
        self, api: Api
    ) -> None:
        job_id = await api.enqueue(for_handler("resize", delay_seconds=2))
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        api.clock.advance(5)
        assert await api.dequeue(abilities=MAIL) == []
        await api.advance(0)
        assert ids(await able) == [job_id]

    async def test_a_lapse_wakes_who_can_do_it(self, api: Api) -> None:
        if api.capabilities.redelivery_slack_seconds > 10:
            pytest.skip("this store notices a lapse later than any call waits")
        held = await api.new_claim(for_handler("resize"), visibility_seconds=10)
        unable = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=COMMANDS))
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        await api.lapse(10)
        assert ids(await able) == [held.job.job_id]
        assert not unable.done()
        await api.advance(WAIT_SECONDS)
        assert await unable == []

    async def test_a_release_and_a_resume_wake_who_can_do_it(self, api: Api) -> None:
        held = await api.new_claim(for_handler("resize"))
        unable = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=COMMANDS))
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        await api.release(held)
        assert ids(await able) == [held.job.job_id]
        await api.jobs.set_paused("builds", paused=True)
        job_id = await api.enqueue(for_handler("resize"))
        able = await api.started(api.dequeue(wait_seconds=WAIT_SECONDS, abilities=RESIZE))
        await api.jobs.set_paused("builds", paused=False)
        assert ids(await able) == [job_id]
        assert not unable.done()
        await api.advance(WAIT_SECONDS)
        assert await unable == []

    async def test_a_later_queue_is_served_when_the_earlier_ones_have_nothing_it_can_do(
        self, api: Api
    ) -> None:
        await api.enqueue(for_handler("resize", queue="high"))
        low = await api.enqueue(queue="low")
        held = await api.dequeue("high", more_queues=("low",), max_jobs=10, abilities=COMMANDS)
        assert ids(held) == [low]

    async def test_workers_with_different_handlers_share_a_queue(self, api: Api) -> None:
        names = ("resize", "mail") * 5
        added = {await api.enqueue(for_handler(name)): name for name in names}
        taken: dict[str, str] = {}

        async def work(name: str) -> None:
            while list(taken.values()).count(name) < 5:
                abilities = Abilities(handlers=(name,))
                for held in await api.dequeue(wait_seconds=WAIT_SECONDS, max_jobs=2, abilities=abilities):
                    taken[held.job.job_id] = name
                    await api.complete(held)

        async with asyncio.timeout(60):
            await asyncio.gather(work("resize"), work("mail"))
        assert taken == added

    async def test_a_worker_is_listed_with_what_it_can_do(self, api: Api) -> None:
        many = numbered(150)
        await api.dequeue(worker_id="a", abilities=many)
        await api.dequeue(worker_id="b", abilities=Abilities(handlers=("mail", "Resize")))
        await api.dequeue(worker_id="c")
        await api.dequeue(worker_id="d", abilities=numbered(100, length=128))
        one, two, three, four = await api.jobs.list_workers()
        assert one.abilities == Abilities(handlers=tuple(many.handlers[:100]))
        assert (two.abilities, two.more_handlers) == (Abilities(handlers=("Resize", "mail")), 0)
        assert (one.more_handlers, three.abilities) == (50, None)
        # Of long names there are fewer.
        assert four.abilities == Abilities(handlers=tuple(numbered(32, length=128).handlers))
        assert four.more_handlers == 68

    async def test_abilities_have_limits(self, api: Api) -> None:
        for accepted in (numbered(1000), numbered(512, length=128)):
            assert await api.dequeue(abilities=accepted) == []
        for refused in (
            Abilities(),
            Abilities(handlers=("",), commands=True),
            Abilities(handlers=(" resize",)),
            Abilities(handlers=("h" * 129,)),
            numbered(1001),
            numbered(513, length=128),
        ):
            with pytest.raises(InvalidArgument):
                await api.dequeue(abilities=refused)
