"""The emulator's process as tests start it: with addresses that empty it, and that fill it.

Making tables, queues and buckets takes longer than most tests, and emptying them by calls of AWS would too;
so would writing a thousand parameters. Run as a file by `emulator`, never imported.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.s3.models import MultipartDict, s3_backends
from moto.s3.utils import _VersionedKeyStore
from moto.sqs.models import sqs_backends

from airunner.local.emulator.moto_process import REGION
from airunner.local.emulator.program import Application, QuietHandler, serve
from airunner.local.emulator.repairs import QueueClock

EMPTY_PATH: Final = "/airunner/empty"
COPY_PATH: Final = "/airunner/copy"

# A call that its client has given up is performed nevertheless, and would write into what was emptied.
_QUIET_SECONDS: Final = 0.5
_CONTENTS_OF_QUEUES: Final = frozenset({
    "_messages",
    "_pending_messages",
    "_messages_lock",
    "deleted_messages",
    "last_purged_at",
})  # fmt: skip
_CONTENTS_OF_TABLES: Final = frozenset({"ItemCount", "TableSizeBytes"})


class EmptyingApplication(Application):
    """moto, and an address that empties what a request names, provided that it is as it was at first.

    Another one makes many of a parameter.
    """

    def __init__(self, clock: QueueClock) -> None:
        super().__init__(clock)
        self._shapes: dict[str, str] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        paths: dict[str, Callable[..., dict[str, Any]]] = {
            EMPTY_PATH: self._empty,
            COPY_PATH: _copy_parameter,
        }
        perform = paths.get(environ.get("PATH_INFO", ""))
        if perform is None:
            return super().__call__(environ, start_response)
        named = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        answer = json.dumps(perform(**named)).encode()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]

    def _empty(self, **named: Any) -> dict[str, Any]:
        return {"emptied": self._emptied(**named)}

    def _emptied(self, env: str, tables: list[str], queues: list[str], bucket: str) -> bool:
        """Empty an environment; False if it is not what it was, or if others may still write to it."""
        # What others write to while it is looked at changes under the look.
        if not CountedHandler.wait_until_alone():
            return False
        try:
            of_tables = [dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables[name] for name in tables]
            of_queues = [sqs_backends[DEFAULT_ACCOUNT_ID][REGION].queues[name] for name in queues]
            of_bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket]
        except KeyError:  # somebody deleted it
            return False
        shape = repr((_others(env), *map(_of_table, of_tables), *map(_of_queue, of_queues), _of(of_bucket)))
        if self._shapes.setdefault(env, shape) != shape:
            return False
        for table in of_tables:
            _empty_table(table)
        for queue in of_queues:
            _empty_queue(queue)
        of_bucket.keys, of_bucket.multiparts = _VersionedKeyStore(), MultipartDict()
        return True


class CountedHandler(QuietHandler):
    """Counts the connections. All that a client has sent is performed before its connection ends."""

    _changed: Final = threading.Condition()
    _open = 0

    @classmethod
    def wait_until_alone(cls) -> bool:
        """Wait until no connection is open but the caller's; False if that takes too long."""
        with cls._changed:
            return cls._changed.wait_for(lambda: cls._open == 1, _QUIET_SECONDS)

    def handle(self) -> None:
        """Serve the requests of one connection."""
        self._count(1)
        try:
            super().handle()
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._changed:
            CountedHandler._open += more
            self._changed.notify_all()


def _copy_parameter(name: str, names: list[str]) -> dict[str, Any]:
    """Write the newest version of a parameter under other names."""
    from moto.ssm.models import ssm_backends

    parameters = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]._parameters
    for other in names:
        written = copy.copy(parameters[name][-1])
        written.name = other
        parameters[other] = [written]
    return {}


def _others(env: str) -> list[str]:
    """Return the names of everything that is named after an environment."""
    named = (
        *dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables,
        *sqs_backends[DEFAULT_ACCOUNT_ID][REGION].queues,
        *s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets,
    )
    return sorted(name for name in named if env in name)


def _of_table(table: Any) -> Any:
    described = table.describe()["TableDescription"]
    return {
        "ttl": table.ttl,
        "tags": table.tags,
        **{name: value for name, value in described.items() if name not in _CONTENTS_OF_TABLES},
    }


def _of_queue(queue: Any) -> Any:
    return {name: value for name, value in vars(queue).items() if name not in _CONTENTS_OF_QUEUES}


def _of(bucket: Any) -> Any:
    return bucket.versioning_status, bucket.rules, bucket.policy, bucket.cors, bucket.encryption


def _empty_table(table: Any) -> None:
    table.items.clear()
    if table.stream_shard is not None:
        table.stream_shard.items.clear()


def _empty_queue(queue: Any) -> None:
    with queue._messages_lock:
        queue._messages = []
        queue._pending_messages = set()
        queue.deleted_messages = set()
        queue.last_purged_at = None


if __name__ == "__main__":
    serve(EmptyingApplication, CountedHandler)
