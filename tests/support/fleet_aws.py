"""A fleet on the emulator: machines that are launched with the tags of the fleet."""

from __future__ import annotations

from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG
from tests.support.aws import client

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
