"""The events of other workers, over a Unix socket of each in a directory that only their user can enter.

A worker that has a reader connects to the others, says from which event on, and gets what they have for it. So one that
dies ends a connection, and its successor is found in the directory. Where there is one worker, there is no directory.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from dragoman_server.feed.events import MAX_BATCH_BYTES, EventBatch, EventFilter, KeptEvents
from dragoman_server.feed.feed import Feed
from dragoman_server.platform.shared_directory import shared_directory
from dragoman_server.platform.task_group import BackgroundTaskGroup

# Where workers find the directory. It is not set where there is one. A user's variables begin with DRAGOMAN_.
DIRECTORY_VARIABLE = "_DRAGOMAN_FEED_DIRECTORY"
_DIRECTORY_PREFIX = "dragoman-feed-"

# A batch is of MAX_BATCH_BYTES and one event more, and JSON inside of JSON has a backslash before each quote.
_MAX_LINE_BYTES = 4 * MAX_BATCH_BYTES

# Seconds for another worker to take a connection, and to say what it has.
_CONNECT_S = 0.5

_log = logging.getLogger("dragoman.feed")

# What a connection that has ended raises.
CONNECTION_ERRORS = (
    *(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream),
    *(anyio.IncompleteRead, anyio.DelimiterNotFound, msgspec.MsgspecError),
)


class _Request(msgspec.Struct, frozen=True):
    """What a reader sends first. seen: the number of the last event that it has, None for the newest one."""

    seen: int | None
    wanted: EventFilter


def feed_directory() -> AbstractContextManager[Callable[[int], None]]:
    """Let the workers that are started inside of this block find each other. See shared_directory()."""
    return shared_directory(_DIRECTORY_PREFIX, DIRECTORY_VARIABLE, lambda pid: f"{pid:x}-*")


@asynccontextmanager
async def serving_workers(feed: Feed) -> AsyncIterator[None]:
    """Serve this process's events to other workers inside of this block, if there are any."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is None:
        yield
        return
    path = Path(directory, feed.name)
    try:
        listener = await anyio.create_unix_listener(path, mode=0o600)
    except OSError as error:
        # The path may be too long for a socket.
        _log.warning("readers at other workers do not get this worker's events: %s", error.strerror or error)
        yield
        return
    server = _EventServer(feed)
    try:
        async with listener, server.running():
            server.tasks.start_soon(listener.serve, server.serve)
            yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


class _EventServer(BackgroundTaskGroup):
    """Serves the events of this process to readers at other workers."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def serve(self, stream: SocketStream) -> None:
        """Serve one connection, until the reader ends it."""
        async with stream:
            with suppress(*CONNECTION_ERRORS):
                buffered = BufferedByteReceiveStream(stream)
                line = await buffered.receive_until(b"\n", _MAX_LINE_BYTES)
                request = msgspec.json.decode(line, type=_Request)
                with self._feed.kept(request.wanted):
                    await self._follow(stream, request)

    async def _follow(self, stream: SocketStream, request: _Request) -> None:
        kept = self._feed.ring.kept
        await stream.send(_line(kept))
        # The reader knows from `kept` what it has missed by now.
        seen = kept.last if request.seen is None else max(request.seen, kept.first - 1)
        async with anyio.create_task_group() as tasks:

            async def send(batch: EventBatch) -> None:
                try:
                    await stream.send(_line(batch))
                except CONNECTION_ERRORS:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(self._feed.follow, seen, request.wanted, send)
            with suppress(*CONNECTION_ERRORS):
                await stream.receive()  # it sends nothing more
            tasks.cancel_scope.cancel()


def has_workers() -> bool:
    """True if other workers can be found: this process is one of several."""
    return DIRECTORY_VARIABLE in os.environ


def other_workers(feed: Feed) -> dict[str, Path]:
    """Return the sockets of the other workers, by their names."""
    with suppress(KeyError, OSError):
        directory = Path(os.environ[DIRECTORY_VARIABLE])
        return {path.name: path for path in directory.iterdir() if path.name != feed.name}
    return {}


class WorkerConnection:
    """A connection to another worker, for one reader. Use open().

    Attributes:
        kept: The events that it had at first.
    """

    def __init__(self, stream: BufferedByteReceiveStream, kept: KeptEvents) -> None:
        self.kept = kept
        self._stream = stream

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, seen: int | None, wanted: EventFilter
    ) -> AsyncIterator["WorkerConnection"]:
        """Connect. seen, wanted: as in _Request. Raises CONNECTION_ERRORS and TimeoutError."""
        with anyio.fail_after(_CONNECT_S) as scope:
            async with await anyio.connect_unix(path) as stream:
                await stream.send(_line(_Request(seen, wanted)))
                buffered = BufferedByteReceiveStream(stream)
                line = await buffered.receive_until(b"\n", _MAX_LINE_BYTES)
                scope.deadline = float("inf")
                yield cls(buffered, msgspec.json.decode(line, type=KeptEvents))

    async def receive(self) -> EventBatch:
        """Return the next events. Raises CONNECTION_ERRORS."""
        line = await self._stream.receive_until(b"\n", _MAX_LINE_BYTES)
        return msgspec.json.decode(line, type=EventBatch)


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
