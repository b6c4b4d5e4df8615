"""News of sessions for all who wait in this process: one look for all of them, however many they are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airunner.generation.session_api.queries import OVERLAP_SECONDS
from airunner.services.notifier import Bell
from airunner.services.periodic import READING_SECONDS, Periodic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from airunner.domain.clock import Clock
    from airunner.generation.session_api.queries import SessionQueries, Sighting
    from airunner.generation.session_api.records import SessionState, SessionView
    from airunner.services.notifier import Notifier

LOOK_SECONDS: Final = 5.0
"""How often the sessions are read again that somebody waits for: a notification may be lost."""
_FAILURE_SECONDS: Final = 1.0


def session_bell(session_id: str) -> str:
    """The bell of one session."""
    return f"session:{session_id}"


def principal_bell(principal: str) -> str:
    """The bell of all sessions of a principal."""
    return f"sessions:{principal}"


class SessionFeed:
    """Rings the bells of sessions whose state differs from what their listeners know.

    It asks nothing while nobody listens. A look covers the last minute before the look before it, since a
    change shows only when it is committed.
    """

    def __init__(
        self,
        queries: SessionQueries,
        notifier: Notifier,
        clock: Clock,
        *,
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        """`prepare` is called before each look, and raises while there is no database to look into."""
        self._queries = queries
        self._notifier = notifier
        self._clock = clock
        self._prepare = prepare
        self._wake_up = Bell(clock)
        self._noted = 0
        self._looked_at: int | None = None
        # What the listeners of each bell know: sessions with their states and when they came into them.
        self._known: dict[str, dict[str, tuple[SessionState, int]]] = {}

    def periodic(self) -> Periodic:
        """Return the loop of the looks: each turn waits for a reason, five seconds at most."""
        return Periodic(
            "generations.feed",
            self._turn,
            clock=self._clock,
            interval_seconds=0,
            failure_event="generations.look_failed",
            failure_pause_seconds=_FAILURE_SECONDS,
            turn_seconds=READING_SECONDS,
        )

    @contextmanager
    def listen(self, name: str) -> Iterator[Bell]:
        """Give a bell of sessions, for as long as the block lasts."""
        with self._notifier.listen(name) as bell:
            self._known.setdefault(name, {})
            try:
                yield bell
            finally:
                if bell.listeners == 1:
                    del self._known[name]

    def saw(self, name: str, sessions: Iterable[SessionView]) -> None:
        """Take note of what a listener of a bell has read; if others know something else, all look again."""
        news = [self._note(name, s.session_id, s.state, s.changed_at, is_first_news=False) for s in sessions]
        if any(news):
            self._notifier.ring(name)

    def heard(self, _channel: str, session_id: str) -> None:
        """Take a notification: whoever waits for this session reads it, for the others there is a look."""
        self._notifier.ring(session_bell(session_id))
        if any(name.startswith(_OF_PRINCIPALS) for name in self._known):
            self.look_soon()

    def look_soon(self) -> None:
        """Look as soon as the look that is under way, if any, has ended."""
        self._wake_up.ring()

    async def _turn(self) -> None:
        await self._wake_up.wait(self._noted, self._clock.now() + int(LOOK_SECONDS * 1000))
        noted = self._wake_up.rings
        await self._prepare()
        if self._known:
            await self._look()
        else:
            self._looked_at = None
        # Not before: a look that failed is made again without another reason.
        self._noted = noted

    async def _look(self) -> None:
        names = list(self._known)
        ids = {name.removeprefix(_OF_ONE) for name in names if name.startswith(_OF_ONE)}
        principals = [name.removeprefix(_OF_PRINCIPALS) for name in names if name.startswith(_OF_PRINCIPALS)]
        found, self._looked_at = await self._queries.look(ids, principals, self._looked_at)
        rung = {name for sighting in found for name in self._news(sighting)}
        # What is gone has no end to wait for: its readers find that out.
        rung |= {session_bell(gone) for gone in ids - {sighting.session_id for sighting in found}}
        self._forget_before(self._looked_at - OVERLAP_SECONDS * 1_000_000)
        for name in rung:
            self._notifier.ring(name)

    def _news(self, sighting: Sighting) -> list[str]:
        """Return the bells whose listeners do not know this."""
        names = (session_bell(sighting.session_id), principal_bell(sighting.principal))
        state, changed_at = sighting.state, sighting.changed_at
        return [
            name
            for name in names
            if self._note(name, sighting.session_id, state, changed_at, is_first_news=True)
        ]

    def _note(
        self, name: str, session_id: str, state: SessionState, changed_at: int, *, is_first_news: bool
    ) -> bool:
        """Note a state; return whether listeners of a bell may know another one."""
        known = self._known.get(name)
        if known is None:
            return False
        before = known.get(session_id)
        known[session_id] = (state, changed_at)
        return is_first_news if before is None else before[0] is not state

    def _forget_before(self, instant: int) -> None:
        """Forget what no further look at a principal can find."""
        for name, known in self._known.items():
            if name.startswith(_OF_PRINCIPALS):
                for session_id in [key for key, (_, changed_at) in known.items() if changed_at < instant]:
                    del known[session_id]


_OF_ONE: Final = session_bell("")
_OF_PRINCIPALS: Final = principal_bell("")
