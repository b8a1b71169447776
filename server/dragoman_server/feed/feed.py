"""The events of this process, and those who read them.

Nothing is kept, and no request makes an event, unless there is a reader or the last one has left a moment ago.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import msgspec

from dragoman import RequestRefused
from dragoman.errors import mask_value
from dragoman.jsontext import JSONObject
from dragoman_server.feed.events import (
    MAX_LABEL_LENGTH,
    WIRE_EVENT,
    EndedRequest,
    EventBatch,
    EventFilter,
    EventRing,
)
from dragoman_server.log import RequestRecord
from dragoman_server.platform.changes import Changes
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.settings.secret import Mask

# Seconds for a reader to come back without losing events.
KEPT_S = 60.0

# Requests that have ended, of which one process keeps the line in the log while nobody reads: at 2 KiB each, 1 MiB.
MAX_ENDED = 500

# Readers of one process, those of other workers not counted. Each is a connection that is always open.
MAX_READERS = 16

# Seconds for which events gather before a reader gets them, so that it is woken ten times a second at most.
GATHER_S = 0.1

# Events that wait to be encoded until a reader comes for them: few, because those with many losses are large. Those
# with bytes that were sent do not wait.
MAX_WAITING = 64


class Feed(BackgroundTaskGroup):
    """The events of one process. Outside of running() none are kept for readers that come back.

    Args:
        mask: removes the secrets of the configuration.

    Attributes:
        is_open: Events are kept. If it is false, make none.
        wants_wire: A reader wants the bytes that are sent as well.
        ended: The latest requests that have ended. The first reader that comes finds them among the events.
        name: This process in ids of events. Another process with the same id has another one.
    """

    def __init__(self, mask: Mask) -> None:
        self.is_open = self.wants_wire = False
        self.name = f"{os.getpid():x}-{os.urandom(4).hex()}"
        self.ended: deque[EndedRequest] = deque(maxlen=MAX_ENDED)
        self._ring = EventRing()
        self._mask = mask
        self._changes = Changes()
        self._followers = self._wire_followers = 0
        self._readers: list[OpenReader] = []
        self._stopping = False
        self._closing: anyio.CancelScope | None = None

    def configure(self, mask: Mask) -> None:
        """Use the mask of this configuration from now on."""
        self._encode()
        # The old one knows the secrets that may be in what was kept by now.
        masked = [EndedRequest(each.at, mask_value(each.line, self._mask)) for each in self.ended]
        self.ended = deque(masked, MAX_ENDED)
        self._mask = mask

    # Events.

    def publish(self, kind: str, record: RequestRecord, data: JSONObject) -> None:
        """Add an event of a request. kind: its type. data: with short texts only, and no member that changes later."""
        if self.is_open:
            model = (record.model or "")[:MAX_LABEL_LENGTH]
            labels = (record.id, record.client_key or "", model, record.upstream or "")
            waiting = self._ring.waiting
            waiting.append((kind, labels, data))
            if len(waiting) == 1:  # who waits has taken all before
                self._changes.note()
            if len(waiting) >= MAX_WAITING or kind == WIRE_EVENT:
                self._encode()

    @property
    def ring(self) -> EventRing:
        """The events, all of them encoded."""
        self._encode()
        return self._ring

    def _encode(self) -> None:
        if self._ring.waiting:
            self._ring.encode(self._mask)

    @contextmanager
    def kept(self, wanted: EventFilter) -> Iterator[None]:
        """Keep events inside of this block, and for KEPT_S after the last one. wanted: by its reader."""
        if not self.is_open:
            for ended in self.ended:
                self._ring.waiting.append(("request.ended", ended.labels, ended.data))
        self._followers += 1
        self._wire_followers += wanted.wants_wire
        self.is_open, self.wants_wire = True, self._wire_followers > 0
        if self._closing is not None:
            self._closing.cancel()
        try:
            yield
        finally:
            self._followers -= 1
            self._wire_followers -= wanted.wants_wire
            self.wants_wire = self._wire_followers > 0
            if not self._followers:
                if self._tasks is None:
                    self._close()
                else:
                    self._closing = anyio.CancelScope()
                    self._tasks.start_soon(self._close_later, self._closing)

    async def _close_later(self, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(KEPT_S)
            self._close()

    def _close(self) -> None:
        self.is_open = False
        self.ring.clear()

    async def follow(
        self, seen: int, wanted: EventFilter, send: Callable[[EventBatch], Awaitable[None]]
    ) -> None:
        """Send the events behind the one of this number, and those that come. Use it inside of kept().

        A batch may be empty: then the filter has left out what there was.
        """
        while True:
            batch = self.ring.after(seen, wanted)
            if batch.last > seen:
                seen = batch.last
                await send(batch)
            if seen < self._ring.kept.last:
                await anyio.lowlevel.checkpoint()
            else:
                if not self._ring.waiting:
                    await self._changes.wait()
                await anyio.sleep(GATHER_S)

    # Readers.

    @contextmanager
    def reader(self, wanted: EventFilter) -> Iterator["OpenReader"]:
        """Let a reader read inside of this block, which is cancelled when it has to end. Raises RequestRefused."""
        if self._stopping:
            raise RequestRefused("the gateway is stopping", status=503)
        if len(self._readers) >= MAX_READERS:
            text = f"the feed has {MAX_READERS} readers already, and no room for another one"
            raise RequestRefused(text, status=503)
        reader = OpenReader()
        self._readers.append(reader)
        try:
            with self.kept(wanted), reader.scope:
                yield reader
        finally:
            self._readers.remove(reader)

    def end_readers(self, reason: str, *, stopping: bool = False) -> None:
        """End all readers. stopping: no other may come."""
        self._stopping = self._stopping or stopping
        for reader in self._readers:
            reader.end_reason = reason
            reader.scope.cancel()


class OpenReader(msgspec.Struct, eq=False):
    """A reader of this process's feed.

    Attributes:
        scope: Of all that it does.
        end_reason: Why it has to end, "" as long as it need not.
    """

    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    end_reason: str = ""
