"""A table belongs to one environment and to the versions that can read it, on an emulator over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from airunner.aws import table_meta
from airunner.aws.calls import Aws
from airunner.aws.table_meta import META_ID, VERSION, TableOwnership
from airunner.domain.errors import AirunnerError, FailedPrecondition, Unavailable
from airunner.stores.aws.layout import Layout, owned_table, tables
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import Retention
from airunner.testing.clock import ManualClock
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store, options_of

pytest_plugins = ("tests.support.aws",)

META = {"job_id": {"S": META_ID}}
FIRST_NAMES = ("airunner_jobs", "airunner_job_events")


@pytest.fixture
async def account(emulator: EmulatorProcess) -> AsyncIterator[Aws]:
    async with Aws(options_of(emulator.url)) as opened:
        yield opened


@pytest.fixture
async def layout(borrow_layout: BorrowLayout) -> Layout:
    return await borrow_layout()


@asynccontextmanager
async def opened(url: str, layout: Layout) -> AsyncIterator[AwsStore]:
    store = make_store(url, layout, ManualClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def meta_of(account: Aws, table: str) -> dict[str, Any]:
    found = await account.dynamodb("GetItem", TableName=table, Key=META, ConsistentRead=True)
    return dict(found.get("Item", {}))


async def put_meta(account: Aws, table: str, environment: str, version: int, min_version: int) -> None:
    item = META | {
        "environment": {"S": environment},
        "version": {"N": str(version)},
        "min_version": {"N": str(min_version)},
    }
    await account.dynamodb("PutItem", TableName=table, Item=item)


# Environments


async def test_the_first_server_adopts_tables_that_were_made_before(
    account: Aws, layout: Layout, emulator: EmulatorProcess
) -> None:
    async with opened(emulator.url, layout), opened(emulator.url, layout):
        marked = {"environment": {"S": layout.env}, "version": {"N": "1"}, "min_version": {"N": "0"}}
        assert await meta_of(account, layout.jobs_table) == META | marked


async def test_a_server_of_another_environment_is_refused_in_a_line_that_names_both(
    layout: Layout, emulator: EmulatorProcess
) -> None:
    async with opened(emulator.url, layout):
        pass
    with pytest.raises(FailedPrecondition) as refused:
        async with opened(emulator.url, replace(layout, env="staging")):
            pass
    assert refused.value.text == (
        f"table {layout.jobs_table} belongs to environment {layout.env}, and this is environment staging: "
        "set store.aws.env, or name another table"
    )


async def test_an_answer_that_is_lost_does_not_refuse_its_own_mark(
    aws: StrictProxy, account: Aws, layout: Layout
) -> None:
    aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_DROP)
    async with opened(aws.url, layout) as store:
        await store.check()
    assert (await meta_of(account, layout.jobs_table))["environment"] == {"S": layout.env}


async def test_a_server_that_starts_while_aws_is_away_asks_before_it_touches_anything(
    aws: StrictProxy, layout: Layout, emulator: EmulatorProcess
) -> None:
    async with opened(emulator.url, layout):
        pass
    aws.faults.add(Fault(kind=FaultKind.SERVER_ERROR))
    async with opened(aws.url, replace(layout, env="staging")) as store:
        with pytest.raises(Unavailable):
            await store.enqueue_jobs([])
        aws.faults.clear()
        for refused in (
            store.check(),
            store.enqueue_jobs([]),
            store.maintain(Retention(jobs_ms=1, events_ms=1), 0),
            store.find_key("any"),
        ):
            with pytest.raises(FailedPrecondition, match=f"belongs to environment {layout.env}"):
                await refused


async def test_a_server_without_tables_starts_and_says_what_is_missing(
    layout: Layout, emulator: EmulatorProcess
) -> None:
    async with opened(emulator.url, replace(layout, jobs_table="no_such_table")) as store:
        with pytest.raises(Unavailable, match="The table no_such_table does not exist"):
            await store.check()


# Names


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ("prod", FIRST_NAMES),
        ("dev", ("airunner_dev_jobs", "airunner_dev_job_events")),
        ("staging", ("airunner_staging_jobs", "airunner_staging_job_events")),
    ],
)
def test_tables_are_called_after_their_environment(env: str, named: tuple[str, str]) -> None:
    layout = Layout(env=env)
    assert (layout.jobs_table, layout.events_table) == named
    assert Layout(env=env, jobs_table="ours").jobs_table == "ours"


@pytest.fixture
async def former(emulator: EmulatorProcess) -> AsyncIterator[Layout]:
    """The tables of the names that all environments had, which belong to nobody yet."""
    layout = Layout(env="prod")
    async with client("dynamodb", emulator.url) as dynamodb:
        for table in tables(layout):
            await dynamodb.create_table(**table)
        yield layout
        for name in FIRST_NAMES:
            await dynamodb.delete_table(TableName=name)


async def test_who_finds_only_the_former_name_is_told_how_to_keep_it(
    account: Aws, former: Layout, emulator: EmulatorProcess, layout: Layout
) -> None:
    staging = Layout(env="staging", queues=layout.queues)
    expected = (
        "there is no table airunner_staging_jobs, but airunner_jobs, the name that environment staging had "
        "by default: to keep it, set store.dynamodb.jobs_table: airunner_jobs and "
        "store.dynamodb.events_table: airunner_job_events; to use a new one, provision it by its "
        "name, --jobs-table airunner_staging_jobs"
    )
    with pytest.raises(FailedPrecondition) as at_start:
        async with opened(emulator.url, staging):
            pass
    with pytest.raises(FailedPrecondition) as at_provisioning:
        await ownership(account, staging).refuse_others()
    assert at_start.value.text == at_provisioning.value.text == expected
    # Once the table is known to be another's, a new environment gets tables of its own.
    await ownership(account, former).ensure()
    await ownership(account, staging).refuse_others()
    with pytest.raises(AirunnerError) as missing:
        await ownership(account, staging).ensure()
    assert not isinstance(missing.value, FailedPrecondition)


async def test_a_setting_keeps_the_former_name(
    account: Aws, former: Layout, emulator: EmulatorProcess, layout: Layout
) -> None:
    kept = Layout(
        env="staging",
        queues=layout.queues,
        jobs_table=former.jobs_table,
        events_table=former.events_table,
    )
    async with opened(emulator.url, kept) as store:
        await store.check()
    assert (await meta_of(account, former.jobs_table))["environment"] == {"S": "staging"}


# Versions


async def test_a_server_works_beside_one_that_is_a_version_newer(
    account: Aws, layout: Layout, emulator: EmulatorProcess
) -> None:
    await put_meta(account, layout.jobs_table, layout.env, VERSION + 1, VERSION)
    async with opened(emulator.url, layout) as store:
        await store.check()
    assert (await meta_of(account, layout.jobs_table))["version"] == {"N": str(VERSION + 1)}


async def test_a_server_that_is_too_old_is_refused_in_a_line(
    account: Aws, layout: Layout, emulator: EmulatorProcess
) -> None:
    await put_meta(account, layout.jobs_table, layout.env, VERSION + 2, VERSION + 1)
    with pytest.raises(FailedPrecondition) as refused:
        async with opened(emulator.url, layout):
            pass
    assert refused.value.text == (
        f"table {layout.jobs_table} has version 3, which works with version 2 and newer; this airunner has "
        "version 1: upgrade it"
    )


async def test_a_newer_server_raises_the_version(
    account: Aws, layout: Layout, emulator: EmulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(emulator.url, layout):
        pass
    monkeypatch.setattr(table_meta, "VERSION", VERSION + 1)
    async with opened(emulator.url, layout):
        found = await meta_of(account, layout.jobs_table)
    assert (found["version"], found["min_version"]) == ({"N": "2"}, {"N": "1"})


def ownership(account: Aws, layout: Layout) -> TableOwnership:
    return TableOwnership(account, owned_table(layout), layout.env)
