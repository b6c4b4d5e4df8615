"""Raw requests to a server, and requests that no honest client would send."""

from __future__ import annotations

import http.client
import json
import random
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.json_format import MessageToJson, SerializeToJsonError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from airunner.codec.gen.job.v1 import job_pb2 as pb

METHODS: tuple[MethodDescriptor, ...] = tuple(
    method for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods
)
_ENVELOPE = struct.Struct(">BI")
_END_OF_STREAM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What came back: the messages, or the error."""

    status: int
    code: str
    text: str
    body: bytes = b""


class Wire:
    """One connection that is made anew whenever the server closes it."""

    def __init__(self, port: int, timeout_seconds: float = 30) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)

    def call(self, method: MethodDescriptor, message: bytes, *, encoding: str = "proto") -> HttpAnswer:
        """Send a message as its method wants it; the server shall not wait long for anything."""
        streaming = method.client_streaming or method.server_streaming
        body = _ENVELOPE.pack(0, len(message)) + message if streaming else message
        kind = f"application/connect+{encoding}" if streaming else f"application/{encoding}"
        return self.post(path_of(method), body, {"content-type": kind})

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        said = {"connect-protocol-version": "1", "connect-timeout-ms": "150", **headers}
        try:
            self._connection.request("POST", path, body, said)
            response = self._connection.getresponse()
            answer = response.read()
        except http.client.HTTPException:
            self._connection.close()
            raise
        except (BrokenPipeError, ConnectionResetError):
            # A server may refuse a body before it has read all of it.
            self._connection.close()
            return HttpAnswer(status=0, code="", text="")
        return _answer(response, answer)

    def close(self) -> None:
        self._connection.close()


class Mischief:
    """Makes requests at random: some right, most wrong in one of many ways."""

    def __init__(self, chance: random.Random, job_ids: Sequence[str], tokens: Sequence[str]) -> None:
        self._chance = chance
        self._job_ids = job_ids
        self._tokens = tokens
        self._texts = (*job_ids, *tokens, *_TEXTS)

    def request(self, method: MethodDescriptor) -> tuple[bytes, str]:
        """Return a message for a method, and its encoding."""
        if self._chance.random() < 0.3:
            message = self.message(method.input_type)
        else:
            message = self._right(method)
            for _ in range(self._chance.randrange(3)):
                self._disturb(message)
        if self._chance.random() < 0.4:
            return self._spoilt(self._json(message)), "json"
        return self._spoilt(message.SerializeToString()), "proto"

    def message(self, kind: Descriptor, depth: int = 0) -> Message:
        """Return a message with fields of all sorts."""
        message = GetMessageClass(kind)()
        for field in kind.fields:
            if self._chance.random() < 0.75 and depth < 5:
                self._fill(message, field, depth)
        return message

    def _right(self, method: MethodDescriptor) -> Message:
        """Return a message with which nothing is wrong."""
        message = GetMessageClass(method.input_type)()
        right = {
            "request_id": str(uuid.UUID(int=self._chance.getrandbits(128))),
            "job_id": self._chance.choice(self._job_ids),
            "task_token": self._chance.choice(self._tokens),
            "queue": "fuzz",
            "job_params": pb.JobParams(command="true"),
            "jobs": [
                pb.EnqueueJobRequest(request_id=self._job_ids[0], queue="fuzz", job_params={"command": "x"})
            ],
            "completions": [
                pb.CompleteJobRequest(task_token=self._chance.choice(self._tokens), job_result=_RESULT)
            ],
            "job_result": _RESULT,
            "events": _events(self._chance.randrange(1, 4)),
            "wait_seconds": 0,
            "no_follow": True,
        }
        names = {field.name for field in method.input_type.fields}
        return type(message)(**{name: value for name, value in right.items() if name in names})

    def _disturb(self, message: Message) -> None:
        """Put something else into one field, at any depth."""
        inner = [part for _, part in message.ListFields() if isinstance(part, Message)]
        inner += [part for _, parts in message.ListFields() if _is_list(parts) for part in parts]
        if inner and self._chance.random() < 0.7:
            self._disturb(self._chance.choice(inner))
        elif message.DESCRIPTOR.fields:
            fields: Sequence[Any] = message.DESCRIPTOR.fields
            field = self._chance.choice(fields)
            message.ClearField(field.name)
            self._fill(message, field, depth=2)

    def _fill(self, message: Message, field: Any, depth: int) -> None:
        target = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            for _ in range(self._chance.randrange(3)):
                target[self._chance.choice(self._texts)] = self._chance.choice(self._texts)
        elif field.message_type and field.is_repeated:
            for _ in range(self._chance.choice((0, 1, 1, 2, 60))):
                target.add().CopyFrom(self.message(field.message_type, depth + 2))
        elif field.message_type:
            target.CopyFrom(self.message(field.message_type, depth + 1))
        elif field.is_repeated:
            target.extend(self._value(field) for _ in range(self._chance.choice((0, 1, 2, 600))))
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = self._chance.choice(self._texts)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self._chance.random() < 0.5
        bits = 64 if field.cpp_type == FieldDescriptor.CPPTYPE_INT64 else 32
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return self._chance.choice((0, 0, 1, 1, 2, 3, -1, 51, 999, 10**6, low, high))

    def _json(self, message: Message) -> bytes:
        try:
            text = MessageToJson(message)
        except SerializeToJsonError:
            # Instants that no JSON can tell.
            text = "{}"
        if self._chance.random() < 0.3:
            text = text.replace(*self._chance.choice(_JSON_TRICKS))
        return text.encode()

    def _spoilt(self, encoded: bytes) -> bytes:
        if not encoded or self._chance.random() < 0.6:
            return encoded
        place = self._chance.randrange(len(encoded))
        spoil: Callable[[], bytes] = self._chance.choice(
            (
                lambda: encoded[:place],
                lambda: encoded[:place] + self._chance.randbytes(3) + encoded[place:],
                lambda: (
                    encoded[:place]
                    + bytes([encoded[place] ^ 1 << self._chance.randrange(8)])
                    + encoded[place + 1 :]
                ),
                lambda: self._chance.randbytes(place + 1),
            )
        )
        return spoil()


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def method_named(name: str) -> MethodDescriptor:
    return next(method for method in METHODS if method.name == name)


def _is_list(parts: Any) -> bool:
    return hasattr(parts, "add")  # of messages, that is


def _events(count: int) -> list[pb.JobEvent]:
    events = [
        pb.JobEvent(
            sequence=number,
            event_type=pb.EVENT_TYPE_OUTPUT_DATA,
            output_data=pb.OutputEvent(output=b"line", stream=pb.STREAM_TYPE_STDOUT),
        )
        for number in range(1, count + 1)
    ]
    for event in events:
        event.timestamp.FromMilliseconds(1_700_000_000_000)
    return events


def _answer(response: http.client.HTTPResponse, body: bytes) -> HttpAnswer:
    said: dict[str, Any] = {}
    if response.headers.get_content_type().startswith("application/connect+"):
        said = _end_of_stream(body).get("error", {})
    elif response.status != 200 and body:
        said = json.loads(body) if body.startswith(b"{") else {"message": body.decode(errors="replace")}
    return HttpAnswer(status=response.status, code=said.get("code", ""), text=json.dumps(said), body=body)


def _end_of_stream(body: bytes) -> dict[str, Any]:
    while body:
        flags, size = _ENVELOPE.unpack_from(body)
        message, body = body[_ENVELOPE.size : _ENVELOPE.size + size], body[_ENVELOPE.size + size :]
        if flags & _END_OF_STREAM:
            end: dict[str, Any] = json.loads(message)
            return end
    raise AssertionError("the stream has no end")


_RESULT = pb.JobResult(success=True, outcome=pb.OUTCOME_SUCCESS)
_TEXTS = (
    "",
    "fuzz",
    "a b",
    "../../etc/passwd",
    "'; DROP TABLE jobs; --",
    "\0",
    "\u202e\U0001f4a9",
    "x" * 300,
    "y" * 70_000,
    "1-1",
    "ffffffff-ffffffffff",
    "v1.AAAA",
    "00000000-0000-0000-0000-000000000000",
    "NaN",
    "[" * 2000,
)
_JSON_TRICKS = (
    (":", ": null, "),
    ("1", "1e400"),
    ("1", "-1.5"),
    ('"', '"\\ud800'),
    ("{", '{"unknown": {}, '),
    ("}", "}}"),
    ("true", '"true"'),
    ("0", "99999999999999999999999"),
)
