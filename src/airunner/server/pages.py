"""The plain routes: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from airunner.domain.errors import AirunnerError

if TYPE_CHECKING:
    from starlette.requests import Request

    from airunner.services.composition import Services


def health_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of health, readiness and metrics."""

    async def healthz(_: Request) -> Response:
        """Every background loop makes progress; those that do not are named, without a reason.

        What waits for something that is away is shown, and decides nothing.
        """
        shown = {"waiting": waiting} if (waiting := services.waiting) else {}
        if stuck := services.stuck_loops:
            return JSONResponse({"status": "stuck", "loops": stuck, **shown}, 503)
        return JSONResponse({"status": "ok", **shown})

    async def readyz(_: Request) -> Response:
        """The store answers, and we are not about to go. Its other parts are shown, and decide nothing."""
        parts = {name: trouble or "ok" for name, trouble in services.troubles.items()}
        shown = {"parts": parts} if parts else {}
        try:
            await services.check()
        except AirunnerError as error:
            return JSONResponse({"status": "unavailable", "reason": error.text, **shown}, 503)
        return JSONResponse({"status": "ok", **shown})

    async def metrics(_: Request) -> Response:
        return await metrics_page()

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


async def metrics_page() -> Response:
    """Return the metrics of this process; they are put together in a thread, so that no call has to wait."""
    return Response(await asyncio.to_thread(generate_latest), media_type=CONTENT_TYPE_LATEST)
