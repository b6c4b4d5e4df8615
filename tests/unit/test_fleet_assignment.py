"""Assigning instances: the record before the configuration, and whatever a death leaves is completed."""

from __future__ import annotations

import pytest

from airunner.config import parameter_layer
from airunner.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from airunner.fleet.assignment import Assignments, RunnerAccess
from airunner.fleet.records import Instance, InstanceState
from airunner.testing.clock import ManualClock
from tests.support.fleet import FakeInstances, FakeParameters, FakeRecords

ACCESS = RunnerAccess(servers=("https://jobs.example",), api_key="sk-secret-0123456789")
NAME = "/runs-fleet/runners/i-1/config"
STEPS = ("find", "assign", "put")


class Account:
    """What there is: machines, records and parameters."""

    def __init__(self, **changes: object) -> None:
        values: dict[str, object] = {
            "instance_id": "i-1",
            "state": InstanceState.RUNNING,
            "launched_at": 1,
            "arn": "arn:aws:ec2:eu-west-1:123456789012:instance/i-1",
        }
        self.clock = ManualClock()
        self.instances = FakeInstances(Instance(**{**values, **changes}))  # type: ignore[arg-type]
        self.records, self.parameters = FakeRecords(), FakeParameters()

    async def assign(self, queue: str = "builds", instance_id: str = "i-1") -> None:
        ports = (self.instances, self.records, self.parameters)
        await Assignments(*ports, ACCESS, self.clock).assign(instance_id, queue)

    def is_whole(self, queue: str = "builds") -> bool:
        """Whether record and configuration name the queue, and the instance alone may read it."""
        value, arn = self.parameters.values[NAME]
        layer = parameter_layer(value, NAME)
        return (
            self.records.instances["i-1"].queue == queue
            and layer["worker.queues"].value == [queue]
            and layer["client.api_key"].value == ACCESS.api_key
            and layer["client.server"].value == [*ACCESS.servers]
            and arn.endswith(":instance/i-1")
        )


async def test_an_assignment_is_whole() -> None:
    account = Account()
    await account.assign()
    assert account.is_whole()
    await account.assign("docs")
    assert account.is_whole("docs")


async def test_the_record_comes_before_the_configuration() -> None:
    account = Account()
    account.parameters.before = lambda _: assigned.append("i-1" in account.records.instances)
    assigned: list[bool] = []
    await account.assign()
    assert assigned == [True]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("assigned_before", [False, True])
async def test_after_a_death_at_any_call_assigning_again_completes_it(
    step: str, after: bool, assigned_before: bool
) -> None:
    account = Account()
    if assigned_before:
        await account.assign("docs")
    port = {"find": account.instances, "assign": account.records, "put": account.parameters}[step]
    following = {"find": account.records, "assign": account.parameters}.get(step) if after else port
    if following:
        name = STEPS[STEPS.index(step) + after]
        following.errors[name] = Unavailable("the assigner died")
        with pytest.raises(Unavailable):
            await account.assign()
        # Whoever looks meanwhile finds a configuration that is whole, or none.
        assert set(account.parameters.values) == ({NAME} if assigned_before else set())
        following.errors.clear()
    else:
        await account.assign()
    await account.assign()
    assert account.is_whole()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"instance_id": "i-2"}, "does not know instance i-1; if it is new, try again"),
        ({"is_managed": False}, "not tagged as one of the fleet"),
        ({"state": InstanceState.SHUTTING_DOWN}, "is shutting-down"),
        ({"state": InstanceState.TERMINATED}, "is terminated"),
    ],
)
async def test_what_is_no_instance_of_the_fleet_is_refused(changes: dict[str, object], told: str) -> None:
    account = Account(**changes)
    with pytest.raises(FailedPrecondition, match=told):
        await account.assign()
    assert not account.records.instances
    assert not account.parameters.values


async def test_a_draining_instance_gets_no_configuration() -> None:
    account = Account()
    record = (await account.records.read_instances(["i-1"]))["i-1"]
    await account.records.mark_draining(record, 1)
    with pytest.raises(FailedPrecondition, match="i-1 is draining"):
        await account.assign()
    assert not account.parameters.values
    await account.records.undrain("i-1")
    await account.assign()
    assert account.is_whole()


@pytest.mark.parametrize(("instance_id", "queue"), [("../x", "builds"), ("", "builds"), ("i-1", "a b")])
async def test_names_that_are_none_reach_nobody(instance_id: str, queue: str) -> None:
    account = Account()
    with pytest.raises(InvalidArgument):
        await account.assign(queue, instance_id)
    assert not account.instances.calls


def test_the_key_is_not_shown() -> None:
    assert ACCESS.api_key not in repr(ACCESS)
