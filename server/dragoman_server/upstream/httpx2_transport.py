"""httpx2's transports with the interface and the errors of Http1Transport.

They serve requests by a proxy, and are what tests pass instead of connections. The text of an error is ours, because
httpx2's may contain headers.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import httpx2
from anyio.abc import AsyncResource

from dragoman_server.hosts import StreamedContent
from dragoman_server.streams.byte_stream import Take
from dragoman_server.streams.connect import cause_of, is_of_machine
from dragoman_server.upstream import errors
from dragoman_server.upstream.http1 import MAX_INTERIM
from dragoman_server.upstream.transport import Http1Request, UpstreamTimeouts

# Seconds for closing a connection to a proxy that does not connect.
_CLOSE_S = 1.0

_PHASES: dict[type[httpx2.HTTPError], errors.UpstreamTimeoutPhase] = {
    httpx2.PoolTimeout: errors.UpstreamTimeoutPhase.POOL,
    httpx2.ConnectTimeout: errors.UpstreamTimeoutPhase.CONNECT,
    httpx2.WriteTimeout: errors.UpstreamTimeoutPhase.WRITE,
    httpx2.ReadTimeout: errors.UpstreamTimeoutPhase.READ,
}
_FAILURES: dict[type[httpx2.HTTPError], tuple[type[errors.UpstreamError], str]] = {
    httpx2.ConnectError: (errors.UpstreamUnreachable, "cannot connect to {where}{by}"),
    httpx2.ProxyError: (errors.UpstreamUnreachable, "the proxy did not connect to {where}"),
    httpx2.LocalProtocolError: (
        errors.UpstreamRequestInvalid,
        "{where}: the request cannot be written as HTTP",
    ),
}
# httpcore2 2.16 socks_proxy.py:67 passes on what socksio, of the extra, says about other bytes than those of SOCKS.
_SOCKS_ERRORS: tuple[type[Exception], ...] = ()
with suppress(ImportError):
    import socksio

    _SOCKS_ERRORS = (socksio.SOCKSError,)
_OTHER_FAILURE = (errors.UpstreamBroken, "{where}: the connection broke, or the response is not HTTP")


@contextmanager
def _failures(where: str, by: str = "", opening: "_Opening | None" = None) -> Iterator[None]:
    """Raise an UpstreamError for httpx2's."""
    try:
        yield
    except httpx2.HTTPError as error:
        if (phase := _PHASES.get(type(error))) is not None:
            raise errors.UpstreamTimeout(f"{where}: {phase.value} timeout", phase) from None
        is_connecting = opening is not None and opening.stream is not None
        failure, text = _FAILURES.get(
            type(error), _FAILURES[httpx2.ConnectError] if is_connecting else _OTHER_FAILURE
        )
        if isinstance(error, httpx2.ProxyError) and (status := str(error)[:3]).isdecimal():
            text = f"{text} ({status})"  # httpcore2 2.16 http_proxy.py:282
        if isinstance(error, httpx2.ConnectError) and is_of_machine(cause_of(_causes(error))):
            failure = errors.GatewayExhausted
        raise failure(text.format(where=where, by=by)) from None
    except _SOCKS_ERRORS:
        failure, text = _FAILURES[httpx2.ProxyError]
        raise failure(text.format(where=where)) from None


def _causes(error: BaseException) -> Iterator[OSError]:
    """Yield the errors of the system that have led to it."""
    if isinstance(error, OSError) and error.errno is not None:
        yield error
    before = (
        error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__ or error.__context__,)
    )
    for each in filter(None, before):
        yield from _causes(each)


async def _pieces(content: StreamedContent) -> AsyncGenerator[bytes]:
    while data := await content.receive():
        yield data


class _Opening:
    """Bounds the time until a new connection is ready for its request, and closes one that does not become ready.

    The whole head of the response has a bound as well, because httpcore2's timeout is for each read of it. Each interim
    response restarts that time (see `Http1Exchange`) and is not seen here, so the bound is that of the most of them.

    httpcore2 2.16 waits for a proxy as long as for a response (http_proxy.py:258), and leaves a connection to a SOCKS
    proxy open that does not connect (socks_proxy.py:255). In its pool a connection counts as busy for ever whose
    handshake with the upstream fails (http_proxy.py:301), or that is cancelled before its request begins.

    Attributes:
        scope: Of the request. It is cancelled when the time is over.
        phase: What has the time.
        stream: The new connection, None before it exists and once it is ready.
    """

    def __init__(self, limits: UpstreamTimeouts, transport: httpx2.AsyncBaseTransport) -> None:
        self.scope = anyio.CancelScope()
        self.phase = errors.UpstreamTimeoutPhase.CONNECT
        self._limits = limits
        self._pool: Any = getattr(transport, "_pool", None)
        self.stream: AsyncResource | None = None

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take an event of the request. See the extension "trace" of httpcore2."""
        if event.endswith("connect_tcp.started"):
            self._wait_within(self._limits.connect_s)
        elif event.endswith("connect_tcp.complete"):
            self.stream = info["return_value"]
        elif event.endswith(".send_request_headers.started") and info["request"].method != b"CONNECT":
            self._wait_within(None)
            self.stream = None
        elif event.endswith(".receive_response_headers.started") and info["request"].method != b"CONNECT":
            self.phase = errors.UpstreamTimeoutPhase.READ
            read_s = self._limits.read_s
            self._wait_within(None if read_s is None else read_s * (1 + MAX_INTERIM))

    def _wait_within(self, limit_s: float | None) -> None:
        self.scope.deadline = math.inf if limit_s is None else anyio.current_time() + limit_s

    async def aclose(self) -> None:
        """Close a connection that has not become ready."""
        if self.stream is None:
            return
        with anyio.move_on_after(_CLOSE_S, shield=True):
            with suppress(OSError):
                await self.stream.aclose()
            if self._pool is None:  # another transport that uses httpcore2
                return
            used = {request.connection for request in self._pool._requests}
            for connection in self._pool.connections:
                if connection not in used and not connection.is_idle():
                    await connection.aclose()


class Httpx2Body:
    """The body of a response. See ResponseBody."""

    __slots__ = ("_iterator", "_stream", "_where")
    released = False

    def __init__(self, stream: httpx2.AsyncByteStream, where: str) -> None:
        self._stream = stream
        self._where = where
        self._iterator: AsyncIterator[bytes] = aiter(stream)

    async def receive(self) -> bytes:
        with _failures(self._where):
            async for data in self._iterator:
                if data:
                    return data
        return b""

    async def receive_each(self, take: Take) -> None:
        """Pass nothing, so that the caller's receive() gets all of it."""

    async def aclose(self) -> None:
        with _failures(self._where):
            try:
                if isinstance(self._iterator, AsyncGenerator):
                    await self._iterator.aclose()
            finally:
                await self._stream.aclose()


class Httpx2Transport:
    """Sends requests as Http1Transport does.

    Args:
        proxied: by a proxy, which errors mention.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport, *, proxied: bool = False) -> None:
        self._transport = transport
        self._by = " by its proxy" if proxied else ""

    async def aclose(self) -> None:
        with suppress(httpx2.HTTPError):
            await self._transport.aclose()

    async def send(self, request: Http1Request) -> tuple[int, list[tuple[str, str]], Httpx2Body]:
        """See Http1Transport."""
        limits, where = request.timeouts, request.url.where
        timeouts = {
            "connect": limits.connect_s,
            "read": limits.read_s,
            "write": limits.write_s,
            "pool": limits.pool_s,
        }
        lines = request.head.split(b"\r\n")[1:-2]
        opening = _Opening(limits, self._transport)
        response: httpx2.Response | None = None
        try:
            with _failures(where, self._by, opening), opening.scope:
                response = await self._transport.handle_async_request(
                    httpx2.Request(
                        request.method,
                        str(request.url.parsed),
                        headers=[
                            (name, value) for name, _, value in [line.partition(b": ") for line in lines]
                        ],
                        content=request.content
                        if isinstance(request.content, bytes)
                        else _pieces(request.content),
                        extensions={"timeout": timeouts, "trace": opening.trace},
                    )
                )
        finally:
            await opening.aclose()
        if response is None:
            raise errors.UpstreamTimeout(f"{where}: {opening.phase.value} timeout", opening.phase)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
        ]
        return response.status_code, headers, Httpx2Body(response.stream, where)
