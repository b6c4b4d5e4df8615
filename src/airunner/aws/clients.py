"""The clients of the SDK: whom they call, with what patience, and with none of their own retries."""

from __future__ import annotations

import functools
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError

from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

# Long polls have connections of their own: nothing else must wait behind those that are parked.
SERVICES: Final = {
    "dynamodb": "dynamodb",
    "sqs": "sqs",
    "polls": "sqs",
    "s3": "s3",
    "streams": "dynamodbstreams",
    "cloudwatch": "cloudwatch",
    "sts": "sts",
    "ec2": "ec2",
    "ssm": "ssm",
}
"""The service of each client."""

OF_A_STORE: Final = ("dynamodb", "sqs", "polls", "s3")
"""The clients that every store needs."""
OF_A_QUEUE: Final = ("sqs", "polls")
"""The clients that a message queue needs."""
OF_A_FLEET: Final = ("dynamodb", "sqs", "polls", "ec2", "ssm")
"""The clients that the processors of a fleet need beside those of a store."""

_LONGEST_POLL_SECONDS: Final = 20
# The first probe after so many seconds of silence, the next after so many more, and how many.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """Where AWS is, who we are there, and how long we wait for it."""

    region: str
    endpoint_url: str = ""
    access_key: str = ""
    """Empty, together with the secret: the SDK looks for credentials where it always does."""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    """Beside these two, where they are temporary ones."""
    bucket: str = ""
    """Whose objects `presign` speaks of."""
    call_seconds: float = 10.0
    """How long one try may take, waiting for a free connection included."""
    table_seconds: float = 3.0
    """The same for DynamoDB, which answers in milliseconds where it answers at all."""
    attempts: int = 4
    """How many tries a call has."""
    throttled_attempts: int = 8
    """How many it has where AWS says that we ask too much: that lasts for seconds rather than moments."""
    max_connections: int = 50
    """Of each client, but for long polls."""
    clients: tuple[str, ...] = OF_A_STORE
    """Those to open; others cannot be called."""
    validate: bool = False
    """Check arguments against the API's model before they are sent: AWS does it anyway, emulators may not."""

    def seconds_of(self, client: str) -> float:
        """Return how long one try of a client may take, the wait of a long poll aside."""
        return min(self.call_seconds, self.table_seconds) if client == "dynamodb" else self.call_seconds


async def open_clients(stack: AsyncExitStack, options: AwsOptions) -> dict[str, Any]:
    """Open every client; they are closed with the stack. FailedPrecondition says what the options lack."""
    session = _session()
    try:
        return {
            name: await stack.enter_async_context(
                session.create_client(SERVICES[name], **_client_arguments(options, name))
            )
            for name in options.clients
        }
    except (BotoCoreError, ValueError) as error:
        # Nothing was called yet, so this names settings and no items; secrets are never in it.
        raise FailedPrecondition(f"AWS cannot be used with these settings: {error}") from error


def configured_region() -> str:
    """Return the region that the SDK would use: that of its variables or of its profile; empty if none."""
    return str(_session().get_config_variable("region") or "")


@functools.cache
def partition_of(region: str) -> str:
    """Return the part of AWS that a region belongs to: the second word of its ARNs."""
    try:
        return str(_session().get_partition_for_region(region))
    except BotoCoreError:
        return "aws"


@functools.cache
def _session() -> Any:  # its stubs want each service's name as a literal
    """What the SDK knows, read once: that takes most of the time of opening a client."""
    return get_session()


def _client_arguments(options: AwsOptions, client: str) -> dict[str, Any]:
    """What a client is created with. Given credentials keep the SDK from looking for others."""
    return {
        "region_name": options.region,
        "endpoint_url": options.endpoint_url or None,
        # Reading the certificates takes longer than a call, and without TLS they prove nothing.
        "verify": False if options.endpoint_url.startswith("http://") else None,
        "aws_access_key_id": options.access_key or None,
        "aws_secret_access_key": options.secret_key or None,
        "aws_session_token": options.session_token or None,
        "config": _config(options, client),
    }


def _config(options: AwsOptions, client: str) -> AioConfig:
    of_s3: dict[str, Any] = {"signature_version": "s3v4"} if client == "s3" else {}
    if of_s3 and options.endpoint_url:
        of_s3["s3"] = {"addressing_style": "path"}  # a bucket's own host name is nothing an emulator has
    return AioConfig(
        connect_timeout=options.seconds_of(client),
        read_timeout=options.seconds_of(client) + (_LONGEST_POLL_SECONDS if client == "polls" else 0),
        # Of all tries together: the older "max_attempts" counts those after the first.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Whoever receives bounds the polls, and one that waits for a connection waits beside its messages.
        max_pool_connections=0 if client == "polls" else options.max_connections,
        parameter_validation=options.validate,
        connector_args={"socket_factory": _kept_alive},
        **of_s3,
    )


def _kept_alive(address: Any) -> socket.socket:
    """Make a socket that notices a peer which is gone: aiobotocore passes `tcp_keepalive` on to nobody.

    The kernel's own times are hours, and a NAT gateway forgets a silent connection after minutes.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Not every system has each of them.
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
