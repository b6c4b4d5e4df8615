"""The service of generations with all that it needs, from settings, beside the services of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.generation.session_api.service import GenerationService
from airunner.generation.sessions import COMPLETED_CHANNEL, STARTED_CHANNEL
from airunner.generation.statements import LISTENING_LOCK
from airunner.outbox.start import listen_options, postgres_options

if TYPE_CHECKING:
    from airunner.config import Settings
    from airunner.services.composition import Services

APPLICATION_NAME: Final = "airunner generations"
"""What pg_stat_activity shows of the connections of a server."""


def make_generations(settings: Settings, services: Services) -> GenerationService:
    """Return the service, still to be opened; its loop and its end come with those of `services`."""
    options = replace(postgres_options(settings), application_name=APPLICATION_NAME)
    from airunner.postgres.listening import Listener
    from airunner.postgres.pool import Database

    generations = GenerationService(
        Database(options), settings.postgres.schema, clock=services.clock, notifier=services.notifier
    )
    feed = generations.feed
    generations.listener = Listener(
        replace(listen_options(settings), application_name=APPLICATION_NAME),
        [COMPLETED_CHANNEL, STARTED_CHANNEL],
        on_payload=feed.heard,
        on_gap=feed.look_soon,
        clock=services.clock,
        shared_lock=LISTENING_LOCK,
    )
    services.add_loop(feed.periodic())
    services.on_stop(generations.stop)
    return generations
