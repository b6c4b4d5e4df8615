"""What provisioning makes, as plain descriptions; the layouts of stores and others return them.

The functions return arguments of AWS calls, in the words of AWS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Arguments: TypeAlias = dict[str, Any]
KeyField: TypeAlias = tuple[str, str]
"""The name of an attribute that is part of a key, and its type: S, N or B."""

_RETENTION_SECONDS: Final = 14 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """A standard queue of SQS, encrypted, and the dead-letter queue behind it."""

    queue: str
    """Names it among us."""
    name: str
    dead_letter_name: str
    max_receive_count: int
    keeps_more_receives: bool = True
    """Whether a larger count of an operator stays: where it only catches what nobody can read."""
    visibility_seconds: int = 300
    wait_seconds: int = 20
    """How long a receive waits that does not say so."""
    retention_seconds: int = _RETENTION_SECONDS

    def dead_letter_attributes(self) -> dict[str, str]:
        """Return the attributes of the dead-letter queue; SQS takes every attribute as text."""
        return {"MessageRetentionPeriod": str(self.retention_seconds), "SqsManagedSseEnabled": "true"}

    def attributes(self, dead_letter_arn: str) -> dict[str, str]:
        """Return the attributes of the queue."""
        redrive = {"deadLetterTargetArn": dead_letter_arn, "maxReceiveCount": self.max_receive_count}
        return {
            **self.dead_letter_attributes(),
            "VisibilityTimeout": str(self.visibility_seconds),
            "ReceiveMessageWaitTimeSeconds": str(self.wait_seconds),
            "RedrivePolicy": json.dumps(redrive),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table of DynamoDB, with backups to every point in time, whose items expire by an attribute."""

    creation: Arguments
    """The arguments of CreateTable, as `table_arguments` returns them."""
    ttl_attribute: str

    @property
    def name(self) -> str:
        """The name of the table."""
        return str(self.creation["TableName"])


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketDefinition:
    """A bucket of S3, encrypted and not public."""

    name: str
    lifecycle_rules: Sequence[Arguments] = ()
    """Found again by their IDs; the rules of others stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDefinitions:
    """Everything that belongs together."""

    queues: Sequence[QueueDefinition] = ()
    tables: Sequence[TableDefinition] = ()
    bucket: BucketDefinition | None = None


# Tables


def table_arguments(
    name: str,
    *,
    hash_key: KeyField,
    range_key: KeyField | None = None,
    indexes: Sequence[tuple[Arguments, Sequence[KeyField]]] = (),
    stream_view: str = "",
    deletion_protection: bool = False,
) -> Arguments:
    """Return the arguments of CreateTable: paid by request, encrypted, with indexes of `index_arguments`."""
    keys = [hash_key, *([range_key] if range_key else [])]
    fields = dict([*keys, *(field for _, fields in indexes for field in fields)])
    arguments: Arguments = {
        "TableName": name,
        "AttributeDefinitions": [
            {"AttributeName": field, "AttributeType": kind} for field, kind in fields.items()
        ],
        "KeySchema": _key_schema(keys),
        "BillingMode": "PAY_PER_REQUEST",
        "SSESpecification": {"Enabled": True, "SSEType": "KMS"},
        "DeletionProtectionEnabled": deletion_protection,
    }
    if indexes:
        arguments["GlobalSecondaryIndexes"] = [index for index, _ in indexes]
    if stream_view:
        arguments["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": stream_view}
    return arguments


def index_arguments(
    name: str, hash_key: KeyField, range_key: KeyField, *, projected: Sequence[str] = ()
) -> tuple[Arguments, Sequence[KeyField]]:
    """Return a global index of a table with its keys; it holds these attributes beside all keys."""
    projection: Arguments = {"ProjectionType": "KEYS_ONLY"}
    if projected:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(projected)}
    keys = (hash_key, range_key)
    return {"IndexName": name, "KeySchema": _key_schema(keys), "Projection": projection}, keys


def time_to_live(table: str, attribute: str) -> Arguments:
    """Return the arguments of UpdateTimeToLive."""
    return {"TableName": table, "TimeToLiveSpecification": {"AttributeName": attribute, "Enabled": True}}


def point_in_time_recovery(table: str) -> Arguments:
    """Return the arguments of UpdateContinuousBackups."""
    return {
        "TableName": table,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    }


def _key_schema(keys: Sequence[KeyField]) -> list[Arguments]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for (name, _), kind in zip(keys, ("HASH", "RANGE"), strict=False)
    ]


# Buckets


def bucket_encryption() -> Arguments:
    """Return the ServerSideEncryptionConfiguration: keys of S3 itself."""
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}


def public_access_block() -> Arguments:
    """Return the PublicAccessBlockConfiguration: nothing is public, whatever an object says."""
    names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    return dict.fromkeys(names, True)


def expiry_rule(rule_id: str, prefix: str, days: int) -> Arguments:
    """Return a lifecycle rule that expires the objects under a prefix."""
    return {
        "ID": rule_id,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "Expiration": {"Days": days},
    }
