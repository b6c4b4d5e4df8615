"""A bucket: encrypted, not public, with rules that expire what was forgotten."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from airunner.aws.errors import Refused
from airunner.aws.provision.definitions import bucket_encryption, public_access_block
from airunner.aws.provision.resources import NOT_YET, Change, Resource, ResourceKind, outcome_of
from airunner.domain.errors import FailedPrecondition, InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import Arguments, BucketDefinition
    from airunner.aws.provision.resources import Writer

_FIRST_REGION: Final = "us-east-1"
_NEVER_MADE: Final = frozenset({
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "ServerSideEncryptionConfigurationNotFoundError",
})  # fmt: skip
_OURS: Final = "BucketAlreadyOwnedByYou"
_MISSING: Final = "404"
_NOT_OURS: Final = frozenset({_MISSING, "301", "400", "403"})


async def provide_bucket(writer: Writer, wanted: BucketDefinition, *, beside: str) -> Resource:
    """Make or mend a bucket, in the region and partition of the ARN `beside`.

    Lifecycle rules that are not ours stay as they are.
    """
    _, partition, _, region, *_ = (beside or "arn:aws::").split(":")
    name = wanted.name
    is_new = not await _exists(writer.aws, name)
    if is_new:
        await writer.write(partial(_create, writer.aws, name, region), f"bucket {name}")
    details = await _mend(writer, wanted, {} if is_new else await _found(writer.aws, name))
    return Resource(
        kind=ResourceKind.BUCKET,
        name=name,
        change=Change.CREATED if is_new else outcome_of(details),
        arn=f"arn:{partition}:s3:::{name}",
        details=() if is_new else tuple(details),
    )


async def _create(aws: Aws, name: str, region: str) -> Arguments:
    """Create a bucket. One that is ours already was made by a try whose answer was lost."""
    try:
        return await aws.s3("CreateBucket", expected={*NOT_YET, _OURS}, **_creation(name, region))
    except Refused as refused:
        if refused.code != _OURS:
            raise
        return {}


def _creation(name: str, region: str) -> Arguments:
    """S3 wants every region named but its first."""
    if region == _FIRST_REGION:
        return {"Bucket": name}
    return {"Bucket": name, "CreateBucketConfiguration": {"LocationConstraint": region}}


async def _mend(writer: Writer, wanted: BucketDefinition, found: Arguments) -> list[str]:
    done: list[str] = []
    for what, operation, configuration in _updates(found, wanted.lifecycle_rules):
        argument = {what: configuration}
        change = partial(writer.aws.s3, operation, Bucket=wanted.name, expected=NOT_YET, **argument)
        await writer.write(change, f"bucket {wanted.name}")
        done.append(what)
    return done


def _updates(found: Arguments, rules: Sequence[Arguments]) -> list[tuple[str, str, Arguments]]:
    """Return what differs: the argument, the operation and the value that mend it."""
    updates: list[tuple[str, str, Arguments]] = []
    if not found.get("ServerSideEncryptionConfiguration"):
        what = "ServerSideEncryptionConfiguration"
        updates.append((what, "PutBucketEncryption", bucket_encryption()))
    if found.get("PublicAccessBlockConfiguration") != public_access_block():
        what = "PublicAccessBlockConfiguration"
        updates.append((what, "PutPublicAccessBlock", public_access_block()))
    old = found.get("Rules", [])
    if not all(_has_rule(old, rule) for rule in rules):
        ours = {rule["ID"] for rule in rules}
        others = [rule for rule in old if rule.get("ID") not in ours]
        update = {"Rules": [*others, *rules]}
        updates.append(("LifecycleConfiguration", "PutBucketLifecycleConfiguration", update))
    return updates


def _has_rule(old: list[Arguments], rule: Arguments) -> bool:
    return any(all(there.get(key) == value for key, value in rule.items()) for there in old)


async def _found(aws: Aws, name: str) -> Arguments:
    """Return the configurations that an existing bucket has."""
    encryption = await _configuration(aws, "GetBucketEncryption", name)
    block = await _configuration(aws, "GetPublicAccessBlock", name)
    return encryption | block | await _configuration(aws, "GetBucketLifecycleConfiguration", name)


async def _configuration(aws: Aws, operation: str, name: str) -> Arguments:
    try:
        reply = await aws.s3(operation, Bucket=name, expected=_NEVER_MADE)
    except InternalError:
        # S3 answers a configuration that was never made with an error. Where the right to read it is
        # missing, the right to write it is too, and that will be said.
        return {}
    return {key: value for key, value in reply.items() if key != "ResponseMetadata"}


async def _exists(aws: Aws, name: str) -> bool:
    """Return whether a bucket is there that we may use; FailedPrecondition where it is somebody else's."""
    try:
        await aws.s3("HeadBucket", Bucket=name, expected=_NOT_OURS)
    except Refused as refused:
        # The answer to a HEAD has no text: its status is all that it says.
        if refused.code == _MISSING:
            return False
        if refused.code in _NOT_OURS:
            raise FailedPrecondition(
                f"bucket {name} exists, but cannot be used: it belongs to another account, is in another "
                "region, or these credentials lack s3:ListBucket"
            ) from refused
        raise
    return True
