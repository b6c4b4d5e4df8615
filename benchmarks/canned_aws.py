"""`python -m benchmarks.canned_aws PORT`: answer every call with the same bytes, quickly."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from typing import cast

import uvloop

MESSAGE = '{"job_id":"01J00000000000000000000000","queue":"default","attempt":1}'
_SQS_ANSWER = (
    b'{"MessageId":"0b1c6a0e-0000-4000-8000-000000000000","MD5OfMessageBody":"%s"}'
    % hashlib.md5(MESSAGE.encode()).hexdigest().encode()  # noqa: S324  what SQS answers with
)
_DYNAMODB_ANSWER = b'{"ConsumedCapacity":{"TableName":"airunner_jobs","CapacityUnits":1.0}}'
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is none
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n") + 4) > 3:
            head = self._received[:end]
            found = _LENGTH.search(head)
            end += int(found[1]) if found else 0
            if len(self._received) < end:
                return
            self._received = self._received[end:]
            self._transport.write(_answer(_SQS_ANSWER if b"AmazonSQS" in head else _DYNAMODB_ANSWER))


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


def _answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


if __name__ == "__main__":
    uvloop.run(main())
