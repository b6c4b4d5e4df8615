"""Bells: a ring means that it is worth looking again, at what was just committed or in the store."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from airunner.domain.background import WakeUp, end_wait
from airunner.services.streams.shared_pages import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator, Mapping, Sequence

    from airunner.domain.clock import Clock, Timer
    from airunner.domain.lifecycle import Lifecycle
    from airunner.services.replicas.ringer import Ringer
    from airunner.services.streams.shared_pages import Committed

T = TypeVar("T")


class BellKind(StrEnum):
    """What a bell tells of; with the id of the job it is the bell's name."""

    JOB = "job"
    """What watchers of a job see: new events, its end."""
    END = "end"
    """The end of a job, and nothing before it."""
    HOLDER = "holder"
    """What the holder of a job must know: cancelled, watched, superseded."""


OnLife: TypeAlias = "Callable[[str, Lifecycle, Collection[BellKind]], None]"
"""Told of a life that a call has seen; who listens to these bells knows it already."""


class Bell:
    """Counts its rings. Note the count, look, then wait for one beyond it: no ring is missed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake_up = WakeUp(clock)
        self._followers: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._looks: dict[Hashable, asyncio.Task[Any]] = {}
        self.rings = 0
        self.listeners = 0
        self.tail = Tail()
        """What the last rings were for, where that is known."""
        self._unexplained = 0

    def ring(self, committed: Committed | None = None) -> None:
        """Wake everybody who waits; what was committed is for those who wait right behind it."""
        self.rings += 1
        self._looks = {}
        if committed is None or not self.tail.add(committed):
            self._unexplained = self.rings
        if self._followers:
            self._serve()
        self._wake_up.notify()

    def explains_since(self, noted: int) -> bool:
        """Return whether all rings after a noted count were for what is in the tail."""
        return self._unexplained <= noted

    async def wait(self, noted: int, until: int) -> bool:
        """Wait for a ring after the noted count, at most until an instant; return whether there was one."""
        while self.rings == noted:
            if not await self._wake_up.wait(until):
                return False
        return True

    async def follow(self, noted: int, take: Callable[[], bool], told_by: Callable[[], int]) -> bool:
        """Wait for a ring after the noted count that is left; return False if it is time to tell something.

        `take` is called at each ring, before whoever rang goes on, and says whether it dealt with it: then
        nobody is woken. It must not wait, and what it raises counts as a ring that is left. `told_by` says by
        when, of the monotonic clock, whoever follows wants to be told something; it may get later.
        """
        if self.rings != noted:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._followers[woken] = take
        alarm = _Alarm(self._clock, told_by, woken)
        try:
            await woken
            return woken not in self._followers
        finally:
            self._followers.pop(woken, None)
            alarm.cancel()

    def _serve(self) -> None:
        for woken, take in list(self._followers.items()):
            if woken.done() or not _is_dealt_with(take):
                del self._followers[woken]
                end_wait(woken)

    async def look_once(
        self, key: Hashable, look: Callable[[], Coroutine[Any, Any, T]], *, keep: Callable[[T], bool]
    ) -> T:
        """Return what a look finds, one for all who want the same between two rings.

        It is for those whom a ring woke: the look was begun after that ring. What `keep` does not want, and
        an error, are only for those who came while the look was under way.
        """
        if self.listeners == 1:
            return await look()
        task = cast("asyncio.Task[T] | None", self._looks.get(key))
        if task is None:
            task = self._begin_look(key, look, keep)
        # Not awaited directly: one who is cancelled would take the others along.
        await asyncio.wait((task,))
        return task.result()

    def _begin_look(
        self, key: Hashable, look: Callable[[], Coroutine[Any, Any, T]], keep: Callable[[T], bool]
    ) -> asyncio.Task[T]:
        looks = self._looks

        def ended(task: asyncio.Task[T]) -> None:
            if task.cancelled() or task.exception() or not keep(task.result()):
                looks.pop(key, None)

        task = looks[key] = asyncio.create_task(look())
        task.add_done_callback(ended)
        return task


class _Alarm:
    """Ends a wait when it is time: one timer, set again only when it goes off too early."""

    def __init__(self, clock: Clock, due_at: Callable[[], int], waiting: asyncio.Future[None]) -> None:
        self._clock = clock
        self._due_at = due_at
        self._waiting = waiting
        self._timer = self._set()

    def cancel(self) -> None:
        """Leave the wait alone."""
        self._timer.cancel()

    def _set(self) -> Timer:
        left_ms = self._due_at() - self._clock.monotonic()
        return self._clock.call_at(self._clock.now() + left_ms, self._go_off)

    def _go_off(self) -> None:
        if self._due_at() > self._clock.monotonic():
            self._timer = self._set()
        else:
            end_wait(self._waiting)


class Notifier:
    """The bells of this process, by name; one exists while somebody listens."""

    def __init__(self, clock: Clock, ringer: Ringer | None = None) -> None:
        self.ringer = ringer
        """What rings at other servers, where these say that somebody listens there."""
        self._clock = clock
        self._bells: dict[str, Bell] = {}
        self._on_life: OnLife | None = None

    def on_life(self, callback: OnLife) -> None:
        """Let one be told of each life that calls see here while somebody listens; see `saw`."""
        self._on_life = callback

    @contextmanager
    def listen(self, name: str) -> Iterator[Bell]:
        """Give the bell of a name, for as long as the block lasts."""
        bell = self._bells.setdefault(name, Bell(self._clock))
        bell.listeners += 1
        try:
            yield bell
        finally:
            bell.listeners -= 1
            if not bell.listeners:
                del self._bells[name]

    @property
    def heard(self) -> bool:
        """Whether anybody listens to any bell; while nobody does, there is no need to ring."""
        return bool(self._bells)

    @property
    def jobs(self) -> Mapping[str, Sequence[BellKind]]:
        """The jobs that somebody listens to, and to which of their bells; other bells are of no job."""
        jobs: dict[str, list[BellKind]] = {}
        for name in self._bells:
            kind, _, job_id = name.partition(":")
            if kind in _KINDS:
                jobs.setdefault(job_id, []).append(_KINDS[kind])
        return jobs

    def ring(self, name: str) -> None:
        """Ring a bell if anybody listens."""
        bell = self._bells.get(name)
        if bell:
            bell.ring()

    def ring_job(self, job_id: str) -> None:
        """Ring all bells of a job."""
        for kind in BellKind:
            self.ring(f"{kind}:{job_id}")

    def ring_all(self) -> None:
        """Ring every bell, so that everybody looks again."""
        for bell in list(self._bells.values()):
            bell.ring()

    def published(self, job_id: str, life: Lifecycle, committed: Committed | None = None) -> None:
        """Tell of events that are stored; whoever waits for something else of the job is left alone."""
        if self._bells:
            if bell := self._bells.get(job_bell(job_id)):
                bell.ring(committed)
            self.saw(job_id, life, {BellKind.JOB})
        if self.ringer and life.watchers_at:
            self.ringer.ring_watchers(life, [job_bell(job_id)])

    def changed(self, job_id: str, life: Lifecycle) -> None:
        """Tell of a cancellation or an end, or that nobody holds the job any more."""
        if self._bells:
            self.ring_job(job_id)
            self.saw(job_id, life, _ALL)
        if self.ringer and (life.watchers_at or life.holder_at):
            names = [f"{kind}:{job_id}" for kind in BellKind]
            self.ringer.ring_watchers(life, names)
            self.ringer.ring_holder(life, names)

    def watched(self, job_id: str, life: Lifecycle) -> None:
        """Tell the holder of a job, who may wait at another server, that somebody watches it now."""
        self.ring(holder_bell(job_id))
        if self.ringer:
            self.ringer.ring_holder(life, [holder_bell(job_id)])

    def saw(self, job_id: str, life: Lifecycle, told: Collection[BellKind]) -> None:
        """Take note of a life that a call has just seen; who listens to the bells `told` knows it already."""
        if self._on_life:
            self._on_life(job_id, life, told)


def _is_dealt_with(take: Callable[[], bool]) -> bool:
    try:
        return take()
    except Exception:  # noqa: BLE001  whoever follows looks for itself, and meets it there
        return False


def job_bell(job_id: str) -> str:
    """The bell of what watchers of a job see: new events, its end."""
    return f"job:{job_id}"


def end_bell(job_id: str) -> str:
    """The bell of the end of a job."""
    return f"end:{job_id}"


def holder_bell(job_id: str) -> str:
    """The bell of what the holder of a job must know: cancelled, watched."""
    return f"holder:{job_id}"


_KINDS = {kind.value: kind for kind in BellKind}
_ALL = frozenset(BellKind)
