"""The simulator in the place of an upstream, in process: no socket, no server, no key."""

import json
from collections.abc import Iterator, Sequence
from types import TracebackType
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel

from dragoman import UPSTREAMS
from dragoman_server.simulator.reply import MADE_AT, SimulatedReply, TimedBytes, reply_to
from dragoman_server.simulator.scripts import MODELS
from dragoman_server.upstream.client import UpstreamTimeouts, read_bounded
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamTimeout, UpstreamTimeoutPhase

# Protocol -> its path without the version, which base URLs may contain.
PATHS = {spec.name: spec.path.removeprefix("/v1") for spec in UPSTREAMS.values()}
MODELS_PATH = "/models"
COMPACT_PROTOCOL = "openai_responses"
COMPACT_PATH = f"{PATHS[COMPACT_PROTOCOL]}/compact"

_MADE_AT_TEXT = "2026-01-01T00:00:00Z"

# The most bytes that one read returns, as of a socket.
READ_BYTES = 64 * 1024

WHERE = "the simulator"


class Playback:
    """The body of one reply, as a connection would return it. Create it when the head is sent: times count from there.

    read_s: the longest silence before UpstreamTimeout; None waits without limit.
    """

    __slots__ = ("_begun", "_broken", "_next", "_pieces", "_read_s", "ended")

    def __init__(self, chunks: Iterator[TimedBytes], read_s: float | None = None) -> None:
        self._pieces = chunks
        self._next = next(chunks, None)
        self._begun = anyio.current_time()
        self._broken = False
        self._read_s = read_s
        self.ended = False  # the reader has received the end, good or bad

    async def receive(self) -> bytes:
        """Return the bytes that are due, waiting for the next ones if there are none; b"" at the end.

        Raises UpstreamBroken if the script breaks the connection, UpstreamTimeout after `read_s`.
        """
        await anyio.lowlevel.checkpoint()
        first = self._next
        if self._broken:
            self.ended = True
            raise UpstreamBroken(f"{WHERE}: the connection broke inside the body, as in the model's script")
        if first is None:
            self.ended = True
            return b""
        await self._until(self._begun + first.due_s)
        now = max(anyio.current_time(), self._begun + first.due_s)
        data: list[bytes] = []
        size = 0
        while (piece := self._next) is not None and self._begun + piece.due_s <= now and size < READ_BYTES:
            data.append(piece.data)
            size += len(piece.data)
            self._broken = piece.breaks
            self._next = next(self._pieces, None)
        return b"".join(data)

    async def _until(self, due: float) -> None:
        now = anyio.current_time()
        if self._read_s is not None and due - now > self._read_s:
            await anyio.sleep(self._read_s)
            raise UpstreamTimeout(
                f"{WHERE}: nothing was sent for {self._read_s:g} s", UpstreamTimeoutPhase.READ
            )
        if due > now:
            await anyio.sleep_until(due)


class SimulatedResponse:
    """A reply whose body has yet to be read, by one task. See UpstreamResponse."""

    __slots__ = ("_playback", "headers", "status")

    def __init__(self, reply: SimulatedReply, playback: Playback) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._playback = playback

    async def receive(self) -> bytes:
        """Return the bytes that are due; b"" at the end. Raises UpstreamTimeout, UpstreamBroken."""
        return await self._playback.receive()

    async def read_all(self, limit: int) -> bytes:
        """Return the whole body. Raises UpstreamTooLarge above `limit` bytes, and what receive() raises."""
        return await read_bounded(self.receive, limit, WHERE)


class _OpenSimulatedRequest:
    """Return value of open(): waits for the head on entry, ends the request on exit."""

    __slots__ = ("_playback", "_read_s", "_reply", "_upstream")

    def __init__(self, upstream: "SimulatedUpstream", reply: SimulatedReply, read_s: float | None) -> None:
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
        self._playback = Playback(self._reply.chunks, self._read_s)
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
            raise UpstreamTimeout(f"{WHERE}: no response for {self._read_s:g} s", UpstreamTimeoutPhase.READ)
        await anyio.sleep(delay_s)

    def _close(self) -> None:
        self._upstream.closed += 1
        if self._playback is None or not self._playback.ended:
            self._upstream.aborted += 1


class SimulatedUpstream:
    """Replaces UpstreamClient. The end of the URL's path determines the protocol.

    opened, closed: requests so far. aborted: those whose response was not read to the end.
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
    ) -> _OpenSimulatedRequest:
        """`async with upstream.open(...) as response`, as with UpstreamClient.

        Only `read_s` of the timeouts applies. Raises, on entry and while reading, UpstreamTimeout and UpstreamBroken.
        """
        reply = _reply(method, urlsplit(url).path, headers, content or b"")
        return _OpenSimulatedRequest(self, reply, None if timeouts is None else timeouts.read_s)


def _reply(method: str, path: str, headers: Sequence[tuple[str, str]], content: bytes) -> SimulatedReply:
    if method == "POST" and path.endswith(COMPACT_PATH):
        return reply_to(COMPACT_PROTOCOL, content, compacts=True)
    protocol = protocol_of(path)
    if method == "POST" and protocol is not None:
        return reply_to(protocol, content)
    if method == "GET" and path.endswith(MODELS_PATH):
        anthropic = any(name.lower() == "anthropic-version" for name, _ in headers)
        return plain_reply(200, model_list(anthropic=anthropic))
    return plain_reply(404, not_found(method, path))


def plain_reply(status: int, body: bytes) -> SimulatedReply:
    """Make a reply of JSON without a script."""
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return SimulatedReply(status, headers, iter([TimedBytes(0, body)]))


def protocol_of(path: str) -> str | None:
    """Return the protocol whose path the URL's path ends with, or None."""
    return next((name for name, end in PATHS.items() if path.endswith(end)), None)


def model_list(*, anthropic: bool) -> bytes:
    """Return the list of all simulated models, in Anthropic's form or OpenAI's."""
    if not anthropic:
        made = {"object": "model", "created": MADE_AT, "owned_by": "dragoman"}
        return json.dumps({"object": "list", "data": [{"id": name, **made} for name in MODELS]}).encode()
    unknown = ("max_input_tokens", "max_tokens", "line", "deprecated_at", "retires_at", "capabilities")
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": _MADE_AT_TEXT,
            "lifecycle": "active",
        }
        | dict.fromkeys(unknown)
        for name in MODELS
    ]
    page = {"data": data, "first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
    return json.dumps(page).encode()


def not_found(method: str, path: str) -> bytes:
    """Return the body of a 404 for an unknown path, in a form that all clients read."""
    message = f"the simulator does not serve {method} {path[:200]}"
    return json.dumps(
        {"error": {"message": message, "type": "not_found", "param": None, "code": None}}
    ).encode()
