"""What no honest client sends: refused with the right code and a plain text, and the server goes on."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
import zstandard
from google.protobuf.descriptor import MethodDescriptor

from airunner.client import Client
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.job import JobParams, JobState
from tests.integration.wire import METHODS, HttpAnswer, Mischief, Wire, method_named, path_of
from tests.support.processes import RunningProcess, Stack, resident_bytes

JOB = "00000000-0000-4000-8000-000000000000"
MOST_MEMORY = 512 * 1024 * 1024
KNOWN_CODES = {
    "already_exists",
    "deadline_exceeded",
    "failed_precondition",
    "invalid_argument",
    "not_found",
    "out_of_range",
    "resource_exhausted",
    "unimplemented",
}
LEAKS = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|sqlite|SELECT |INSERT |UPDATE jobs|airunner\.db", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    stack: Stack
    server: RunningProcess
    wire: Wire


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    stack = Stack(tmp_path_factory.mktemp("target"))
    try:
        server = asyncio.run(stack.start_server())
        wire = Wire(stack.port)
        yield Target(stack=stack, server=server, wire=wire)
        wire.close()
    finally:
        stack.close()


@pytest.fixture(autouse=True)
def unharmed(target: Target) -> Iterator[None]:
    """Whatever a test does, the server is healthy afterwards and was never at a loss."""
    yield
    with urlopen(f"{target.stack.url}/healthz") as answer:  # noqa: S310  our own server
        assert answer.status == 200
    assert target.server.exit_code is None
    assert resident_bytes(target.server.pid) < MOST_MEMORY
    assert "Traceback" not in target.server.printed()
    assert "rpc.failed" not in target.server.printed()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_garbage_is_not_protobuf(target: Target, method: MethodDescriptor) -> None:
    answer = target.wire.call(method, b"\xff\xff\xff\xff garbage")

    assert_refused(answer, "invalid_argument")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("text", [b"{", b"[1]", b"nonsense", b'"\xff"', b'{"no_such_field": 1}'])
def test_garbage_is_not_json(target: Target, method: MethodDescriptor, text: bytes) -> None:
    answer = target.wire.call(method, text, encoding="json")

    assert_refused(answer, "invalid_argument")


@pytest.mark.parametrize("name", ["EnqueueJob", "DequeueJob", "StreamJobEvents", "PublishJobEventBatch"])
def test_text_must_be_utf8(target: Target, name: str) -> None:
    # Field 1 is a text in all of them.
    assert_refused(target.wire.call(method_named(name), b"\x0a\x02\xc3\x28"), "invalid_argument")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_messages_have_a_limit(target: Target, method: MethodDescriptor) -> None:
    answer = target.wire.call(method, b"\x0a" + b"\xff\xff\xff\x02" + b"x" * 5_000_000)

    assert answer.status == 0 or answer.code == "resource_exhausted", answer


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/grpc", ""])
def test_other_content_is_not_understood(target: Target, method: MethodDescriptor, kind: str) -> None:
    answer = target.wire.post(path_of(method), b"hello", {"content-type": kind})

    assert answer.status == 415
    assert not LEAKS.search(answer.text)


@pytest.mark.parametrize(
    "path", ["/job.v1.JobService/NoSuchMethod", "/job.v1.NoService/GetJob", "//", "/%00"]
)
def test_other_paths_lead_nowhere(target: Target, path: str) -> None:
    assert target.wire.post(path, b"{}", {"content-type": "application/json"}).status == 404


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "nonsense"])
def test_what_is_small_only_while_compressed_is_refused(target: Target, encoding: str) -> None:
    bombs = {"gzip": gzip_bomb(), "zstd": zstandard.compress(bytes(64 << 20)), "br": b"\x00", "nonsense": b""}
    answer = target.wire.post(
        "/job.v1.JobService/EnqueueJob",
        bombs[encoding],
        {"content-type": "application/proto", "content-encoding": encoding},
    )

    assert answer.code in {"resource_exhausted", "unimplemented", "invalid_argument"}, answer
    assert not LEAKS.search(answer.text)


def test_a_batch_that_is_small_only_while_packed_is_refused(target: Target) -> None:
    batch = pb.OutputBatchEvent(
        start_sequence=1,
        end_sequence=1,
        encoding=pb.BATCH_ENCODING_ZSTD,
        packed=zstandard.compress(bytes(256 << 20)),
        unpacked_bytes=100,
    )
    event = pb.JobEvent(sequence=1, event_type=pb.EVENT_TYPE_OUTPUT_BATCH, output_batch=batch)
    event.timestamp.GetCurrentTime()
    message = pb.PublishJobEventBatchRequest(task_token=held_token(target), events=[event])

    answer = target.wire.call(method_named("PublishJobEventBatch"), message.SerializeToString())

    assert_refused(answer, "invalid_argument")


@pytest.mark.parametrize("opening", ["[", '{"jobParams":', '{"a":['])
def test_deep_nesting_is_refused(target: Target, opening: str) -> None:
    for method in METHODS:
        answer = target.wire.call(method, (opening * 100_000).encode(), encoding="json")
        assert_refused(answer, "invalid_argument")


def test_deep_nesting_in_a_payload_is_refused(target: Target) -> None:
    params = {"handler": "h", "payloadJson": "[" * 100_000}
    request = {"requestId": JOB, "queue": "fuzz", "jobParams": params}

    answer = target.wire.call(method_named("EnqueueJob"), json.dumps(request).encode(), encoding="json")

    assert_refused(answer, "invalid_argument")


MOST, LEAST = 2**31 - 1, -(2**31)
NUMBERS = {
    "EnqueueJob": ("delaySeconds", "maxAttempts"),
    "DequeueJob": ("maxJobs", "visibilityTimeoutSeconds", "waitSeconds"),
    "DequeueJobs": ("maxJobs", "visibilityTimeoutSeconds", "waitSeconds"),
    "UpdateJob": ("visibilityTimeoutSeconds", "waitSeconds"),
    "ReleaseJob": ("delaySeconds",),
    "GetJob": ("waitSeconds",),
    "ListJobs": ("page", "pageSize", "state"),
    "StreamJobEvents": ("fromSequence", "fromTimestamp", "attempt"),
    "StreamJobEventBatches": ("fromSequence", "fromTimestamp", "attempt"),
}


# Places far beyond what a job has are places all the same.
FINE_BUT_UNKNOWN = {
    ("attempt", MOST),
    *((field, number) for field in ("fromSequence", "fromTimestamp") for number in (MOST, 2**31)),
}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in NUMBERS for field in NUMBERS[name]])
@pytest.mark.parametrize("number", [-1, LEAST, MOST, 2**31, 2**63 - 1, -(2**63) - 1, 2**64, 1e300])
def test_numbers_out_of_range_are_refused(target: Target, name: str, field: str, number: float) -> None:
    right = {
        "requestId": JOB,
        "queue": "fuzz",
        "jobParams": {"command": "true"},
        "taskToken": held_token(target),
        "jobId": JOB,
    }
    method = method_named(name)
    fields = {known.json_name for known in method.input_type.fields}
    request = {key: value for key, value in right.items() if key in fields} | {field: number}

    answer = target.wire.call(method, json.dumps(request).encode(), encoding="json")

    assert_refused(answer, "not_found" if (field, number) in FINE_BUT_UNKNOWN else "invalid_argument")


@pytest.mark.parametrize(
    "requests",
    [
        1000,
        pytest.param(4000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_thousands_of_wrong_requests(target: Target, requests: int) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")  # noqa: T201  pytest shows it with a failure
    with Client(target.stack.url) as client:
        # One of the requests of a run before may have paused it.
        client.set_paused("fuzz", paused=False)
        jobs = [client.enqueue(JobParams(command="true"), queue="fuzz").job_id for _ in range(100)]
        tokens = [held.task_token for held in client.dequeue("fuzz", max_jobs=100)]

    def send(number: int) -> list[tuple[str, HttpAnswer]]:
        mischief, wire = Mischief(random.Random(seed + number), jobs, tokens), Wire(target.stack.port)
        try:
            return [misbehave(wire, mischief, number + index) for index in range(requests // 4)]
        finally:
            wire.close()

    with ThreadPoolExecutor(4) as threads:
        answers = [answer for part in threads.map(send, range(4)) for answer in part]

    assert [answer for answer in answers if not is_proper(answer[1], target.stack.folder)] == []
    codes = {answer.code for _, answer in answers}
    assert codes >= {"", "invalid_argument", "not_found"}
    assert_a_normal_job_runs(target)


def misbehave(wire: Wire, mischief: Mischief, index: int) -> tuple[str, HttpAnswer]:
    method = METHODS[index % len(METHODS)]
    message, encoding = mischief.request(method)
    return method.name, wire.call(method, message, encoding=encoding)


def is_proper(answer: HttpAnswer, folder: Path) -> bool:
    known = answer.code in KNOWN_CODES or (answer.code == "" and answer.status == 200)
    told = LEAKS.search(answer.text) or str(folder) in answer.text or b"internal" in answer.body
    return known and not told


def assert_refused(answer: HttpAnswer, code: str) -> None:
    assert answer.code == code, answer
    assert not LEAKS.search(answer.text), answer


def assert_a_normal_job_runs(target: Target) -> None:
    asyncio.run(target.stack.start_worker("honest", "--queue", "honest"))
    with Client(target.stack.url) as client:
        job = client.run("echo", "still here", queue="honest")
    assert job.state is JobState.COMPLETED


def held_token(target: Target) -> str:
    with Client(target.stack.url) as client:
        client.enqueue(JobParams(command="true"), queue="held")
        return client.dequeue("held")[0].task_token


def gzip_bomb() -> bytes:
    block = bytes(16 << 20)
    return gzip.compress(b"".join([block] * 8), compresslevel=9)
