"""Send requests to upstreams: the only use of an HTTP client in the gateway.

`UpstreamClient` lives as long as the application. `client.open(...)` is one request, and yields a status, headers and
the body bytes as they arrive. Every failure is an `UpstreamError` of `errors`, whose text may be sent to a client: it
names the host, never a header, a path or a query, because those may contain keys.

Direct connections use `transport`, those by a proxy httpx2's own. The transports are called without httpx2's client: a
gateway must not keep the cookies of one account's response for the next one's request, follow redirects to hosts that
are not configured, or log URLs.
"""

import ssl
import urllib.request
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import anyio
import anyio.lowlevel
import httpx2

from dragoman.codec import SSE, Framing
from dragoman.sse import FrameDecoder
from dragoman_server.hosts import UpstreamCall
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.streams.byte_stream import Take
from dragoman_server.upstream.background import BackgroundTaskGroup
from dragoman_server.upstream.content_coding import CodingError, ContentDecoder, decoder_for
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamIdleClosed,
    UpstreamRequestInvalid,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from dragoman_server.upstream.pool import PoolLimits
from dragoman_server.upstream.transport import (
    Http1Request,
    Http1Transport,
    IdleConnectionClosed,
    RequestURL,
    ResponseBody,
    trusting_context,
)
from dragoman_server.wire.headers import media_type

Transport = Http1Transport | httpx2.AsyncBaseTransport

# Seconds that closing a response may take. On our transport it takes none, on httpx2's there may be a TLS handshake.
CLOSE_S = 2.0

# How many times its size a compressed response may unpack to. Streams repeat their envelopes with each token, and
# reach 60.
_MAX_RATIO = 200

# These belong to one connection, so the transport writes them, and the caller's are dropped
# -- https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1. accept-encoding is what the gateway can decode.
_CONNECTION_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Seconds; None waits without limit. read_s: the longest silence while waiting for the response or reading it."""

    connect_s: float | None = 10.0
    read_s: float | None = 300.0
    write_s: float | None = 30.0
    pool_s: float | None = 10.0


_PHASES: dict[type[httpx2.HTTPError], UpstreamTimeoutPhase] = {
    httpx2.PoolTimeout: UpstreamTimeoutPhase.POOL,
    httpx2.ConnectTimeout: UpstreamTimeoutPhase.CONNECT,
    httpx2.WriteTimeout: UpstreamTimeoutPhase.WRITE,
    httpx2.ReadTimeout: UpstreamTimeoutPhase.READ,
}
_FAILURES: dict[type[httpx2.HTTPError], tuple[type[UpstreamError], str]] = {
    httpx2.ConnectError: (UpstreamUnreachable, "cannot connect to {where}{by}"),
    IdleConnectionClosed: (UpstreamIdleClosed, "{where}: the idle connection was closed"),
    httpx2.ProxyError: (UpstreamUnreachable, "the proxy did not connect to {where}"),
    httpx2.LocalProtocolError: (UpstreamRequestInvalid, "{where}: the request cannot be written as HTTP"),
}
_OTHER_FAILURE = (UpstreamBroken, "{where}: the connection broke, or the response is not HTTP")


def _failure(error: httpx2.HTTPError, where: str, *, direct: bool, by: str = "") -> UpstreamError:
    """Return the UpstreamError for httpx2's. direct: from our transport; only its text contains no headers."""
    if (phase := _PHASES.get(type(error))) is not None:
        text = str(error) if direct else f"{where}: {phase.value} timeout"
        return UpstreamTimeout(text, phase)
    failure, text = _FAILURES.get(type(error), _OTHER_FAILURE)
    return failure(str(error) if direct else text.format(where=where, by=by))


class _IteratedBody:
    """The body of a response from httpx2's transport."""

    __slots__ = ("_iterator", "_stream")

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._iterator: AsyncIterator[bytes] = aiter(stream)

    async def receive(self) -> bytes:
        async for data in self._iterator:
            if data:
                return data
        return b""

    async def aclose(self) -> None:
        try:
            if isinstance(self._iterator, AsyncGenerator):
                await self._iterator.aclose()
        finally:
            await self._stream.aclose()


class UpstreamResponse:
    """One request, sent when its `async with` block is entered, and its response, whose body is read by one task.

    A class, because the frame of a generator would refer to the response.

    headers: pairs with lower-case names, in the order of arrival. A compressed body is decoded, so content-encoding and
        content-length, which describe the compressed form, are removed. A stream in the framing of the call becomes
        server-sent events, and content-type says that.
    """

    __slots__ = (
        *("_body", "_client", "_decoder", "_frames", "_framing", "_proxy", "_request", "_where"),
        *("headers", "status"),
    )

    def __init__(
        self, client: "UpstreamClient", request: Http1Request, framing: Framing, proxy: str | None
    ) -> None:
        self._client = client
        self._request = request
        self._framing = framing
        self._proxy = proxy
        self._where = request.url.where
        self._decoder: ContentDecoder | None = None
        self._frames: FrameDecoder | None = None
        self._body: ResponseBody | _IteratedBody
        self.status = 0
        self.headers: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        return f"<UpstreamResponse {self.status} from {self._where}>"

    async def __aenter__(self) -> Self:
        proxy = self._proxy or _env_proxy(self._request.url.parsed, self._client._env_proxies)
        transport = self._client._transport_for(proxy, self._where)
        direct = isinstance(transport, Http1Transport)
        try:
            if isinstance(transport, Http1Transport):
                head, self._body = await transport.send(self._request)
                self.status, raw_headers = head.status, head.headers
            else:
                response = await transport.handle_async_request(_as_httpx2(self._request))
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                self._body = _IteratedBody(response.stream)
                self.status, raw_headers = response.status_code, response.headers.raw
        except httpx2.HTTPError as error:
            raise _failure(error, self._where, direct=direct, by=" by its proxy" if proxy else "") from None
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw_headers]
        try:
            coding = [value for name, value in headers if name == "content-encoding"]
            if coding:
                self._decoder = decoder_for(",".join(coding), ratio=_MAX_RATIO)
        except CodingError as error:
            await self.__aexit__()
            raise UpstreamBroken(f"{self._where}: {error}") from None
        if self._decoder is not None:
            headers = [(n, v) for n, v in headers if n not in ("content-encoding", "content-length")]
        framing = self._framing
        if framing.reader is not None and media_type(headers) == framing.media_type:
            self._frames = FrameDecoder(framing.reader())
            headers = [(n, SSE.media_type if n == "content-type" else v) for n, v in headers]
        self.headers = headers
        del self._request  # its content may be large, and the response may be a stream of hours
        return self

    async def __aexit__(self, *exc: object) -> None:
        if isinstance(self._body, ResponseBody) and self._body.released:
            return
        # The response has been used or abandoned, so an error at its end does not matter.
        with anyio.move_on_after(CLOSE_S, shield=True), suppress(httpx2.HTTPError):
            await self._body.aclose()

    async def receive(self) -> bytes:
        """Return the body bytes of the next socket read; b"" at the end. Raises UpstreamTimeout, UpstreamBroken.

        After an error the response is closed: leave the `async with` block.
        """
        try:
            if self._frames is not None:
                return await self._receive_events(self._frames)
            if self._decoder is None:
                return await self._body.receive()
            return await self._receive_decoded(self._decoder)
        except httpx2.HTTPError as error:
            raise _failure(error, self._where, direct=isinstance(self._body, ResponseBody)) from None
        except CodingError as error:
            raise UpstreamBroken(f"{self._where}: {error}") from None

    async def receive_each(self, take: Take) -> None:
        """Pass the body bytes of each read to `take`, as they arrive, until it returns false. See ByteStream.

        Whenever it returns, call receive() next: it goes on, or reports the end or an error. Raises what that raises.
        Nothing is passed of a body that is decoded, or through a proxy.
        """
        if self._decoder is None and self._frames is None and isinstance(self._body, ResponseBody):
            try:
                await self._body.receive_each(take)
            except httpx2.HTTPError as error:
                raise _failure(error, self._where, direct=True) from None

    async def _receive_events(self, frames: FrameDecoder) -> bytes:
        decoder = self._decoder
        while frames.error is None:
            data = await (self._body.receive() if decoder is None else self._receive_decoded(decoder))
            events = await off_loop(frames.held_bytes + len(data), frames.receive_data, data)
            if events or not data:
                return events
        raise UpstreamBroken(f"{self._where}: {frames.error}")

    async def _receive_decoded(self, decoder: ContentDecoder) -> bytes:
        while True:
            portion = decoder.next_portion()
            if portion is not None:
                # A few kilobytes may unpack to many megabytes; other tasks run in between.
                await anyio.lowlevel.checkpoint()
                if portion:
                    return portion
                continue
            data = await self._body.receive()
            if not data:
                decoder.receive_eof()
                return b""
            decoder.receive_data(data)

    async def read_all(self, limit: int) -> bytes:
        """Return the whole body. Raises UpstreamTooLarge above `limit` bytes, and what receive() raises."""
        return await read_bounded(self.receive, limit, self._where)


async def read_bounded(receive: Callable[[], Awaitable[bytes]], limit: int, where: str) -> bytes:
    """Call `receive` until it returns b"", and join the bytes. Raises UpstreamTooLarge above `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while data := await receive():
        size += len(data)
        if size > limit:
            raise UpstreamTooLarge(f"{where}: the response body is larger than {limit} bytes")
        parts.append(data)
    return b"".join(parts)


class UpstreamClient(BackgroundTaskGroup):
    """Sends requests. An async context manager: the connections live as long as its block.

    Inside of a block of running(), idle ones are closed when their time is over, and not only before the next request.

    HTTPS_PROXY and the like, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR of the environment are used.

    tls: instead of the system's trust store.
    transport: instead of direct connections; tests pass `httpx2.MockTransport` or a fake.
    expects_tls, expects_proxies: load what such requests need at the start, and not for the first of them: the trust
        store, and httpx2's transport.
    """

    _direct: Transport | None = None

    def __init__(
        self,
        *,
        limits: PoolLimits | None = None,
        tls: ssl.SSLContext | None = None,
        transport: Transport | None = None,
        expects_tls: bool = True,
        expects_proxies: bool = False,
    ) -> None:
        self._limits = limits or PoolLimits()
        self._tls = tls
        self._replacement = transport
        self._expects_tls = expects_tls
        self._expects_proxies = expects_proxies
        self._proxied: dict[str, httpx2.AsyncBaseTransport] = {}
        self._env_proxies: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        if self._replacement is None:
            self._env_proxies = urllib.request.getproxies()
            if self._tls is None and (self._expects_proxies or self._env_proxies):
                self._tls = httpx2.create_ssl_context()  # which imports its transport
            elif self._tls is None and self._expects_tls:
                self._tls = trusting_context()
        self._direct = self._replacement or Http1Transport(limits=self._limits, tls=self._tls)
        return self

    async def __aexit__(self, *exc: object) -> None:
        transports = [*self._proxied.values(), *([self._direct] if self._direct is not None else [])]
        self._direct = None
        self._proxied = {}
        with anyio.move_on_after(CLOSE_S, shield=True):
            for transport in transports:
                await transport.aclose()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            if isinstance(self._direct, Http1Transport):
                assert self._tasks is not None
                self._tasks.start_soon(self._direct.close_expired)
            yield

    async def keep_only(self, urls: Iterable[str], proxies: Collection[str]) -> None:
        """Close connections that nothing uses: idle ones to servers of other URLs, and all by other proxies.

        proxies: named by callers; the environment's stay.
        """
        kept = {*proxies, *self._env_proxies.values()}
        closing = [self._proxied.pop(proxy) for proxy in list(self._proxied) if proxy not in kept]
        origins = set()
        for url in urls:
            with suppress(UpstreamRequestInvalid):  # of which there are no connections
                origins.add(_request_url(url)[0].origin)
        if isinstance(self._direct, Http1Transport):
            self._direct.keep_only(origins)
        with anyio.move_on_after(CLOSE_S, shield=True):
            for transport in closing:
                with suppress(httpx2.HTTPError):
                    await transport.aclose()

    def open(
        self,
        call: UpstreamCall,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> UpstreamResponse:
        """`async with client.open(...) as response`: send on entry, yield an UpstreamResponse, close on exit.

        Headers of the connection, of the body's framing and accept-encoding are replaced by the client's.

        proxy: instead of the environment's.

        A redirect is a response like any other. Leaving the block before the end of the body closes the connection.

        Raises UpstreamRequestInvalid here, and on entry UpstreamUnreachable, UpstreamTimeout, UpstreamBroken.
        """
        limits = timeouts or UpstreamTimeouts()
        request_url, host = _request_url(call.url)
        content = call.content or b""
        length = [(b"Content-Length", b"%d" % len(content))] if content or call.method == "POST" else []
        request = Http1Request(
            call.method,
            request_url,
            [(b"Host", host), *_encoded(call.headers), (b"accept-encoding", b"identity"), *length],
            content,
            {
                "connect": limits.connect_s,
                "read": limits.read_s,
                "write": limits.write_s,
                "pool": limits.pool_s,
            },
        )
        return UpstreamResponse(self, request, call.framing, proxy)

    def _transport_for(self, proxy: str | None, where: str) -> Transport:
        if self._direct is None:
            raise RuntimeError("the upstream client is used outside its `async with` block")
        if proxy is None:
            return self._direct
        if proxy not in self._proxied:
            try:
                self._proxied[proxy] = self._proxy_transport(proxy)
            except ImportError:
                raise UpstreamUnreachable(
                    f"{where}: a SOCKS proxy needs the extra socks of Dragoman, see `dragoman doctor`"
                ) from None
            except (ValueError, httpx2.InvalidURL):
                raise UpstreamUnreachable(f"{where}: the proxy's URL cannot be used") from None
        return self._proxied[proxy]

    def _proxy_transport(self, proxy: str) -> httpx2.AsyncBaseTransport:
        limits = self._limits
        return httpx2.AsyncHTTPTransport(
            verify=self._tls if self._tls is not None else True,
            limits=httpx2.Limits(
                max_connections=limits.connections,
                max_keepalive_connections=limits.idle_connections,
                keepalive_expiry=limits.idle_s,
            ),
            proxy=proxy,
        )


# A gateway sends to a few URLs over and over, and parsing one costs as much as writing a request head.
@lru_cache(maxsize=256)
def _parse_url(url: str) -> httpx2.URL:
    return httpx2.URL(url)


@lru_cache(maxsize=256)
def _request_url(url: str) -> tuple[RequestURL, bytes]:
    """Return the URL of a request, and its Host header. Raises UpstreamRequestInvalid."""
    try:
        parsed = _parse_url(url)
    except httpx2.InvalidURL:
        raise UpstreamRequestInvalid("the upstream's URL is not valid") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 1) < 65536:
        raise UpstreamRequestInvalid("the upstream's URL needs http:// or https://, a host and a valid port")
    return RequestURL.of(parsed), parsed.netloc


def _as_httpx2(request: Http1Request) -> httpx2.Request:
    method, url, headers, content, timeouts = request
    return httpx2.Request(
        method, url.parsed, headers=headers, content=content, extensions={"timeout": timeouts}
    )


def origin_of(url: str) -> tuple[str, str]:
    """Return the origin of a URL, as errors name it, and its host; both are empty if the URL is not valid."""
    try:
        parsed = _parse_url(url)
    except httpx2.InvalidURL:
        return "", ""
    return _origin(parsed), parsed.host


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL, with its credentials; None for a direct connection."""
    return _env_proxy(_parse_url(url), urllib.request.getproxies())


def _env_proxy(url: httpx2.URL, proxies: Mapping[str, str]) -> str | None:
    if not proxies:
        return None
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(url.netloc.decode("ascii")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    encoded = []
    for name, value in headers:
        if name.lower() in _CONNECTION_HEADERS:
            continue
        try:
            encoded.append((name.encode("ascii"), value.encode("latin-1")))
        except UnicodeEncodeError:
            raise UpstreamRequestInvalid(
                f"header {ascii(name)[:80]} has characters that HTTP/1.1 does not allow"
            ) from None
    return encoded
