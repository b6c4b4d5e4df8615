"""A fleet on the emulator: machines that are launched with the tags of the fleet."""

from __future__ import annotations

from dataclasses import replace

from airunner.aws.calls import Aws
from airunner.aws.provision import provision
from airunner.domain.clock import SystemClock
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG
from airunner.fleet.aws.layout import FleetLayout, fleet_resources
from tests.support.aws import client
from tests.support.aws_stores import options_of

# One of those that the emulator has from the beginning.
_IMAGE = "ami-12c6146b"


async def launch(url: str, count: int, *, pool: str, managed: str = "true") -> list[str]:
    """Launch instances of a pool; return their ids. Each launch is tried once: a second would launch more."""
    tags = [{"Key": MANAGED_TAG, "Value": managed}, {"Key": POOL_TAG, "Value": pool}]
    async with client("ec2", url) as ec2:
        answer = await ec2.run_instances(
            ImageId=_IMAGE,
            MinCount=count,
            MaxCount=count,
            InstanceType="m1.small",
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
    return [entry["InstanceId"] for entry in answer["Instances"]]


async def provide_fleet(url: str, layout: FleetLayout) -> None:
    """Make the queues and tables of a fleet, with more patience than for AWS: see `options_of`."""
    async with Aws(replace(options_of(url), clients=("dynamodb", "sqs"))) as aws:
        await provision(aws, fleet_resources(layout), SystemClock())
