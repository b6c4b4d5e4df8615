"""JobEventsService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from airunner.codec.events import admit_events, event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import enum_from_pb
from airunner.codec.packing import unpack_payload
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import EventType, Position
from airunner.domain.requests import StreamRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connectrpc.request import RequestContext

    from airunner.domain.answers import Published
    from airunner.domain.clock import Clock
    from airunner.domain.event import EncodedEvent
    from airunner.services.events import EventService


class JobEventsServiceEndpoint:
    """Implements the generated JobEventsService."""

    def __init__(self, service: EventService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def stream_job_events(
        self,
        request: pb.StreamJobEventsRequest,
        _: RequestContext[pb.StreamJobEventsRequest, pb.StreamJobEventsResponse],
    ) -> AsyncIterator[pb.StreamJobEventsResponse]:
        """Stream single events."""
        async with aclosing(self._service.stream_events(_stream(request))) as events:
            async for event in events:
                yield pb.StreamJobEventsResponse(event=event_to_pb(event))

    async def stream_job_event_batches(
        self,
        request: pb.StreamJobEventBatchesRequest,
        _: RequestContext[pb.StreamJobEventBatchesRequest, pb.StreamJobEventBatchesResponse],
    ) -> AsyncIterator[pb.StreamJobEventBatchesResponse]:
        """Stream batches as they are stored; an empty message is a sign of life."""
        unpacks = pb.BATCH_ENCODING_ZSTD in request.accept_encodings
        async with aclosing(self._service.stream_encoded(_stream(request))) as batches:
            async for stored in batches:
                yield _batch(stored, unpacks=unpacks) if stored else pb.StreamJobEventBatchesResponse()

    async def publish_job_events(
        self,
        request: AsyncIterator[pb.PublishJobEventsRequest],
        _: RequestContext[pb.PublishJobEventsRequest, pb.PublishJobEventsResponse],
    ) -> pb.PublishJobEventsResponse:
        """Append the events of each message; what came before a failure stays stored."""
        published: Published | None = None
        async for message in request:
            published = await self._publish(message)
        if published is None:
            raise InvalidArgument("the stream has no message")
        return pb.PublishJobEventsResponse(
            next_sequence=published.next_sequence,
            cancel_requested=published.cancel_requested,
            watched=published.watched,
        )

    async def publish_job_event_batch(
        self,
        request: pb.PublishJobEventBatchRequest,
        _: RequestContext[pb.PublishJobEventBatchRequest, pb.PublishJobEventBatchResponse],
    ) -> pb.PublishJobEventBatchResponse:
        """Append events in one call."""
        published = await self._publish(request)
        return pb.PublishJobEventBatchResponse(
            next_sequence=published.next_sequence,
            cancel_requested=published.cancel_requested,
            watched=published.watched,
        )

    async def _publish(
        self, request: pb.PublishJobEventsRequest | pb.PublishJobEventBatchRequest
    ) -> Published:
        events = admit_events(request.events, self._clock.now())
        return await self._service.publish_encoded(request.task_token, events)


def _batch(stored: EncodedEvent, *, unpacks: bool) -> pb.StreamJobEventBatchesResponse:
    return pb.StreamJobEventBatchesResponse(
        attempt=stored.attempt,
        first_sequence=stored.first_sequence,
        last_sequence=stored.last_sequence,
        event=stored.payload if unpacks else unpack_payload(stored.payload),
        cursor=Position(stored.attempt, stored.last_sequence).cursor,
    )


def _stream(request: pb.StreamJobEventsRequest | pb.StreamJobEventBatchesRequest) -> StreamRequest:
    return StreamRequest(
        job_id=request.job_id,
        from_sequence=request.from_sequence,
        from_timestamp=request.from_timestamp,
        event_filter=frozenset(
            enum_from_pb(EventType, kind, "event_filter") for kind in request.event_filter if kind
        ),
        attempt=request.attempt,
        cursor=request.cursor,
        follow=not request.no_follow,
    )
