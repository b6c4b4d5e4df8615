"""A fleet on the emulator: machines that are launched with the tags of the fleet."""

from __future__ import annotations

from airunner.aws.calls import Aws
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG

# One of those that the emulator has from the beginning.
_IMAGE = "ami-12c6146b"


async def launch(aws: Aws, count: int, *, pool: str, managed: str = "true") -> list[str]:
    """Launch instances of a pool; return their ids."""
    tags = [{"Key": MANAGED_TAG, "Value": managed}, {"Key": POOL_TAG, "Value": pool}]
    answer = await aws.ec2(
        "RunInstances",
        ImageId=_IMAGE,
        MinCount=count,
        MaxCount=count,
        InstanceType="m1.small",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return [entry["InstanceId"] for entry in answer["Instances"]]
