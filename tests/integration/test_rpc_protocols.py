"""The same calls in every protocol and encoding that the contract promises."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator

import pytest
from connectrpc.compat import google_protobuf_json_codec
from connectrpc.protocol import ProtocolType

from airunner.codec.events import event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobEventsServiceClient, JobServiceClient
from airunner.domain.clock import SystemClock
from airunner.domain.event import Position
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.factories import make_batch, make_end, make_services, make_start
from tests.support.http_client import HttpClient
from tests.support.serving import serve

PROTOCOLS = {
    "connect binary": {"protocol": ProtocolType.CONNECT},
    "connect JSON": {"protocol": ProtocolType.CONNECT, "codec": google_protobuf_json_codec()},
    "gRPC-Web": {"protocol": ProtocolType.GRPC_WEB},
}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.fixture
async def url(services: Services) -> AsyncIterator[str]:
    async with serve(services) as address:
        yield address


@pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS.keys())
async def test_a_whole_job_in_every_protocol(url: str, options: dict[str, object]) -> None:
    jobs = JobServiceClient(url, **options)  # type: ignore[arg-type]  # options of the library
    events = JobEventsServiceClient(url, **options)  # type: ignore[arg-type]  # same
    enqueued = await jobs.enqueue_job(_enqueue())
    dequeued = [answer async for answer in jobs.dequeue_job(pb.DequeueJobRequest(queue="builds"))]
    assert [answer.job.job_id for answer in dequeued] == [enqueued.job_id]
    token = dequeued[0].task_token

    batch = pb.PublishJobEventBatchRequest(task_token=token, events=map(event_to_pb, [make_start()]))
    assert (await events.publish_job_event_batch(batch)).next_sequence == 2
    streamed = pb.PublishJobEventsRequest(task_token=token, events=map(event_to_pb, [make_batch(2, 11)]))
    assert (await events.publish_job_events(_stream_of(streamed))).next_sequence == 12
    done = pb.CompleteJobRequest(
        task_token=token,
        job_result=pb.JobResult(job_id=enqueued.job_id, success=True, final_sequence=12),
        events=[event_to_pb(make_end(12))],
    )
    assert (await jobs.complete_job(done)).state == pb.JOB_STATE_COMPLETED

    request = pb.StreamJobEventsRequest(job_id=enqueued.job_id, from_sequence=5)
    seen = [answer.event async for answer in events.stream_job_events(request)]
    assert [event.sequence for event in seen] == list(range(5, 13))
    assert seen[0].event_type == pb.EVENT_TYPE_OUTPUT_DATA
    assert all(event.attempt == 1 and event.cursor for event in seen)

    stored = pb.StreamJobEventBatchesRequest(job_id=enqueued.job_id, from_sequence=5)
    begin, *batches = [answer async for answer in events.stream_job_event_batches(stored)]
    assert begin == pb.StreamJobEventBatchesResponse(cursor=Position(1, 4).cursor)
    assert [batch.first_sequence for batch in batches] == [2, 12]


async def test_unary_calls_are_plain_json_over_http(url: str) -> None:
    body = {"requestId": str(uuid.uuid4()), "queue": "builds", "jobParams": {"command": "make"}}
    answer = await HttpClient().post(
        f"{url}/job.v1.JobService/EnqueueJob",
        headers={"content-type": "application/json"},
        content=json.dumps(body).encode(),
    )
    assert answer.status == 200
    assert json.loads(bytes(answer.content))["state"] == "JOB_STATE_SCHEDULED"


@pytest.mark.parametrize(
    "body", [b'{"state":"JOB_STATE_NONE"}', b'{"state":99}', b'{"stat":1}', b'{"page":"x"}']
)
async def test_misspelt_json_is_refused_and_not_passed_over(url: str, body: bytes) -> None:
    answer = await HttpClient().post(
        f"{url}/job.v1.JobService/ListJobs", headers={"content-type": "application/json"}, content=body
    )
    assert answer.status == 400
    assert json.loads(bytes(answer.content))["code"] == "invalid_argument"


async def test_out_of_range_carries_the_expected_sequence(url: str) -> None:
    jobs, events = JobServiceClient(url), JobEventsServiceClient(url)
    await jobs.enqueue_job(_enqueue())
    token = (await jobs.dequeue_jobs(pb.DequeueJobsRequest(queue="builds"))).jobs[0].task_token
    gapped = pb.PublishJobEventBatchRequest(task_token=token, events=[event_to_pb(make_start(3))])
    with pytest.raises(Exception, match="expected sequence 1, got 3") as refused:
        await events.publish_job_event_batch(gapped)
    detail = refused.value.details[0]  # type: ignore[attr-defined]  # a ConnectError
    assert pb.SequenceMismatch.FromString(detail.message_bytes).expected_sequence == 1


async def test_unknown_methods_and_paths_are_not_found(url: str) -> None:
    for path in ("/job.v1.JobService/Nothing", "/job.v2.JobService/EnqueueJob", "/nothing"):
        answer = await HttpClient().post(f"{url}{path}", content=b"")
        assert answer.status == 404


def _enqueue() -> pb.EnqueueJobRequest:
    return pb.EnqueueJobRequest(
        request_id=str(uuid.uuid4()), queue="builds", job_params=pb.JobParams(command="make")
    )


async def _stream_of(*messages: pb.PublishJobEventsRequest) -> AsyncIterator[pb.PublishJobEventsRequest]:
    for message in messages:
        yield message
