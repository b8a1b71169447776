"""Make responses in the background.

A response in the background is a request whose client is the log of the response store: `BackgroundResponse` is the
channel that it is sent to. It begins as a StoredResponse with a lease, and its events are written in batches
(ResponseEvents, see `stores.base`), so no event waits for the store; if the store is slow, the channel is full, and the
upstream waits. Clients read the log: see followers.py.

A response runs in the process that began it, in a task group of the gateway. Ten times a second this process looks if
the logs of its responses are open: another one may have cancelled or deleted them. It renews their leases; when one has
expired, because its gateway has died, the first reader makes the response a failed one. It is never sent again.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from starlette.types import Message

from dragoman import ErrorKind
from dragoman.codec import StoredEventWriter
from dragoman.jsontext import JSONObject, decode, encode, size_up_to
from dragoman_server.platform.changes import Changes
from dragoman_server.platform.off_loop import INLINE_BYTES, off_loop
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.responses import conversation
from dragoman_server.responses.followers import EventFollowers
from dragoman_server.responses.service import ExpandedRequest, StoredResponseService
from dragoman_server.responses.stores.base import (
    ResponseEvents,
    ResponseKey,
    ResponseStore,
    ResponseStoreError,
    ResponseTooLarge,
    StoredResponse,
)

if TYPE_CHECKING:
    from dragoman_server.accounts.usage import Meter
    from dragoman_server.log import RequestRecord

ERRORS = logging.getLogger("dragoman.errors")

# Seconds between two looks for cancellations.
_POLL_S = 0.1

# Seconds without a sign of life after which a gateway counts as dead. Its event loop may have been busy, and the clocks
# of gateways may differ by a second.
LEASE_S = 15.0
_RENEW_S = LEASE_S / 3

# Seconds between two writes of a log. The first event is written immediately.
_WRITE_S = 0.05

# Bytes of a response that wait to be written. Beyond that its upstream waits.
_MAX_UNWRITTEN = 256 * 1024

# Seconds for storing the end of a response when the gateway ends, and between attempts.
_CLOSE_S = 3.0
_RETRY_S = 0.25


class BackgroundResponse:
    """A response that is made in the background: the ResponseChannel of its request.

    Args:
        opened: as it was stored when it began.
        body: its Response object.
        streams: it is made of events.
        until_s: how long it may take.

    Attributes:
        holder: What must not end before it.
    """

    # Whatever was written, an error can follow as the end of the log.
    started = broken = False

    def __init__(
        self,
        store: ResponseStore,
        opened: StoredResponse,
        body: JSONObject,
        writer: StoredEventWriter,
        *,
        streams: bool,
        limit_s: float,
        holder: object,
    ) -> None:
        self.meter: Meter | None = None
        self.watch: Callable[[bytes], None] | None = None
        self.holder = holder
        self.body = body
        self.key = opened.key
        self._store, self._opened, self._writer = store, opened, writer
        self._streams, self._limit_s = streams, limit_s
        self._received: list[bytes] = []
        self._size = 0
        self._batch: ResponseEvents | None = None  # that the store has not confirmed
        self._last: ResponseEvents | None = None
        self._final: JSONObject | None = None
        self._is_error = False
        self._whole = b""  # a response without events, or an error
        self._closed = self._timed_out = False
        self._left = anyio.Event()
        self._changes = Changes()
        self._failing = False

    # The channel.

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._is_error = status >= 400

    async def write(self, data: bytes) -> None:
        while not self.write_now(data):
            await self._changes.wait()

    def write_now(self, data: bytes) -> bool:
        if self._size > _MAX_UNWRITTEN:
            return False
        self._note(data)
        self._received.append(data)
        self._size += len(data)
        self._changes.note()
        return True

    async def end(self, data: bytes) -> None:
        if self._streams and not self._is_error:
            await self.write(data)
        else:
            self._note(data)
            self._whole = data

    def _note(self, data: bytes) -> None:
        if self.meter is not None:
            self.meter.add(data)
        if self.watch is not None and data:
            self.watch(data)

    async def receive(self) -> Message:
        """Return when nobody wants the response any more. See ASGI."""
        await self._left.wait()
        return {"type": "http.disconnect"}

    # The task.

    def cancel(self) -> None:
        """Let it end, because another has closed its log."""
        self._closed = True
        self._left.set()

    async def run(self, serve: Callable[[], Awaitable[None]]) -> None:
        """Make the response. serve: sends the request, with this as its channel."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write_log)
                tasks.start_soon(self._end_in_time)
                await serve()
                tasks.cancel_scope.cancel()
            with anyio.move_on_after(LEASE_S):
                await self._close_log()
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await self._close_log()
            if not self._closed:
                ERRORS.error("response %s: its end is not stored, so it counts as failed", self.key[1])

    async def _close_log(self) -> None:
        while not self._closed:
            await self._attempt(self._close)

    def note_end(self, record: "RequestRecord") -> None:
        """Put into the record why it has ended early."""
        if record.outcome == "client_left" and self._timed_out:
            record.outcome, record.error, record.error_kind = (
                "failed",
                self._too_slow,
                ErrorKind.TIMEOUT.value,
            )
        elif record.outcome == "client_left":
            record.outcome = "cancelled"

    async def _end_in_time(self) -> None:
        await anyio.sleep(self._limit_s)
        self._timed_out = True
        self._left.set()

    @property
    def _too_slow(self) -> str:
        return f"the response was not complete within {self._limit_s:g} s (server.background_timeout_s)"

    async def _write_log(self) -> None:
        while not self._closed:
            while not (self._received or self._batch):
                await self._changes.wait()
            await self._attempt(self._write)
            await anyio.sleep(_WRITE_S)

    async def _attempt(self, write: Callable[[], Awaitable[None]]) -> None:
        """Use the store. One that does not work is tried again."""
        try:
            await write()
            self._failing = False
        except ResponseStoreError as error:
            if not self._failing:
                ERRORS.error("response %s is not stored, and tried again: %s", self.key[1], error)
            self._failing = True
            await anyio.sleep(_RETRY_S)

    async def _write(self) -> None:
        """Write the events that have come. The last one closes the log."""
        if self._batch is None:
            data = b"".join(self._received)
            self._received.clear()
            self._size = 0
            self._changes.note()
            # The caller may be cancelled, but what has come is not lost, even if no thread is free yet.
            with anyio.CancelScope(shield=True):
                await off_loop(len(data), self._parse, data)
        if self._batch is not None:
            if not await self._store.append(self.key, self._batch, int(time.time())):
                self.cancel()
                return
            self._batch = None
        if self._last is not None:
            await self._close()

    def _parse(self, data: bytes) -> None:
        writer = self._writer
        had_ended = writer.final is not None
        frames, number = writer.receive(data), writer.next
        final = None if had_ended else writer.final
        if final is not None:
            last, number = frames.pop(), number - 1
            if not conversation.is_final(final):
                final = self._failed("server_error", "the upstream has ended the response without its output")
                last = writer.end(final)
            self._last, self._final = ResponseEvents.before(writer.next, [last]), final
        self._batch = ResponseEvents.before(number, frames) if frames else None

    async def _close(self) -> None:
        while self._batch is not None or (self._last is None and self._received):
            await self._write()
            if self._closed:
                return
        if self._final is None:
            self._final = await off_loop(len(self._whole), self._end_of_whole)
            self._last = self._end()
        assert self._last is not None
        try:
            await self._store.close(await self._to_store(self._final), self._last)
        except ResponseTooLarge as error:
            ERRORS.warning("%s", error)
            self._final = self._failed(
                "server_error", "the response is too large for the gateway's response store"
            )
            self._last = self._end()
            await self._store.close(await self._to_store(self._final), self._last)
        self._closed = True

    def _end(self) -> ResponseEvents:
        """Return the last event of a response that has failed without one."""
        assert self._final is not None
        frames = [self._writer.end(self._final)] if self._streams else []
        return ResponseEvents.before(self._writer.next, frames)

    async def _to_store(self, body: JSONObject) -> StoredResponse:
        opened, now = self._opened, int(time.time())

        def build() -> StoredResponse:
            previous = self.body["previous_response_id"]
            stored = conversation.to_stored_response(
                body, opened.input, previous, owner=opened.owner, now=now
            )
            assert stored is not None
            return stored

        return await off_loop(size_up_to(INLINE_BYTES, body), build)

    def _end_of_whole(self) -> JSONObject:
        """Return the response as it has ended, for one that no event has ended."""
        received = decode(self._whole) if self._whole else {}
        if type(received) is not dict:
            received = {}
        if self._timed_out:
            return self._failed("server_error", self._too_slow)
        if received and not self._is_error:
            body = {**received, **self._writer.members}
            if conversation.is_final(body):
                return body
        error = received.get("error")
        error = error if type(error) is dict else {}
        message = error.get("message") or "the response broke off"
        return self._failed(str(error.get("code") or "server_error"), str(message))

    def _failed(self, code: str, message: str) -> JSONObject:
        return conversation.failed_body(self.body, code, message)


class BackgroundResponses(BackgroundTaskGroup):
    """The responses that this process makes in the background.

    Args:
        responses: where they are stored.

    Attributes:
        followers: The clients of this process that follow responses, also those of other processes.
    """

    def __init__(self, responses: StoredResponseService) -> None:
        self._responses = responses
        self._made: dict[ResponseKey, BackgroundResponse] = {}
        responses.made_here = self._made
        self.followers = EventFollowers(responses)
        self._changes = Changes()

    @property
    def count(self) -> int:
        """How many are being made."""
        return len(self._made)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See BackgroundTaskGroup. At the end, responses that are not complete become failed."""
        async with self.followers.running(), super().running():
            self.tasks.start_soon(self._watch)
            yield

    async def ended(self, holder: object = None) -> None:
        """Wait until none is being made, or none of a holder."""
        while any(holder in (None, each.holder) for each in self._made.values()):
            await self._changes.wait()

    async def open(
        self,
        body: JSONObject,
        expanded: ExpandedRequest,
        *,
        owner: str,
        streams: bool,
        limit_s: float,
        holder: object,
    ) -> BackgroundResponse:
        """Store a response that begins. Call run() immediately.

        body: a Response object with its id, and with what the request says about it. See BackgroundResponse for others.
        Raises RequestRefused if it cannot be stored.
        """
        store = self._responses.store
        if store is None or self._tasks is None or expanded.conversation is None:
            raise RuntimeError("responses are not made in the background now")
        members = {"background": True, "store": True, "previous_response_id": expanded.previous}
        members = {"id": body["id"], **members}
        body = conversation.opening_body(body, members)
        writer = self._responses.event_writer(members, 0)
        now = time.time()
        opened = StoredResponse(
            body["id"], owner, int(now), encode(body), expanded.conversation, (), now + LEASE_S
        )
        made = BackgroundResponse(
            store, opened, body, writer, streams=streams, limit_s=limit_s, holder=holder
        )
        self._made[made.key] = made
        try:
            begun = ResponseEvents.before(1, [writer.begin(body)]) if streams else None
            await self._responses.open(opened, begun)
        except BaseException:
            self._ended(made)
            raise
        self._changes.note()
        return made

    def run(self, made: BackgroundResponse, serve: Callable[[], Awaitable[None]]) -> None:
        """Make a response. serve: sends its request, with the response as its channel."""
        self.tasks.start_soon(self._run, made, serve)

    async def _run(self, made: BackgroundResponse, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await made.run(serve)
        except Exception:  # it must not end the others
            ERRORS.exception("response %s failed in the background", made.key[1])
        finally:
            self._ended(made)

    def _ended(self, made: BackgroundResponse) -> None:
        self._made.pop(made.key, None)
        self._changes.note()
        self.followers.wake(made.key)

    def _cancel(self, key: ResponseKey) -> None:
        """Let a response end whose log is closed or deleted."""
        if (made := self._made.get(key)) is not None:
            made.cancel()
        self.followers.wake(key)

    async def _watch(self) -> None:
        """Look for responses that others have ended, and renew the leases of the rest."""
        store = self._responses.store
        assert store is not None
        renewed_at = alive_until = 0.0
        while True:
            while not self._made:
                await self._changes.wait()
                renewed_at = anyio.current_time()
                alive_until = renewed_at + LEASE_S
            keys = tuple(self._made)
            now = anyio.current_time()
            renews = now - renewed_at >= _RENEW_S
            try:
                opened = await store.open_logs(keys, time.time() + LEASE_S if renews else None)
            except ResponseStoreError as error:
                if now > alive_until:
                    ERRORS.error("the responses in the background are cancelled: %s", error)
                    for key in keys:
                        self._cancel(key)
            else:
                if renews:
                    renewed_at, alive_until = now, now + LEASE_S
                for key in set(keys).difference(opened):
                    self._cancel(key)
            await anyio.sleep(_POLL_S)
