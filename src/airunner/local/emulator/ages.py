"""Instances and parameters of the emulated AWS that are older than they are: nobody waits for them to age."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import utcnow

from airunner.local.emulator.moto_process import REGION

if TYPE_CHECKING:
    from collections.abc import Collection


def backdate(seconds: float, instances: Collection[str] = (), parameters: Collection[str] = ()) -> None:
    """Let instances be launched, and parameters be written, so long ago; LookupError for one unknown."""
    # Late: these take two seconds to import, and most emulators never need them.
    from moto.ec2.models import ec2_backends
    from moto.ssm.models import ssm_backends

    then = utcnow() - timedelta(seconds=seconds)
    machines = {found.id: found for found in ec2_backends[DEFAULT_ACCOUNT_ID][REGION].all_instances()}
    for instance_id in instances:
        machines[instance_id].launch_time = then
    store = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]
    for name in parameters:
        store._parameters[name][-1].last_modified_date = then  # noqa: SLF001  no call of AWS changes it
