"""JobEventsService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from airunner.codec.answers import published_to_pb, stream_published_to_pb
from airunner.codec.publishing import publish_from_pb
from airunner.codec.streams import accepts_packed, batch_to_pb, start_to_pb, stream_from_pb, streamed_to_pb
from airunner.domain.errors import InvalidArgument
from airunner.rpc.bodies import current_body
from airunner.services.caller import current_caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connectrpc.request import RequestContext

    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.answers import Published
    from airunner.domain.clock import Clock
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
        async with aclosing(self._service.stream_events(stream_from_pb(request))) as events:
            async for event in events:
                yield streamed_to_pb(event)

    async def stream_job_event_batches(
        self,
        request: pb.StreamJobEventBatchesRequest,
        _: RequestContext[pb.StreamJobEventBatchesRequest, pb.StreamJobEventBatchesResponse],
    ) -> AsyncIterator[pb.StreamJobEventBatchesResponse]:
        """Stream batches as they are stored; an empty message is a sign of life.

        Where only the server knows which attempt is meant, it tells before anything else.
        """
        packed, asked = accepts_packed(request), stream_from_pb(request)
        start = await self._service.start_position(asked)
        untold = asked.is_relative
        async with aclosing(self._service.stream_pages(asked, start)) as pages:
            async for page in pages:
                if untold:
                    untold = False
                    yield start_to_pb(start)
                for stored in page.events if page else (None,):
                    yield batch_to_pb(stored, packed=packed)

    async def publish_job_events(
        self,
        request: AsyncIterator[pb.PublishJobEventsRequest],
        _: RequestContext[pb.PublishJobEventsRequest, pb.PublishJobEventsResponse],
    ) -> pb.PublishJobEventsResponse:
        """Append the events of each message; what came before a failure stays stored."""
        published: Published | None = None
        async for message in request:
            await current_caller.get().check_again()
            published = await self._publish(message)
            current_body.get().forget()
        if published is None:
            raise InvalidArgument("the stream has no message")
        return stream_published_to_pb(published)

    async def publish_job_event_batch(
        self,
        request: pb.PublishJobEventBatchRequest,
        _: RequestContext[pb.PublishJobEventBatchRequest, pb.PublishJobEventBatchResponse],
    ) -> pb.PublishJobEventBatchResponse:
        """Append events in one call."""
        return published_to_pb(await self._publish(request))

    async def _publish(
        self, request: pb.PublishJobEventsRequest | pb.PublishJobEventBatchRequest
    ) -> Published:
        task_token, events = publish_from_pb(request, self._clock.now())
        return await self._service.publish_encoded(task_token, events)
