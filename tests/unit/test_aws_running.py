"""The walk over running jobs on AWS where a shard has several pages, and where it cannot be complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from airunner.aws.calls import Aws
from airunner.domain.errors import Unavailable
from airunner.domain.job import JobState
from airunner.stores.aws.items import number, text
from airunner.stores.aws.known_queues import KnownQueues
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.rows import Rows
from airunner.stores.aws.running import RunningWalk
from airunner.stores.aws.unreadable import UnreadableRow, UnreadableRows
from airunner.stores.records import RunningJob
from airunner.testing.clock import ManualClock


class Table:
    """An index of running jobs, one entry a page, and their rows. Stands for Aws, Rows and KnownQueues."""

    def __init__(self, jobs: dict[str, list[str]]) -> None:
        self.jobs = jobs
        self.is_known = True
        self.odd: set[str] = set()
        self.ended: set[str] = set()

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert operation == "Query"
        key = arguments["ExpressionAttributeValues"][":key"]["S"]
        begin = arguments.get("ExclusiveStartKey")
        if begin:
            assert begin["check_key"]["S"] == key
        names = self.jobs.get(key, [])
        position = names.index(begin["job_id"]["S"]) + 1 if begin else 0
        page = names[position : position + 1]
        answer: dict[str, Any] = {"Items": [{"job_id": text(name)} for name in page]}
        if len(names) > position + 1:
            entry = {"job_id": text(page[-1]), "check_at": number(position + 7), "check_key": text(key)}
            answer["LastEvaluatedKey"] = entry
        return answer

    async def read_many(self, keys: Sequence[str], **_: Any) -> dict[str, Any]:
        return {key: self.item(key) for key in keys}

    def item(self, key: str) -> dict[str, Any]:
        state = JobState.COMPLETED if key in self.ended else JobState.RUNNING
        instance = number(1) if key in self.odd else text(f"i-{key}")
        return {
            "job_id": text(key),
            "state": number(int(state)),
            "attempt": number(2),
            "instance_id": instance,
        }

    async def all_names(self) -> Sequence[str]:
        if not self.is_known:
            raise Unavailable("not known yet")
        return ("b-queue", "a_queue", "a_queue-2")

    def walk(self) -> RunningWalk:
        return RunningWalk(
            cast("Aws", self),
            Layout(env="test", queues={"b-queue": ""}, listing_shards=2),
            rows=cast("Rows", self),
            known_queues=cast("KnownQueues", self),
            unreadable=UnreadableRows(ManualClock()),
        )


async def walked(table: Table) -> list[RunningJob]:
    walk = table.walk()
    page = await walk.page("")
    found = list(page.jobs)
    for _ in range(20):
        if not page.next_cursor:
            return found
        page = await walk.page(page.next_cursor)
        found += page.jobs
    raise AssertionError("the walk does not end")


async def test_all_pages_of_all_shards_are_followed() -> None:
    table = Table(
        {"open#a_queue#0": ["1", "2", "3"], "open#b-queue#1": ["4", "5"], "open#a_queue-2#1": ["6"]}
    )
    table.ended = {"5"}
    found = sorted(job.job_id for job in await walked(table))
    assert found == ["1", "2", "3", "4", "6"]


async def test_each_job_is_told_with_its_attempt_and_instance() -> None:
    assert await walked(Table({"open#b-queue#0": ["1"]})) == [RunningJob("1", 2, "i-1")]


async def test_a_walk_fails_where_it_cannot_be_complete() -> None:
    table = Table({"open#b-queue#0": ["1"]})
    table.odd = {"1"}
    with pytest.raises(UnreadableRow):
        await walked(table)
    table.is_known = False
    with pytest.raises(Unavailable):
        await walked(table)
