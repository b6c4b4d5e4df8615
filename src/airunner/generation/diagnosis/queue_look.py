"""A look at the message queue of generation, where this process knows it and may ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner.config import ConfigError
from airunner.domain.errors import AirunnerError, error_text
from airunner.generation.diagnosis.hops import QueueLook
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.outbox.start import queue_addresses

if TYPE_CHECKING:
    from airunner.config import Settings
    from airunner.domain.clock import Clock

LOOK_SECONDS: Final = 5.0


async def look_at_queue(settings: Settings, clock: Clock) -> QueueLook | None:
    """Return what SQS says about the queue; None where there is no queue of SQS to ask about."""
    url = queue_addresses(settings).get(GENERATION_QUEUE)
    if settings.outbox.sink != "sqs" or url is None:
        return None
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await _look(settings, clock, url)
    except TimeoutError:
        return QueueLook(trouble=f"SQS does not answer within {LOOK_SECONDS:g} s")
    except ConfigError as error:
        return QueueLook(trouble=f"SQS cannot be asked from here: {error}")
    except AirunnerError as error:
        return QueueLook(trouble=f"SQS cannot be asked from here: {error_text(error)}")


async def _look(settings: Settings, clock: Clock, url: str) -> QueueLook:
    from airunner.aws.connect import build_aws

    aws = build_aws(settings, clock, clients=["sqs"])
    from airunner.aws.errors import Refused
    from airunner.aws.sqs import is_missing_queue
    from airunner.queues.sqs import SqsQueue

    async with aws:
        try:
            depth = await SqsQueue(aws, url, clock=clock).depth()
        except Refused as error:
            if is_missing_queue(error):
                return QueueLook(is_missing=True)
            return QueueLook(trouble=f"SQS refuses to tell of the queue: {error.code}")
    return QueueLook(visible=depth.visible, in_flight=depth.in_flight)
