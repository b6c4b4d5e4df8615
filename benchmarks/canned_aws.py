"""`python -m benchmarks.canned_aws PORT`: answer each operation with the same bytes, quickly."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from typing import cast

import uvloop

JOB_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
QUEUE_URL = "http://127.0.0.1/000000000000/airunner-dev-default"
LAST_SEQUENCE = 50

_ROW = {
    "job_id": {"S": JOB_ID},
    "queue": {"S": "default"},
    "state": {"N": "2"},
    "attempt": {"N": "1"},
    "max_attempts": {"N": "3"},
    "created_at": {"N": "1700000000000"},
    "updated_at": {"N": "1700000001000"},
    "due_at": {"N": "1700000000000"},
    "visible_until": {"N": "1700000301000"},
    "visibility_seconds": {"N": "300"},
    "request_id": {"S": "01890a5d-ac96-774b-bcce-b302099a8058"},
    "principal": {"S": "bench"},
    "worker_id": {"S": "worker-1"},
    "execution": {"B": base64.b64encode(b"").decode()},
    "job_params": {"B": base64.b64encode(bytes(64)).decode()},
    "nonce": {"S": "0123456789abcdef"},
    "sequences": {"M": {"1": {"N": str(LAST_SEQUENCE)}}},
    "list_key": {"S": "default#3"},
    "order_key": {"S": f"1700000000000-000001-{JOB_ID}"},
    "check_key": {"S": "open#default#3"},
    "check_at": {"N": "1700000361000"},
}
_CAPACITY = {"ConsumedCapacity": {"TableName": "airunner_jobs", "CapacityUnits": 1.0}}
_ANSWERS = {
    b"DynamoDB_20120810.UpdateItem": {**_CAPACITY, "Attributes": _ROW},
    b"DynamoDB_20120810.GetItem": {**_CAPACITY, "Item": _ROW},
    b"DynamoDB_20120810.PutItem": _CAPACITY,
    b"DynamoDB_20120810.TransactWriteItems": {"ConsumedCapacity": [_CAPACITY["ConsumedCapacity"]]},
    b"AmazonSQS.SendMessage": {
        "MessageId": "0b1c6a0e-0000-4000-8000-000000000000",
        "MD5OfMessageBody": "0" * 32,
    },
    b"AmazonSQS.SendMessageBatch": {
        "Successful": [
            {
                "Id": str(number),
                "MessageId": "0b1c6a0e-0000-4000-8000-000000000000",
                "MD5OfMessageBody": "0" * 32,
            }
            for number in range(10)
        ],
        "Failed": [],
    },
    b"AmazonSQS.ChangeMessageVisibilityBatch": {"Successful": [{"Id": "0"}], "Failed": []},
    b"AmazonSQS.DeleteMessageBatch": {"Successful": [{"Id": "0"}], "Failed": []},
}
_TARGET = re.compile(rb"\r\nx-amz-target: *([^\r]+)", re.IGNORECASE)
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
            target = _TARGET.search(head)
            self._transport.write(_REPLIES[target[1] if target else b""])


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


def _answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


_REPLIES = {target: _answer(json.dumps(answer).encode()) for target, answer in _ANSWERS.items()}


if __name__ == "__main__":
    uvloop.run(main())
