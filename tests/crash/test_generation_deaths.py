"""Relays, workers and passes over lost work that die at every call: each row has its effect exactly once."""

from __future__ import annotations

import itertools

import pytest

from tests.crash.generation_world import ENDS, LETTERED, SqsSide, World, jobs_world, sqs_world
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy

# What makes the same calls as another kind need not be tried each time.
QUICK_KINDS = [pytest.param(kind, marks=[pytest.mark.slow] if kind == "good" else []) for kind in ENDS]


@pytest.mark.parametrize("kind", QUICK_KINDS)
async def test_whatever_dies_a_row_of_each_kind_has_its_effect_once(
    dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str, kind: str
) -> None:
    """A death before a call is one after the call before it: both need not be tried."""
    async with sqs_world(dsn, aws.url, emulator, aws_env) as world:
        await die_at_every_call(world, [kind], executed=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDS)
async def test_whatever_dies_a_job_of_each_kind_has_its_effect_once(dsn: str, kind: str) -> None:
    async with jobs_world(dsn) as world:
        await die_at_every_call(world, [kind], executed=True)


@pytest.mark.long
@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("sink", ["sqs", "jobs"])
@pytest.mark.parametrize("kind", ENDS)
async def test_whatever_dies_three_of_a_kind_have_their_effects_once(
    dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str, kind: str, sink: str, executed: bool
) -> None:
    opened = sqs_world(dsn, aws.url, emulator, aws_env) if sink == "sqs" else jobs_world(dsn)
    async with opened as world:
        await die_at_every_call(world, [kind] * 3, executed=executed)


async def die_at_every_call(world: World, kinds: list[str], *, executed: bool) -> None:
    for number in itertools.count(1):
        ids = {await world.enqueue(kind): kind for kind in kinds}
        happened = await world.die_at(number, executed=executed)
        await world.survive(set(ids))
        story = f"dead {'after' if executed else 'before'} call {number}"
        for session_id, ends in (await world.ends(set(ids))).items():
            kind = ids[session_id]
            assert len(ends) == 1, (story, kind, ends)
            assert ends[0] in ENDS[kind], (story, kind)
            assert await world.images(session_id) == (kind == "images"), (story, kind)
            # Without a death nothing but what has lost its worker before is lost.
            assert happened or ends[0] != "failed:lost" or kind == "lost", (story, kind)
        if isinstance(world.side, SqsSide):
            letters = await world.side.letters()
            for session_id, kind in ids.items():
                # A letter is never lost; a death may double it.
                assert kind not in LETTERED or 1 <= letters[session_id] <= 2, (story, letters)
        if not happened:
            assert number > 4 + 3 * len(kinds)
            return
