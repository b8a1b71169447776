"""Direct connections to upstreams: HTTP/1.1 over plain TCP or TLS, made for streams of small events.

One read of the socket becomes one `bytes` object for the consumer, whatever the chunks were, with no generator and no
timer in between: `ResponseBody.receive`. httpx2's requests and responses are not used, because they check and copy all
headers.

A request is sent once; only the caller may send it again, see `UpstreamIdleClosed`. A response has a lease of the
connection pool, which ends without waiting when the last body byte has been read, the response is closed, or anything
fails, cancellation included.
"""

import os
import socket
import ssl
import sys
from collections.abc import Callable

import anyio
import anyio.lowlevel
import msgspec

from dragoman_server.hosts import StreamedContent
from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.streams.byte_stream import ByteStream, Take
from dragoman_server.streams.connect import connect, is_of_machine, open_byte_stream
from dragoman_server.streams.http1_body import BodyDecoder, FramingError
from dragoman_server.upstream import errors
from dragoman_server.upstream.http1 import Http1Exchange, ResponseHead, chunk
from dragoman_server.upstream.pool import ConnectionLease, ConnectionPool, Origin, PoolLimits
from dragoman_server.upstream.urls import URL

_DEFAULT_PORTS = {"http": 80, "https": 443}
# A body up to this size is written together with the head. asyncio's TLS takes as much in one write before it can tell
# that the peer does not read.
_JOIN_LIMIT = 128 * 1024
# While the rest of a larger body waits for the server to read, its response is read.
_SMALL_BODY = 64 * 1024
# Bytes of a body that are handled before other tasks run. One read may return 256 KiB, which may be 36,000 empty events
# or chunks of one byte: 30 ms of work, an eighth of that in one turn.
_TURN_BYTES = 32 * 1024
# A reused connection that ends within this time after the request was written was closed before the request arrived:
# the FIN or RST comes back after one round trip, which is shorter anywhere on earth. After a longer silence the server
# may have processed the request.
_RACE_S = 0.5


class UpstreamTimeouts(msgspec.Struct, frozen=True):
    """Seconds; None waits without limit.

    Attributes:
        read_s: The longest silence while waiting for the response or reading it; also for the whole head.
        write_s: The longest wait for the server to read more of the request.
    """

    connect_s: float | None = 10.0
    read_s: float | None = 300.0
    write_s: float | None = 30.0
    pool_s: float | None = 10.0


class RequestURL(msgspec.Struct, frozen=True):
    """A URL and what follows from it.

    Attributes:
        target: Path and query.
        host: The value of the Host header.
        where: The name of the server in errors.
    """

    parsed: URL
    origin: Origin
    target: bytes
    host: bytes
    where: str

    @classmethod
    def of(cls, url: URL) -> "RequestURL":
        origin = Origin(url.scheme, url.raw_host.decode("ascii"), url.port or _DEFAULT_PORTS[url.scheme])
        return cls(url, origin, url.raw_path, url.netloc, f"{url.scheme}://{url.netloc.decode('ascii')}")


class Http1Request(msgspec.Struct, frozen=True):
    """A request. head: from request_head()."""

    method: str
    url: RequestURL
    head: bytes
    content: bytes | StreamedContent
    timeouts: UpstreamTimeouts


def trusting_context() -> ssl.SSLContext:
    """Return a context that trusts what httpx2.create_ssl_context() does.

    In most cases without its imports, which take 50 ms and 5 MiB: httpcore2 loads trio.
    """
    # By the rules of httpcore2 2.16, _ssl.py.
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    paths = ssl.get_default_verify_paths()
    if sys.platform != "linux" or not os.path.isfile(paths.openssl_cafile):
        import httpx2

        return httpx2.create_ssl_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(
        paths.openssl_cafile, paths.openssl_capath if os.path.isdir(paths.openssl_capath) else None
    )
    return context


class ResponseBody:
    """The bytes of a response's body, in the portions in which they arrive; large ones are split.

    One task at a time may read. aclose() may be called at any time: in the middle of a body it closes the connection at
    once.
    """

    __slots__ = (
        *("_decoder", "_first", "_keep_alive", "_lease"),
        *("_read_timeout", "_stream", "_take", "_unread", "_where"),
    )

    def __init__(
        self,
        head: ResponseHead,
        stream: ByteStream,
        lease: ConnectionLease,
        read_timeout: float | None,
        where: str,
    ) -> None:
        self._decoder: BodyDecoder = head.body
        self._keep_alive = head.keep_alive
        self._stream = stream
        self._lease = lease
        self._read_timeout = read_timeout
        self._where = where
        self._take: Take = bool  # that of receive_each(), which stands for none before
        turn = head.leftover
        self._unread: bytes | memoryview = b""
        if len(turn) > _TURN_BYTES:
            turn, self._unread = turn[:_TURN_BYTES], memoryview(turn)[_TURN_BYTES:]
        self._first = self._decoder.receive_data(turn) if turn else b""
        self._end_if_complete()

    @property
    def released(self) -> bool:
        """True if its connection serves other requests, or is closed."""
        return self._lease.released

    async def receive(self) -> bytes:
        """Return the next body bytes; b"" only at the end, and at each call after that.

        Raises UpstreamTimeout, and UpstreamBroken if the connection breaks, or if the bytes are not HTTP/1.1 or end too
        early. After any of them the connection is closed.
        """
        if self._first:
            data, self._first = self._first, b""
            return data
        decoder = self._decoder
        try:
            while not decoder.complete:
                if decoder.error is not None:
                    raise errors.UpstreamBroken(f"{self._where}: {decoder.error}")
                coded = await self._receive_coded()
                if coded:
                    data = decoder.receive_data(coded)
                else:
                    data = b""
                    decoder.receive_eof()
                self._end_if_complete()
                if data:
                    return data
            return b""
        except BaseException as error:
            self._fail(error)
            raise

    async def receive_each(self, take: Take) -> None:
        """Pass the body bytes of each read to `take`, as they arrive, until it returns false.

        Return at the end of the body, and for what only receive() does; call that next, in any case. Raises the same.
        """
        decoder = self._decoder
        if self._first or self._unread or decoder.complete or decoder.error is not None:
            return
        self._take = take
        try:
            await self._stream.receive_each(self._take_coded, self._read_timeout)
        except BaseException as error:
            self._fail(error)
            raise
        # Not in _take_coded(): another request would have the connection while this task still reads it.
        self._end_if_complete()

    def _take_coded(self, coded: bytes) -> bool:
        if len(coded) > _TURN_BYTES:
            self._unread = memoryview(coded)
            return False
        decoder = self._decoder
        data = decoder.receive_data(coded)
        return (not data or self._take(data)) and not decoder.complete and decoder.error is None

    def _fail(self, error: BaseException) -> None:
        """Close the connection. Raise an UpstreamError for a timeout or OSError; the caller raises others again."""
        self._lease.release(keep=False)
        if isinstance(error, TimeoutError):
            late = f"{self._where} sent nothing for {self._read_timeout} s inside the body"
            raise errors.UpstreamTimeout(late, errors.UpstreamTimeoutPhase.READ) from None
        if isinstance(error, OSError):
            raise errors.UpstreamBroken(f"{self._where}: reading the body failed: {_reason(error)}") from None

    async def _receive_coded(self) -> bytes:
        """Receive at most _TURN_BYTES, and let other tasks run before the rest of a larger read."""
        if self._unread:
            await anyio.lowlevel.checkpoint()
        else:
            data = await self._stream.receive(self._read_timeout)
            if len(data) <= _TURN_BYTES:
                return data
            self._unread = memoryview(data)
        turn, self._unread = self._unread[:_TURN_BYTES], self._unread[_TURN_BYTES:] or b""
        return bytes(turn)

    async def aclose(self) -> None:
        """Close the body, and its connection unless the body has been read to the end."""
        self._lease.release(keep=False)
        # The event loop closes the socket in its next iteration: let it run, even if this task is cancelled.
        await anyio.lowlevel.cancel_shielded_checkpoint()

    def _end_if_complete(self) -> None:
        # Bytes after the body belong to no request, so such a connection is not used again.
        if self._decoder.complete:
            self._lease.release(keep=self._keep_alive and not self._decoder.unused and not self._unread)


class Http1Transport:
    """Sends requests; see the module's docstring. Create it inside of the event loop that uses it.

    Args:
        tls: the context for https, by default from trusting_context(). Its ALPN list is changed.

    Attributes:
        pool: Its connections.
    """

    def __init__(self, *, limits: PoolLimits | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.pool = ConnectionPool(limits or PoolLimits())
        self._tls = tls

    async def aclose(self) -> None:
        self.pool.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()

    async def send(self, request: Http1Request) -> tuple[int, list[tuple[str, str]], ResponseBody]:
        """Send a request. Return the response's status, its headers with lower-case names, and the unread body.

        Raises UpstreamError.
        """
        url, timeouts = request.url, request.timeouts
        try:
            lease = await self.pool.lease(url.origin, timeouts.pool_s)
        except TimeoutError:
            full = f"{url.where}: no free connection within {timeouts.pool_s} s: all are in use"
            raise errors.UpstreamTimeout(full, errors.UpstreamTimeoutPhase.POOL) from None
        try:
            # A body that is sent while it arrives cannot be sent again, should the idle connection be closed.
            stream = lease.reuse() if isinstance(request.content, bytes) else None
            race_s = 0.0 if stream is None else _RACE_S
            if stream is None:
                stream = lease.stream = await self._connect(request)
            exchange = Http1Exchange(request.method)
            head, write_error = await _send(request, stream, exchange)
            is_in_step = head is None and write_error is None
            if head is None:
                head = await _read_head(request, exchange, stream, self.pool.time, write_error, race_s)
            if not is_in_step:
                head = msgspec.structs.replace(head, keep_alive=False)
            body = ResponseBody(head, stream, lease, timeouts.read_s, url.where)
            return head.status, head.headers, body
        except BaseException as error:
            if isinstance(error, errors.UpstreamIdleClosed):
                # The other idle connections are older, and probably closed as well.
                self.pool.drop_idle(url.origin)
            if lease.stream is not None:
                lease.stream.drop_unsent()
            lease.release(keep=False)
            raise

    async def _connect(self, request: Http1Request) -> ByteStream:
        origin, where, timeout_s = request.url.origin, request.url.where, request.timeouts.connect_s
        try:
            with anyio.fail_after(timeout_s):
                tls = self._tls_context() if origin.scheme == "https" else None
                sock = await connect(origin.host, origin.port)
                return await open_byte_stream(sock, tls, origin.host)
        except TimeoutError:
            late = f"cannot connect to {where}: no response within {timeout_s} s"
            raise errors.UpstreamTimeout(late, errors.UpstreamTimeoutPhase.CONNECT) from None
        except OSError as error:
            failed = errors.GatewayExhausted if is_of_machine(error) else errors.UpstreamUnreachable
            raise failed(f"cannot connect to {where}: {_reason(error)}") from None

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = trusting_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


async def _send(
    request: Http1Request, stream: ByteStream, exchange: Http1Exchange
) -> tuple[ResponseHead | None, str | None]:
    """Send the request. Return the head of the response if that has come meanwhile, and why sending has failed."""
    where, timeout = request.url.where, request.timeouts.write_s
    early, head, content = None, request.head, request.content
    write_error: str | None = None  # as text: the traceback of an exception refers to this frame
    try:
        rest: bytes | memoryview | StreamedContent | None
        if isinstance(content, bytes) and len(content) <= _JOIN_LIMIT:
            rest = stream.send_now(head + content)
            if rest is not None and len(content) <= _SMALL_BODY:
                await stream.send_all(rest, timeout)
                rest = None
        else:
            await stream.send_all(head, timeout)
            rest = content
        if rest is not None:
            early = _EarlyResponse(exchange)
            await early.read_while_sending(stream, rest, timeout)
    except FramingError as error:
        raise errors.UpstreamBroken(f"{where}: {error}") from None
    except TimeoutError:
        late = f"{where} did not read the request within {timeout} s"
        raise errors.UpstreamTimeout(late, errors.UpstreamTimeoutPhase.WRITE) from None
    except OSError as error:
        # A server may refuse a request without reading all of it: there may be a response.
        write_error = _reason(error)
    return None if early is None else early.head, write_error


class _EarlyResponse:
    """The response of a server that does not wait for the whole request. head: None if it is not complete."""

    def __init__(self, exchange: Http1Exchange) -> None:
        self.head: ResponseHead | None = None
        self._exchange = exchange
        self._broken: FramingError | None = None

    async def read_while_sending(
        self, stream: ByteStream, content: bytes | memoryview | StreamedContent, timeout: float | None
    ) -> None:
        """Send the body until it is sent, or refused: the server need not read a request that it refuses.

        "A client sending a message body SHOULD monitor the network connection for an error response while it is
        transmitting the request" -- RFC 9112, 9.5. Raises OSError, FramingError of the response, and what the content
        raises.
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(return_if_cancelled, self._read, stream, tasks.cancel_scope)
            try:
                if isinstance(content, (bytes, memoryview)):
                    await stream.send_all(content, timeout)
                else:
                    await _send_pieces(stream, content, timeout)
            except (OSError, errors.UpstreamError) as error:
                failure = error
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()  # see return_if_cancelled()
        failure = self._broken or failure
        try:
            if failure is not None and self.head is None:
                raise failure
        finally:
            self._broken = failure = None  # reference cycles: its traceback has this frame

    async def _read(self, stream: ByteStream, sending: anyio.CancelScope) -> None:
        try:
            while self.head is None and (data := await stream.receive(None)):
                self.head = self._exchange.receive_data(data)
        except FramingError as error:
            self._broken = error.with_traceback(None)
        except OSError:
            return  # the next read raises it again
        if self._broken is not None or (self.head is not None and self.head.status >= 300):
            sending.cancel()


async def _send_pieces(stream: ByteStream, content: StreamedContent, timeout: float | None) -> None:
    while data := await content.receive():
        await stream.send_all(data if content.length is not None else chunk(data), timeout)
    if content.length is None:
        await stream.send_all(chunk(b""), timeout)


async def _read_head(
    request: Http1Request,
    exchange: Http1Exchange,
    stream: ByteStream,
    time: Callable[[], float],
    write_error: str | None,
    race_s: float,
) -> ResponseHead:
    """Read the head, within one deadline for all of it, so that single bytes do not extend the wait.

    time: the event loop's. Raises UpstreamIdleClosed if the connection ends before the first byte, less than race_s
    after the request was written.
    """
    where, left = request.url.where, request.timeouts.read_s
    since = written = time()
    while True:
        read_error, interim = None, exchange.interim_responses
        try:
            data = await stream.receive(left)
        except TimeoutError:
            late = f"{where} sent no response head within {request.timeouts.read_s} s"
            raise errors.UpstreamTimeout(late, errors.UpstreamTimeoutPhase.READ) from None
        except OSError as error:
            data, read_error = b"", _reason(error)
        if not data:
            if not exchange.received and time() - written < race_s:
                raise errors.UpstreamIdleClosed(f"{where}: the idle connection was closed")
            raise _ended(where, exchange.received > 0, write_error, read_error)
        try:
            head = exchange.receive_data(data)
        except FramingError as error:
            raise errors.UpstreamBroken(f"{where}: {error}") from None
        if head is not None:
            return head
        if exchange.interim_responses > interim:
            since = time()
        if request.timeouts.read_s is not None:
            left = max(0.0, since + request.timeouts.read_s - time())


def _ended(
    where: str, received: bool, write_error: str | None, read_error: str | None
) -> errors.UpstreamError:
    """Return the error for a connection that ended before the response head was complete."""
    if received and read_error is not None:
        return errors.UpstreamBroken(f"{where}: reading the response head failed: {read_error}")
    if received:
        return errors.UpstreamBroken(f"{where} closed the connection inside the response head")
    if write_error is not None:
        return errors.UpstreamBroken(f"{where}: sending failed: {write_error}")
    if read_error is not None:
        return errors.UpstreamBroken(f"{where}: no response: {read_error}")
    return errors.UpstreamBroken(f"{where} closed the connection without a response")


def _reason(error: OSError) -> str:
    # The two event loops have different texts for one errno; resolver and TLS errors have their own numbers.
    if error.errno is None or isinstance(error, (ssl.SSLError, socket.gaierror)):
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
