"""One reader of the feed: a place in the events of each worker.

Its place is the id of each event: the names of all workers, each with the number of its last event. So it can go on
after a pause, at whichever worker it comes back to.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from dragoman_server.feed.events import JOINED, LEFT, EventBatch, EventFilter, KeptEvents
from dragoman_server.feed.feed import Feed
from dragoman_server.feed.workers import CONNECTION_ERRORS, WorkerConnection, has_workers, other_workers

# Seconds between two looks for workers that have started.
_LOOK_S = 0.25

_PLACE = r"([0-9a-f]{1,16}-[0-9a-f]{8})\.([0-9]{1,15})"

# Takes what there is of one worker. worker: its name.
TakeBatch = Callable[[str, EventBatch], Awaitable[None]]


class UnknownEventId(ValueError):
    """The id from which a reader wants to go on is none of this gateway's."""


def parse_event_id(id: str) -> dict[str, int]:
    """Return the numbers in the id of an event, by worker. Raises UnknownEventId."""
    places = [re.fullmatch(_PLACE, part) for part in id.split(",")]
    found = {place[1]: int(place[2]) for place in places if place is not None}
    if len(found) < len(places):
        raise UnknownEventId
    return found


def _event_id(places: Mapping[str, object]) -> str:
    return ",".join([f"{worker}.{number}" for worker, number in places.items()])


def process_id(worker: str) -> int:
    """Return the process id of a worker. worker: its name."""
    return int(worker.partition("-")[0], 16)


class FeedReader:
    """Reads the events of all workers. Call start() and then go_on().

    Args:
        after: the numbers of the last events that it has, by worker; None if it begins, {} with what is kept.
        take: gets what there is, one batch after another.
        changed: is called with one of WORKER_EVENTS and the worker that has started, or has ended.

    Attributes:
        places: The number of the last event of each worker.
        resumed: Nothing was lost since `after`. None if it begins.
    """

    def __init__(
        self,
        feed: Feed,
        wanted: EventFilter,
        after: dict[str, int] | None,
        take: TakeBatch,
        changed: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self.places: dict[str, int] = {}
        self.resumed: bool | None = None
        self._feed = feed
        self._wanted = wanted
        self._after = after
        self._take = take
        self._changed = changed
        self._started = anyio.Event()

    @property
    def id(self) -> str:
        """The id of the last event."""
        return _event_id(self.places)

    def id_around(self, worker: str) -> tuple[str, str]:
        """Return the parts of the id before and after the number of this worker's last event."""
        before, _, after = _event_id({**self.places, worker: "#"}).partition("#")
        return before, after

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers whose events it gets."""
        return sorted(map(process_id, self.places))

    async def start(self, tasks: TaskGroup) -> None:
        """Connect to the other workers. Raises UnknownEventId. tasks: run until the reader ends."""
        before = None if self._after is None else dict(self._after)
        kept = {self._feed.name: self._feed.ring.kept}
        for name, path in other_workers(self._feed).items():
            with suppress(*CONNECTION_ERRORS, TimeoutError):
                kept[name] = await tasks.start(self._follow_other, name, path)
        self.places = {name: each.last for name, each in kept.items()}
        if before is None:
            return
        if before and not kept.keys() & before.keys():
            raise UnknownEventId
        if any(number > kept[name].last for name, number in before.items() if name in kept):
            raise UnknownEventId
        if before:
            self.resumed = all(
                name in kept and number >= kept[name].first - 1 for name, number in before.items()
            )
        # A worker that it does not know has started meanwhile, so it wants all of that one's events.
        self.places = {name: max(before.get(name, 0), each.first - 1) for name, each in kept.items()}

    async def go_on(self) -> None:
        """Take events until cancelled."""
        self._started.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_own)
            if has_workers():
                await self._look_for_workers(tasks)

    async def _follow_own(self) -> None:
        name = self._feed.name

        async def send(batch: EventBatch) -> None:
            await self._take(name, batch)

        await self._feed.follow(self.places[name], self._wanted, send)

    async def _look_for_workers(self, tasks: TaskGroup) -> None:
        while True:
            await anyio.sleep(_LOOK_S)
            for name, path in other_workers(self._feed).items():
                if name not in self.places:
                    self.places[name] = 0
                    tasks.start_soon(self._follow_new, name, path)

    async def _follow_new(self, name: str, path: Path) -> None:
        try:
            async with WorkerConnection.open(path, 0, self._wanted) as connection:
                await self._changed(JOINED, name)
                await self._receive(name, connection)
        except (*CONNECTION_ERRORS, TimeoutError):
            self.places.pop(name, None)  # it is tried again as long as its socket is there

    async def _follow_other(self, name: str, path: Path, *, task_status: TaskStatus[KeptEvents]) -> None:
        """Follow a worker that is there at the start."""
        seen = None if self._after is None else self._after.get(name, 0)
        async with WorkerConnection.open(path, seen, self._wanted) as connection:
            task_status.started(connection.kept)
            await self._started.wait()
            await self._receive(name, connection)

    async def _receive(self, name: str, connection: WorkerConnection) -> None:
        """Take a worker's events until it ends."""
        while True:
            try:
                batch = await connection.receive()
            except CONNECTION_ERRORS:
                break
            await self._take(name, batch)
        self.places.pop(name, None)
        await self._changed(LEFT, name)
