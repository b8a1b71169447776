"""The simulator in the place of an upstream, in process: no socket, no server, no key."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain, islice
from urllib.parse import unquote, urlsplit

import anyio
import msgspec
from msgspec.structs import replace

from dragoman import UPSTREAMS
from dragoman.codec import MODEL_IN_PATH, Endpoint, UpstreamSpec
from dragoman.jsontext import JSONObject
from dragoman_server.hosts import UpstreamCall
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.simulator.reply import MADE_AT, SimulatedReply, json_reply, reply_to
from dragoman_server.simulator.scripts import MODELS
from dragoman_server.streams.byte_stream import Take
from dragoman_server.upstream.client import read_bounded
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamTimeout, UpstreamTimeoutPhase
from dragoman_server.upstream.transport import UpstreamTimeouts
from dragoman_server.wire.replies import protocol_of_client

MODELS_PATH = "/models"
_VERSION = "/v1"
_COMPACTS = Endpoint("/responses/compact")
# What responds to POST requests, by the end of the path: base URLs may contain the version.
ENDPOINTS: Sequence[tuple[UpstreamSpec, Endpoint]] = (
    *(
        (spec, msgspec.structs.replace(endpoint, path=endpoint.path.removeprefix(_VERSION)))
        for spec in UPSTREAMS.values()
        for endpoint in spec.endpoints
        if endpoint.path.startswith(f"{_VERSION}/")
    ),
    (UPSTREAMS["openai_responses"], _COMPACTS),
)

# The most bytes that one read returns, as of a socket.
READ_BYTES = 64 * 1024

_WHERE = "the simulator"


class SimulatedResponse:
    """A reply, as a connection would return it, read by one task. See UpstreamResponse.

    Args:
        read_s: the longest silence before UpstreamTimeout; None waits without limit.

    Attributes:
        ended: The end was received, good or bad.
    """

    __slots__ = ("_begun", "_broken", "_chunks", "_next", "_read_s", "ended", "headers", "status")

    def __init__(self, reply: SimulatedReply, read_s: float | None = None) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.ended = False
        self._chunks = reply.chunks
        self._next = next(self._chunks, None)
        self._begun = anyio.current_time() + reply.delay_s
        self._broken = False
        self._read_s = read_s

    async def wait(self, due_s: float) -> None:
        """Wait until `due_s` seconds after the head is due. Raises UpstreamTimeout."""
        due = self._begun + due_s
        if self._read_s is not None and due - anyio.current_time() > self._read_s:
            await anyio.sleep(self._read_s)
            raise UpstreamTimeout(
                f"{_WHERE}: nothing was sent for {self._read_s:g} s", UpstreamTimeoutPhase.READ
            )
        await anyio.sleep_until(due)

    async def receive(self) -> bytes:
        """Return the bytes that are due, waiting for the next ones if there are none; b"" at the end.

        Raises UpstreamBroken if the script breaks the connection, UpstreamTimeout after `read_s`.
        """
        due_s = 0 if self._next is None else self._next.due_s
        await self.wait(due_s)
        if self._next is None:
            self.ended = True
            if self._broken:
                raise UpstreamBroken(
                    f"{_WHERE}: the connection broke inside the body, as in the model's script"
                )
            return b""
        now_s = max(anyio.current_time() - self._begun, due_s)
        data = bytearray()
        while self._next is not None and self._next.due_s <= now_s and len(data) < READ_BYTES:
            data += self._next.data
            self._broken = self._next.breaks
            self._next = next(self._chunks, None)
        return bytes(data)

    async def receive_each(self, take: Take) -> None:
        """Pass nothing: receive() does it all."""

    async def read_all(self, limit: int) -> bytes:
        """Return the whole body. Raises UpstreamTooLarge above `limit` bytes, and what receive() raises."""
        return await read_bounded(self.receive, limit, _WHERE)


class SimulatedUpstream:
    """Replaces UpstreamClient. The end of the URL's path determines the protocol.

    Attributes:
        opened, closed: The numbers of requests so far.
        aborted: The number of those whose response was not read to the end.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.aborted = 0

    @asynccontextmanager
    async def open(
        self,
        call: UpstreamCall,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> AsyncIterator[SimulatedResponse]:
        """`async with upstream.open(...) as response`, as with UpstreamClient.

        Only `read_s` of the timeouts applies. Raises, on entry and while reading, UpstreamTimeout and UpstreamBroken.
        """
        reply = await off_loop(len(call.held), _begun_reply, call)
        response = SimulatedResponse(reply, None if timeouts is None else timeouts.read_s)
        self.opened += 1
        try:
            await response.wait(0)
            yield response
        finally:
            self.closed += 1
            self.aborted += not response.ended


def _begun_reply(call: UpstreamCall) -> SimulatedReply:
    """Return the reply with its first chunk made, for which a script looks at the whole request."""
    reply = _reply(call)
    return replace(reply, chunks=chain(list(islice(reply.chunks, 1)), reply.chunks))


def _reply(call: UpstreamCall) -> SimulatedReply:
    method, url, status = call.method, urlsplit(call.url), 404
    path, headers = url.path, {name.lower(): value for name, value in call.headers}
    for spec, endpoint in ENDPOINTS:
        begin = endpoint.path.partition(MODEL_IN_PATH)[0]
        model = endpoint.match(path[max(path.rfind(begin), 0) :], url.query)
        if model is not None:
            if method == "POST":
                body, compacts = call.held, endpoint is _COMPACTS
                return reply_to(spec.name, body, endpoint=endpoint, named=unquote(model), compacts=compacts)
            status = 405
    if path.endswith(MODELS_PATH):
        if method in ("GET", "HEAD"):
            return json_reply(200, _model_list(protocol_of_client(url.query, headers).model_list_form))
        status = 405
    message = f"the simulator does not serve {method} {path[:200]}"
    # All clients read this form.
    error = {"message": message, "type": "not_found", "param": None, "code": None}
    return json_reply(status, json.dumps({"error": error}).encode())


def _model_list(form: str) -> bytes:
    """Return the list of all simulated models. form: see ProtocolSpec.model_list_form."""
    if form == "google":
        return json.dumps({"models": [{"name": f"models/{name}"} for name in MODELS]}).encode()
    if form == "openai":
        common: JSONObject = {"object": "model", "created": MADE_AT, "owned_by": "dragoman"}
        return json.dumps({"object": "list", "data": [{"id": name, **common} for name in MODELS]}).encode()
    unknown = ("max_input_tokens", "max_tokens", "line", "deprecated_at", "retires_at", "capabilities")
    common = {"created_at": "2026-01-01T00:00:00Z", "lifecycle": "active", **dict.fromkeys(unknown)}
    data = [{"type": "model", "id": name, "display_name": name, **common} for name in MODELS]
    page = {"data": data, "first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
    return json.dumps(page).encode()
