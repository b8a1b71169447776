"""Let clients follow the events of a response that is made in the background, in whichever process.

Whoever follows a response reads the log in the response store, so what a client has seen is there when it comes back.
All followers of a response in one process share one read: one task reads the log, and each follower takes the events
that it lacks. One that is behind reads for itself, and one that reads nothing holds up no other.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import msgspec

from dragoman import RequestRefused
from dragoman_server.platform.changes import Changes
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.responses.service import StoredResponseService
from dragoman_server.responses.stores.base import EventPage, ResponseKey

# Seconds between two looks at a log of another process.
_POLL_S = 0.1


class EventFollowers(BackgroundTaskGroup):
    """The clients of this process that follow responses.

    Args:
        responses: where they are stored.
    """

    def __init__(self, responses: StoredResponseService) -> None:
        self._responses = responses
        self._followed: dict[ResponseKey, _FollowedLog] = {}

    async def read(self, key: ResponseKey, after: int) -> EventPage:
        """Return the events behind a number. Raises RequestRefused if they are not there."""
        page = await self._responses.read_events(key, after, int(time.time()))
        if page is None or not page.log.next:
            raise RequestRefused(
                "This response cannot be streamed: it was not created with stream=true, or its events are no longer "
                "kept. Request it without stream.",
                path="/stream",
            )
        if after + 1 < page.log.first:
            raise RequestRefused(
                f"the events up to {page.log.first - 1} are no longer kept: start after that one or a later one, or "
                "request the response without stream",
                path="/starting_after",
            )
        return page

    async def follow(
        self,
        key: ResponseKey,
        page: EventPage,
        send: Callable[[bytes], Awaitable[None]],
        *,
        heartbeat: bytes,
        heartbeat_s: float,
    ) -> None:
        """Send the events of a page from read() and all that follow, up to the last one.

        heartbeat: is sent after so many seconds of silence. Raises RequestRefused if the rest is not there.
        """
        if page.events.count:
            await send(page.events.data)
        with self._following(key, page) as followed:
            while page.log.lease or page.events.next < page.log.next:
                after = page.events.next - 1
                if page.events.next < page.log.next:
                    page = await self.read(key, after)
                else:
                    with anyio.move_on_after(heartbeat_s) as silence:
                        await followed.news(after)
                    if silence.cancelled_caught:
                        await send(heartbeat)
                        continue
                    if followed.error is not None:
                        raise followed.error
                    latest = followed.page
                    if latest is None or not latest.events.first <= after + 1 <= latest.events.next:
                        page = await self.read(key, after)
                    else:
                        page = EventPage(latest.log, latest.events.after(after))
                if page.events.count:
                    await send(page.events.data)

    @contextmanager
    def _following(self, key: ResponseKey, page: EventPage) -> Iterator["_FollowedLog"]:
        followed = self._followed.get(key)
        if followed is None:
            if self._tasks is None:
                raise RequestRefused("the gateway is stopping", status=503)
            followed = self._followed[key] = _FollowedLog(page.log.next)
            self._tasks.start_soon(self._read_for_followers, key, followed)
        followed.readers += 1
        try:
            yield followed
        finally:
            followed.readers -= 1
            followed.wake.note()

    async def _read_for_followers(self, key: ResponseKey, followed: "_FollowedLog") -> None:
        """Read the log for all who follow it in this process, as long as there are any."""
        try:
            while followed.readers and not followed.ended:
                page = await self.read(key, followed.next - 1)
                followed.ended = not page.log.lease and page.events.next == page.log.next
                if page.events.count or followed.ended:
                    followed.page, followed.next = page, page.events.next
                    followed.changes.note()
                if page.events.next == page.log.next and not followed.ended:
                    with anyio.move_on_after(_POLL_S):
                        await followed.wake.wait()
        except RequestRefused as error:
            followed.error, followed.ended = error, True
        finally:
            self._followed.pop(key, None)
            followed.changes.note()

    def wake(self, key: ResponseKey) -> None:
        """Look for events of a response now."""
        if (followed := self._followed.get(key)) is not None:
            followed.wake.note()


class _FollowedLog(msgspec.Struct, eq=False):
    """What all who follow a log in this process share.

    Attributes:
        next: The number behind the last event that was read.
        page: What was read last.
        ended: Nothing more is read.
        error: Why, if the log has not ended.
        wake: Is noted when there may be more.
    """

    next: int
    page: EventPage | None = None
    ended: bool = False
    error: RequestRefused | None = None
    readers: int = 0
    changes: Changes = msgspec.field(default_factory=Changes)
    wake: Changes = msgspec.field(default_factory=Changes)

    async def news(self, after: int) -> None:
        """Wait until more than the event of this number was read, or nothing more is read."""
        while self.next <= after + 1 and not self.ended:
            await self.changes.wait()
