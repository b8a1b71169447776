"""Send requests to upstreams: the only use of an HTTP client in the gateway.

`UpstreamClient` lives as long as the application. `client.open(...)` is one request, and yields a status, headers and
the body bytes as they arrive. Every failure is an `UpstreamError` of `errors`, whose text may be sent to a client: it
names the host, never a header, a path or a query, because those may contain keys.

Direct connections use `transport`, those by a proxy httpx2's own, in `httpx2_transport`. That is called without
httpx2's client: a gateway must not keep the cookies of one account's response for the next one's request, follow
redirects to hosts that are not configured, or log URLs.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel

from dragoman.codec import SSE, Framing
from dragoman.sse import FrameDecoder
from dragoman_server.hosts import UpstreamCall
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.streams.byte_stream import Take
from dragoman_server.streams.connect import load_client_certificate
from dragoman_server.upstream import errors
from dragoman_server.upstream.content_coding import CodingError, ContentDecoder, decoder_for
from dragoman_server.upstream.http1 import RequestError, request_head
from dragoman_server.upstream.pool import PoolLimits
from dragoman_server.upstream.transport import (
    Http1Request,
    Http1Transport,
    RequestURL,
    ResponseBody,
    UpstreamTimeouts,
    trusting_context,
)
from dragoman_server.upstream.urls import URL, environment_proxies, parse_url
from dragoman_server.wire.headers import media_type

if TYPE_CHECKING:
    # Imported for the first request by a proxy.
    import httpx2

    from dragoman_server.upstream.httpx2_transport import Httpx2Body, Httpx2Transport

    Transport = Http1Transport | Httpx2Transport

# Seconds that closing a response may take. On our transport it takes none, on httpx2's there may be a TLS handshake.
CLOSE_S = 2.0

# How many times its size a compressed response may unpack to. Streams repeat their envelopes with each token, and
# reach 60.
_MAX_RATIO = 200


class UpstreamResponse:
    """One request, sent when its `async with` block is entered, and its response, whose body is read by one task.

    A class, because the frame of a generator would refer to the response.

    Attributes:
        headers: Pairs with lower-case names, in the order of arrival. A compressed body is decoded, so content-encoding
            and content-length, which describe the compressed form, are removed. A stream in the framing of the call
            becomes server-sent events, and content-type says that. Empty once receive_each() was called, because some
            servers send thirty, and a stream may stay open for hours.
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
        self._body: ResponseBody | Httpx2Body
        self.status: int
        self.headers: list[tuple[str, str]]

    def __repr__(self) -> str:
        return f"<UpstreamResponse {self.status} from {self._where}>"

    async def __aenter__(self) -> Self:
        proxy, of_environment = self._proxy, self._client._env_proxies
        if proxy is None and of_environment:
            proxy = _env_proxy(self._request.url.parsed, of_environment)
        transport = self._client._direct if proxy is None else self._client._transport_by(proxy, self._where)
        if transport is None:
            raise RuntimeError(
                "the upstream client is not open: enter it, or the lifespan() of the application that has it"
            )
        self.status, headers, self._body = await transport.send(self._request)
        if codings := [value for name, value in headers if name == "content-encoding"]:
            try:
                self._decoder = decoder_for(",".join(codings), ratio=_MAX_RATIO)
            except CodingError as error:
                await self.__aexit__()
                raise errors.UpstreamBroken(f"{self._where}: {error}") from None
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
        if self._body.released:
            return
        # The response has been used or abandoned, so an error at its end does not matter.
        with anyio.move_on_after(CLOSE_S, shield=True), suppress(errors.UpstreamError):
            await self._body.aclose()

    @property
    def ended(self) -> bool:
        """True if it is known that nothing more is to be received."""
        return self._body.released and self._decoder is None and self._frames is None

    def receive(self) -> Awaitable[bytes]:
        """Return, when awaited, the body bytes of the next socket read; b"" at the end.

        Raises UpstreamTimeout, UpstreamBroken. After an error the response is closed: leave the `async with` block.
        """
        if self._frames is not None:
            return self._receive_events(self._frames)
        return self._body.receive() if self._decoder is None else self._receive_decoded(self._decoder)

    def receive_each(self, take: Take) -> Awaitable[None]:
        """Pass the body bytes of each read to `take`, as they arrive, until it returns false. See ByteStream.

        Whenever it returns, call receive() next: it goes on, or reports the end or an error. Raises what that raises.
        Nothing is passed of a body that is decoded, or through a proxy.
        """
        self.headers = []
        if self._decoder is None and self._frames is None:
            return self._body.receive_each(take)
        return anyio.lowlevel.checkpoint_if_cancelled()

    async def _receive_events(self, frames: FrameDecoder) -> bytes:
        decoder = self._decoder
        while frames.error is None:
            data = await (self._body.receive() if decoder is None else self._receive_decoded(decoder))
            events = await off_loop(frames.held_bytes + len(data), frames.receive_data, data)
            if events or not data:
                return events
        raise errors.UpstreamBroken(f"{self._where}: {frames.error}")

    async def _receive_decoded(self, decoder: ContentDecoder) -> bytes:
        try:
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
        except CodingError as error:
            raise errors.UpstreamBroken(f"{self._where}: {error}") from None

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
            raise errors.UpstreamTooLarge(f"{where}: the response body is larger than {limit} bytes")
        parts.append(data)
    return b"".join(parts)


class UpstreamClient(BackgroundTaskGroup):
    """Sends requests. An async context manager: the connections live as long as its block.

    Inside of a block of running(), idle ones are closed when their time is over, and not only before the next request.

    HTTPS_PROXY and the like, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR of the environment are used.

    Args:
        transport: instead of direct connections with the system's trust store; tests pass `httpx2.MockTransport` or a
            fake.
        expects_tls, expects_proxies: load what such requests need at the start, and not for the first of them: the
            trust store, and httpx2's transport.
        certfile: a client certificate, which is shown to servers that ask for one.
    """

    _certfile: str | None = None
    _direct: "Transport | None" = None

    def __init__(
        self,
        *,
        transport: "Http1Transport | httpx2.AsyncBaseTransport | None" = None,
        expects_tls: bool = True,
        expects_proxies: bool = False,
        certfile: str | None = None,
    ) -> None:
        self._tls: ssl.SSLContext | None = None
        self._replacement: Transport | None
        if transport is None or isinstance(transport, Http1Transport):
            self._replacement = transport
        else:
            from dragoman_server.upstream.httpx2_transport import Httpx2Transport

            self._replacement = Httpx2Transport(transport)
        self._certfile = certfile
        self._expects_tls = expects_tls or certfile is not None
        self._expects_proxies = expects_proxies
        self._proxied: dict[str, Httpx2Transport] = {}
        self._env_proxies: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        if self._replacement is None:
            self._env_proxies = environment_proxies()
            if self._expects_proxies or self._env_proxies:
                import httpx2

                self._tls = httpx2.create_ssl_context()  # which imports its transport
            elif self._expects_tls:
                self._tls = trusting_context()
            self.load_certificate()
        self._direct = self._replacement or Http1Transport(tls=self._tls)
        return self

    async def __aexit__(self, *exc: object) -> None:
        transports = [*self._proxied.values(), *([self._direct] if self._direct is not None else [])]
        self._direct = None
        self._proxied = {}
        with anyio.move_on_after(CLOSE_S, shield=True):
            for transport in transports:
                await transport.aclose()

    def load_certificate(self) -> None:
        """Read the file of the client certificate again."""
        if self._certfile is not None and self._tls is not None:
            load_client_certificate(self._tls, self._certfile)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            if isinstance(self._direct, Http1Transport):
                self.tasks.start_soon(self._direct.pool.close_expired)
            yield

    async def keep_only(self, urls: Iterable[str], proxies: Collection[str]) -> None:
        """Close connections that nothing uses: idle ones to servers of other URLs, and all by other proxies.

        proxies: named by callers; the environment's stay.
        """
        kept = {*proxies, *self._env_proxies.values()}
        closing = [self._proxied.pop(proxy) for proxy in list(self._proxied) if proxy not in kept]
        origins = set()
        for url in urls:
            with suppress(errors.UpstreamRequestInvalid):  # of which there are no connections
                origins.add(_request_url(url).origin)
        if isinstance(self._direct, Http1Transport):
            self._direct.pool.keep_only(origins)
        with anyio.move_on_after(CLOSE_S, shield=True):
            for transport in closing:
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
        method, url, content = call.method, _request_url(call.url), call.content or b""
        length = len(content) if isinstance(content, bytes) else content.length
        try:
            head = request_head(method, url.target, url.host, call.headers, length)
        except RequestError as error:
            raise errors.UpstreamRequestInvalid(f"{url.where}: {error}") from None
        request = Http1Request(method, url, head, content, timeouts or UpstreamTimeouts())
        return UpstreamResponse(self, request, call.framing, proxy)

    def _transport_by(self, proxy: str, where: str) -> "Transport | None":
        if self._direct is not None and proxy not in self._proxied:
            try:
                self._proxied[proxy] = self._proxy_transport(proxy)
            except ImportError:
                raise errors.UpstreamUnreachable(
                    f"{where}: a SOCKS proxy needs the extra socks of Dragoman, see `dragoman doctor`"
                ) from None
            except ValueError:
                raise errors.UpstreamUnreachable(f"{where}: the proxy's URL cannot be used") from None
        return self._proxied.get(proxy)

    def _proxy_transport(self, proxy: str) -> "Httpx2Transport":
        import httpx2

        from dragoman_server.upstream.httpx2_transport import Httpx2Transport

        limits = PoolLimits()
        try:
            httpx2.URL(proxy)
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None
        transport = httpx2.AsyncHTTPTransport(
            verify=self._tls if self._tls is not None else True,
            limits=httpx2.Limits(
                max_connections=limits.connections,
                max_keepalive_connections=limits.idle_connections,
                keepalive_expiry=limits.idle_s,
            ),
            proxy=proxy,
        )
        return Httpx2Transport(transport, proxied=True)


@lru_cache(maxsize=256)
def _request_url(url: str) -> RequestURL:
    """Return the URL of a request. Raises UpstreamRequestInvalid."""
    try:
        parsed = parse_url(url)
    except ValueError:
        raise errors.UpstreamRequestInvalid("the upstream's URL is not valid") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 1) < 65536:
        raise errors.UpstreamRequestInvalid(
            "the upstream's URL needs http:// or https://, a host and a valid port"
        )
    return RequestURL.of(parsed)


def origin_of(url: str) -> tuple[str, str]:
    """Return the origin of a URL, as errors name it, and its host; both are empty if the URL is not valid."""
    try:
        parsed = parse_url(url)
    except ValueError:
        return "", ""
    return _origin(parsed), parsed.host


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL, with its credentials; None for a direct connection."""
    return _env_proxy(parse_url(url), environment_proxies())


def _env_proxy(url: URL, proxies: Mapping[str, str]) -> str | None:
    if not proxies:
        return None
    import urllib.request

    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(url.netloc.decode("ascii")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _origin(url: URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"
