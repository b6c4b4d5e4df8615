"""From settings to AWS: where it is, and which of its services are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.config import ConfigError
from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.config import Secret, Settings
    from airunner.domain.clock import Clock
    from airunner.domain.retry import RetryPolicy


def build_aws(
    settings: Settings, clock: Clock, *, clients: Sequence[str] = (), policy: RetryPolicy | None = None
) -> Aws:
    """Return the way to AWS that the settings describe, still to be opened; by default that of a store."""
    need_sdk()
    from airunner.aws.calls import Aws, AwsOptions
    from airunner.aws.clients import OF_A_STORE

    store = settings.store
    options = AwsOptions(
        region=find_region(settings),
        access_key=_text(store.aws.access_key_id),
        secret_key=_text(store.aws.secret_access_key),
        session_token=_text(store.aws.session_token),
        endpoint_url=store.aws.endpoint_url or "",
        bucket=store.s3.bucket,
        clients=tuple(clients) or (*OF_A_STORE, *(["streams"] if store.dynamodb.streams else [])),
    )
    return Aws(options, clock=clock, policy=policy)


def need_sdk() -> None:
    """Raise FailedPrecondition, with what to install, where the SDK of AWS is missing."""
    try:
        import airunner.aws.calls  # noqa: F401  what it needs may not be installed
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            "AWS needs an extra of airunner: pip install 'airunner-jobs[aws]'"
        ) from error


def _text(secret: Secret | None) -> str:
    return secret.get_secret_value() if secret else ""


def find_region(settings: Settings) -> str:
    """Return the region of the settings, else the one that the SDK finds in its profile; needs the SDK."""
    from airunner.aws.clients import configured_region

    region = settings.store.aws.region or configured_region()
    if not region:
        raise ConfigError(["store.aws.region: must be set, or AWS_REGION, or the region of the AWS profile"])
    return region
