"""What the store is made of on AWS, as plain data: queues, tables, indexes and the bucket.

`provision` makes it through the API, `infra/airunner.yaml` through CloudFormation; a test proves both equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.aws.provision.definitions import (
    BucketDefinition,
    QueueDefinition,
    ResourceDefinitions,
    TableDefinition,
    expiry_rule,
    index_arguments,
    table_arguments,
)
from airunner.aws.table_meta import OwnedTable
from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from airunner.aws.provision.definitions import Arguments
    from airunner.config import StoreSettings

LISTING_INDEX: Final = "listing"
CHECKS_INDEX: Final = "checks"
TTL_ATTRIBUTE: Final = "ttl"

# Rows count tries. A receive that ends without a claim is nothing unusual: a pause, a table that is away, a
# worker that left. What can be claimed never comes near this; what nobody can read gets there within hours.
MAX_RECEIVE_COUNT: Final = 1_000
OBJECT_PREFIX: Final = "jobs/"
OBJECT_EXPIRY_DAYS: Final = 60
MAX_QUEUE_NAME: Final = 80  # of SQS

# The names that every environment had by default, and that the first still has.
_FIRST_ENVIRONMENT: Final = "prod"
_JOBS_TABLE: Final = "airunner_jobs"
_EVENTS_TABLE: Final = "airunner_job_events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The names of everything in one environment, which shares none of it with another.

    Tables without a name get that of their environment.
    """

    env: str = "dev"
    queues: Mapping[str, str] = field(default_factory=lambda: {"default": ""})
    """Logical name -> URL; empty where the queue is to be found by its name."""
    jobs_table: str = ""
    events_table: str = ""
    bucket: str = ""
    listing_shards: int = 8
    streams: bool = False
    deletion_protection: bool = False

    def __post_init__(self) -> None:
        # Frozen, but nobody has seen it yet.
        object.__setattr__(self, "jobs_table", self.jobs_table or _by_default(_JOBS_TABLE, self.env))
        object.__setattr__(self, "events_table", self.events_table or _by_default(_EVENTS_TABLE, self.env))

    @classmethod
    def of(cls, settings: StoreSettings) -> Layout:
        """Return what the settings name; nothing is looked up."""
        return cls(
            env=settings.aws.env,
            queues=dict(settings.sqs.queues),
            jobs_table=settings.dynamodb.jobs_table,
            events_table=settings.dynamodb.events_table,
            bucket=settings.s3.bucket,
            listing_shards=settings.listing_shards,
            streams=settings.dynamodb.streams,
        )

    def queue_name(self, queue: str) -> str:
        """Return the SQS name of a logical queue: the last part of its URL where that is given."""
        return self.queues.get(queue, "").rpartition("/")[2] or f"airunner-{self.env}-{queue}"

    def dead_letter_name(self, queue: str) -> str:
        """Return the SQS name of its dead-letter queue; InvalidArgument where SQS has no room for it."""
        name = f"{self.queue_name(queue)}-dlq"
        if len(name) > MAX_QUEUE_NAME:
            raise InvalidArgument(f"queue {queue}: {name} has more than {MAX_QUEUE_NAME} characters")
        return name


def resources(layout: Layout) -> ResourceDefinitions:
    """Return all that an environment needs; InvalidArgument for a name that AWS has no room for."""
    return ResourceDefinitions(
        queues=queues(layout),
        tables=[
            TableDefinition(creation=creation, ttl_attribute=TTL_ATTRIBUTE) for creation in tables(layout)
        ],
        bucket=BucketDefinition(name=layout.bucket, lifecycle_rules=lifecycle()) if layout.bucket else None,
    )


def queues(layout: Layout) -> list[QueueDefinition]:
    """Return every queue. Rows count attempts; the redrive of a queue catches what nobody can read."""
    return [
        QueueDefinition(
            queue=queue,
            name=layout.queue_name(queue),
            dead_letter_name=layout.dead_letter_name(queue),
            max_receive_count=MAX_RECEIVE_COUNT,
        )
        for queue in layout.queues
    ]


def tables(layout: Layout) -> list[Arguments]:
    """Return the arguments of CreateTable for both tables."""
    return [jobs_table(layout), events_table(layout)]


def jobs_table(layout: Layout) -> Arguments:
    """Jobs, and by key prefix what belongs to them: request ids, queues, API keys, payloads."""
    return table_arguments(
        layout.jobs_table,
        hash_key=("job_id", "S"),
        indexes=[
            index_arguments(LISTING_INDEX, ("list_key", "S"), ("order_key", "S"), projected=["state"]),
            index_arguments(CHECKS_INDEX, ("check_key", "S"), ("check_at", "N"), projected=["state"]),
        ],
        deletion_protection=layout.deletion_protection,
    )


def events_table(layout: Layout) -> Arguments:
    """Batches of events; the attempt is part of the sequence."""
    return table_arguments(
        layout.events_table,
        hash_key=("job_id", "S"),
        range_key=("sequence", "N"),
        stream_view="KEYS_ONLY" if layout.streams else "",
        deletion_protection=layout.deletion_protection,
    )


def owned_table(layout: Layout) -> OwnedTable:
    """Return the table that says whose it is: that of jobs. Events belong to jobs, whose ids are unique."""
    by_default = _by_default(_JOBS_TABLE, layout.env)
    return OwnedTable(
        name=layout.jobs_table,
        key_name="job_id",
        former_name=_JOBS_TABLE if layout.jobs_table == by_default != _JOBS_TABLE else "",
        kept_by=(
            f"store.dynamodb.jobs_table: {_JOBS_TABLE} and store.dynamodb.events_table: {_EVENTS_TABLE}"
        ),
    )


def lifecycle() -> list[Arguments]:
    """Return the rules of the bucket: a net below the purge of jobs, which deletes what it knows of."""
    return [expiry_rule("expire-payloads", OBJECT_PREFIX, OBJECT_EXPIRY_DAYS)]


def queue_key(queue: str) -> str:
    """Return the key of what the jobs table knows of a queue."""
    return f"queue#{queue}"


def sentinel_key(principal: str, request_id: str) -> str:
    """Return the key of what the jobs table knows of a request."""
    return f"request#{principal}#{request_id}"


def _by_default(first: str, env: str) -> str:
    """Return the name that a table has in an environment: airunner_jobs, airunner_staging_jobs."""
    return first if env == _FIRST_ENVIRONMENT else first.replace("airunner_", f"airunner_{env}_")
