"""Which instance a runner is on, and its configuration: the parameter of that instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.config import ConfigError, parameter_layer
from airunner.domain.errors import AirunnerError, ResourceExhausted, Unavailable
from airunner.domain.retry import RetryPolicy, retry
from airunner.fleet.records import INSTANCE_ID
from airunner.fleet.runner.metadata import InstanceMetadata
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.config import Layer, Settings
    from airunner.domain.clock import Clock
    from airunner.fleet.ports import RunnerParameters

_log = get_logger("airunner.fleet")

AWAY_SECONDS: Final = 300.0
"""How long a parameter store may be away."""
_POLICY: Final = RetryPolicy(first_seconds=1.0, max_seconds=5.0)


async def find_instance_id(settings: Settings, clock: Clock) -> str:
    """Return which instance this is: what the settings say, else the metadata endpoint; else ConfigError."""
    given = settings.worker.instance_id
    if given and not INSTANCE_ID.fullmatch(given):
        raise ConfigError(["worker.instance_id: must be 1 to 64 letters, digits and '-'"])
    if given:
        return given
    async with InstanceMetadata(settings.fleet.metadata_url, clock) as metadata:
        try:
            return await metadata.instance_id()
        except AirunnerError as error:
            problem = f"is not set (AIRUNNER_INSTANCE_ID), and {error.text}: {settings.fleet.metadata_url}"
    raise ConfigError([f"worker.instance_id: {problem}"])


async def read_configuration(
    parameters: RunnerParameters, instance_id: str, clock: Clock, *, wait_seconds: float
) -> Layer:
    """Return the settings of an instance; ConfigError, which names the key, for what cannot be read.

    A parameter may be missing, or not be ours to read, for `wait_seconds`: a machine may be up before it is
    assigned. One that makes no sense is an error at once.
    """
    name, began = parameters.name_of(instance_id), clock.monotonic()

    def may_come(error: Exception) -> bool:
        away = isinstance(error, Unavailable | ResourceExhausted)
        seconds = AWAY_SECONDS if away else wait_seconds
        return isinstance(error, AirunnerError) and clock.monotonic() < began + 1000 * seconds

    def log(error: Exception, failures: int) -> None:
        if failures == 1 and isinstance(error, AirunnerError):
            _log.warning("runner.waits_for_configuration", parameter=name, error=error.text)

    try:
        text = await retry(_POLICY, clock, lambda: parameters.read(name), retry_if=may_come, on_failure=log)
    except (Unavailable, ResourceExhausted):
        raise
    except AirunnerError as error:
        problem = error.text
    else:
        return parameter_layer(text, name)
    raise ConfigError([f"parameter {name}: {problem}"])
