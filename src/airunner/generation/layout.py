"""What generation is made of on AWS, as plain data: its message queue and the dead-letter queue behind it.

`aws provision --generation` makes it through the API, `infra/generation.yaml` through CloudFormation; a test
proves both equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.config import ConfigError
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.outbox.start import queue_addresses

if TYPE_CHECKING:
    from airunner.aws.provision.definitions import ResourceDefinitions
    from airunner.config import Settings


def generation_resources(settings: Settings) -> ResourceDefinitions:
    """Return the queues of an environment; ConfigError where a job queue would be the same one."""
    # Imported here: whoever only checks names may be without the libraries of AWS.
    from airunner.aws.provision.definitions import QueueDefinition, ResourceDefinitions

    check_apart(settings)
    name = queue_name(settings)
    queue = QueueDefinition(
        queue=GENERATION_QUEUE,
        name=name,
        dead_letter_name=f"{name}-dlq",
        max_receive_count=settings.generation.max_receive_count,
        keeps_more_receives=False,
        visibility_seconds=settings.generation.visibility_seconds,
    )
    return ResourceDefinitions(queues=[queue])


def queue_name(settings: Settings) -> str:
    """Return the name of the message queue: the last part of its URL where that is given."""
    given = _queue_url(settings).rstrip("/").rpartition("/")[2]
    return given or f"airunner-{settings.store.aws.env}-{GENERATION_QUEUE}"


def check_apart(settings: Settings) -> None:
    """Refuse a job queue that is the message queue by name or URL: each would take the other's messages."""
    if settings.outbox.sink != "sqs" or settings.store.type != "aws":
        return
    name, url = queue_name(settings), _queue_url(settings)
    for queue, address in settings.store.sqs.queues.items():
        called = address.rpartition("/")[2] or f"airunner-{settings.store.aws.env}-{queue}"
        if called == name and (not address or not url or address == url):
            raise ConfigError([
                f"store.sqs.queues: {queue} is {called}, the message queue of generation; "
                "give one of the two another name, or set outbox.sink to jobs"
            ])  # fmt: skip


def _queue_url(settings: Settings) -> str:
    return queue_addresses(settings).get(GENERATION_QUEUE, "")
