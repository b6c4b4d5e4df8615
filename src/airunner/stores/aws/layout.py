"""What the store is made of on AWS, as plain data: queues, tables, indexes and the bucket.

`provision` makes it through the API, `infra/airunner.yaml` through CloudFormation; a test proves both equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from airunner.config import StoreSettings

LISTING_INDEX: Final = "listing"
CHECKS_INDEX: Final = "checks"
TTL_ATTRIBUTE: Final = "ttl"

VISIBILITY_SECONDS: Final = 300
LONG_POLL_SECONDS: Final = 20
RETENTION_SECONDS: Final = 14 * 24 * 3600
MAX_RECEIVE_COUNT: Final = 10
OBJECT_PREFIX: Final = "jobs/"
OBJECT_EXPIRY_DAYS: Final = 60
MAX_QUEUE_NAME: Final = 80  # of SQS
FIRST_REGION: Final = "us-east-1"

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The names of everything in one environment. Each environment of an account needs its own tables."""

    env: str = "dev"
    queues: Mapping[str, str] = field(default_factory=lambda: {"default": ""})
    """Logical name -> URL; empty where the queue is to be found by its name."""
    jobs_table: str = "airunner_jobs"
    events_table: str = "airunner_job_events"
    bucket: str = ""
    listing_shards: int = 8
    streams: bool = False
    deletion_protection: bool = False

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


# Tables


def tables(layout: Layout) -> list[Arguments]:
    """Return the arguments of CreateTable for both tables."""
    return [jobs_table(layout), events_table(layout)]


def jobs_table(layout: Layout) -> Arguments:
    """Jobs, and by key prefix what belongs to them: request ids, queues, API keys, payloads."""
    return _table(layout, layout.jobs_table, hash_key=("job_id", "S")) | {
        "AttributeDefinitions": _attributes(
            job_id="S", list_key="S", order_key="S", check_key="S", check_at="N"
        ),
        "GlobalSecondaryIndexes": [
            _index(LISTING_INDEX, "list_key", "order_key"),
            _index(CHECKS_INDEX, "check_key", "check_at"),
        ],
    }


def events_table(layout: Layout) -> Arguments:
    """Batches of events; the attempt is part of the sequence."""
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"} if layout.streams else None
    table = _table(layout, layout.events_table, hash_key=("job_id", "S"), range_key=("sequence", "N"))
    return table | ({"StreamSpecification": stream} if stream else {})


def time_to_live(table: str) -> Arguments:
    """Return the arguments of UpdateTimeToLive, the same for both tables."""
    return {
        "TableName": table,
        "TimeToLiveSpecification": {"AttributeName": TTL_ATTRIBUTE, "Enabled": True},
    }


def point_in_time_recovery(table: str) -> Arguments:
    """Return the arguments of UpdateContinuousBackups, the same for both tables."""
    return {
        "TableName": table,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    }


def _table(
    layout: Layout, name: str, *, hash_key: tuple[str, str], range_key: tuple[str, str] | None = None
) -> Arguments:
    keys = [hash_key, *([range_key] if range_key else [])]
    return {
        "TableName": name,
        "AttributeDefinitions": _attributes(**dict(keys)),
        "KeySchema": _key_schema(*(key for key, _ in keys)),
        "BillingMode": "PAY_PER_REQUEST",
        "SSESpecification": {"Enabled": True, "SSEType": "KMS"},
        "DeletionProtectionEnabled": layout.deletion_protection,
    }


def _attributes(**kinds: str) -> list[Arguments]:
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]


def _key_schema(hash_key: str, range_key: str = "") -> list[Arguments]:
    keys = [{"AttributeName": hash_key, "KeyType": "HASH"}]
    return [*keys, {"AttributeName": range_key, "KeyType": "RANGE"}] if range_key else keys


def _index(name: str, hash_key: str, range_key: str) -> Arguments:
    return {
        "IndexName": name,
        "KeySchema": _key_schema(hash_key, range_key),
        "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["state"]},
    }


# Queues: SQS takes every attribute as text


def dead_letter_attributes() -> dict[str, str]:
    """Return the attributes of a dead-letter queue."""
    return {"MessageRetentionPeriod": str(RETENTION_SECONDS), "SqsManagedSseEnabled": "true"}


def queue_attributes(dead_letter_arn: str) -> dict[str, str]:
    """Return the attributes of a queue. Rows count attempts; its redrive catches what nobody can read."""
    redrive = {"deadLetterTargetArn": dead_letter_arn, "maxReceiveCount": MAX_RECEIVE_COUNT}
    return {
        **dead_letter_attributes(),
        "VisibilityTimeout": str(VISIBILITY_SECONDS),
        "ReceiveMessageWaitTimeSeconds": str(LONG_POLL_SECONDS),
        "RedrivePolicy": json.dumps(redrive),
    }


# The bucket


def bucket_encryption() -> Arguments:
    """Return the ServerSideEncryptionConfiguration: keys of S3 itself."""
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}


def public_access_block() -> Arguments:
    """Return the PublicAccessBlockConfiguration: nothing is public, whatever an object says."""
    names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    return dict.fromkeys(names, True)


def lifecycle() -> Arguments:
    """Return the LifecycleConfiguration: a net below the purge of jobs, which deletes what it knows of."""
    rule = {
        "ID": "expire-payloads",
        "Status": "Enabled",
        "Filter": {"Prefix": OBJECT_PREFIX},
        "Expiration": {"Days": OBJECT_EXPIRY_DAYS},
    }
    return {"Rules": [rule]}


def queue_key(queue: str) -> str:
    """Return the key of what the jobs table knows of a queue."""
    return f"queue#{queue}"


def sentinel_key(principal: str, request_id: str) -> str:
    """Return the key of what the jobs table knows of a request."""
    return f"request#{principal}#{request_id}"
