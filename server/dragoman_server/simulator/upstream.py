"""The simulator in the place of an upstream, in process: no socket, no server, no key."""

from collections.abc import Sequence
from types import TracebackType
from urllib.parse import urlsplit

import anyio

from dragoman_server.simulator.paths import (
    COMPACT_PATH,
    COMPACT_PROTOCOL,
    MODELS_PATH,
    model_list,
    not_found,
    protocol_of,
)
from dragoman_server.simulator.playback import WHERE, Playback
from dragoman_server.simulator.reply import Piece, Reply, reply_to
from dragoman_server.upstream.client import (
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamTimeouts,
    read_bounded,
)


class SimulatedResponse:
    """A reply whose body has yet to be read, by one task. See UpstreamResponse."""

    __slots__ = ("_playback", "headers", "status")

    def __init__(self, reply: Reply, playback: Playback) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._playback = playback

    async def receive(self) -> bytes:
        """The bytes that are due; b"" at the end. Raises UpstreamTimeout, UpstreamBroken."""
        return await self._playback.receive()

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises UpstreamTooLarge above `limit` bytes, and what `receive` raises."""
        return await read_bounded(self.receive, limit, WHERE)


class _Opening:
    """What `open` returns: asks on entry, gives up on exit."""

    __slots__ = ("_playback", "_read_s", "_reply", "_upstream")

    def __init__(self, upstream: "SimulatedUpstream", reply: Reply, read_s: float | None) -> None:
        self._upstream = upstream
        self._reply = reply
        self._read_s = read_s
        self._playback: Playback | None = None

    async def __aenter__(self) -> SimulatedResponse:
        self._upstream.opened += 1
        try:
            await self._wait(self._reply.delay_s)
        except BaseException:
            self._close()
            raise
        self._playback = Playback(self._reply.pieces, self._read_s)
        return SimulatedResponse(self._reply, self._playback)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    async def _wait(self, delay_s: float) -> None:
        if self._read_s is not None and delay_s > self._read_s:
            await anyio.sleep(self._read_s)
            raise UpstreamTimeout(f"{WHERE}: no answer for {self._read_s:g} s", UpstreamTimeoutPhase.READ)
        await anyio.sleep(delay_s)

    def _close(self) -> None:
        self._upstream.closed += 1
        if self._playback is None or not self._playback.ended:
            self._upstream.aborted += 1


class SimulatedUpstream:
    """Stands in for UpstreamClient. The end of the URL's path says which protocol is spoken.

    opened, closed: requests so far. aborted: those that were left before their end was read.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.aborted = 0

    def open(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]] = (),
        content: bytes | None = None,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> _Opening:
        """`async with upstream.open(...) as response`, as UpstreamClient has it.

        Of the timeouts `read_s` holds. Raises, on entry and while reading, UpstreamTimeout and UpstreamBroken.
        """
        reply = _reply(method, urlsplit(url).path, headers, content or b"")
        return _Opening(self, reply, None if timeouts is None else timeouts.read_s)


def _reply(method: str, path: str, headers: Sequence[tuple[str, str]], content: bytes) -> Reply:
    if method == "POST" and path.endswith(COMPACT_PATH):
        return reply_to(COMPACT_PROTOCOL, content, compacts=True)
    protocol = protocol_of(path)
    if method == "POST" and protocol is not None:
        return reply_to(protocol, content)
    if method == "GET" and path.endswith(MODELS_PATH):
        anthropic = any(name.lower() == "anthropic-version" for name, _ in headers)
        return plain_reply(200, model_list(anthropic=anthropic))
    return plain_reply(404, not_found(method, path))


def plain_reply(status: int, body: bytes) -> Reply:
    """A reply of JSON that no script made."""
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return Reply(status, headers, iter([Piece(0, body)]))
