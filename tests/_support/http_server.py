"""A server on a loopback socket that plays byte scripts, one a connection, and notes what the client did."""

import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType

import anyio
import anyio.abc
from anyio.streams.tls import TLSListener

# A test that waits longer than this for the other side has failed.
TIMEOUT_S = 30.0


class Peer:
    """The server's side of one connection."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self.stream = stream
        self.requests: list[bytes] = []
        self.gone = anyio.Event()
        self._buffer = b""

    async def request(self) -> bytes:
        """Read one request, its body of content-length bytes too. Raises EndOfStream if the client left."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self._receive()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        while len(self._buffer) < length:
            self._buffer += await self._receive()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        self.requests.append(head + b"\r\n\r\n" + body)
        return self.requests[-1]

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            await self.stream.send(chunk)

    async def respond(self, *chunks: bytes) -> None:
        """Read a request, send the chunks."""
        await self.request()
        await self.send(*chunks)

    async def reset(self) -> None:
        """Close so that the client gets a reset instead of an orderly end."""
        raw = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def until_closed(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while True:
                await self._receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.gone.set()

    async def _receive(self) -> bytes:
        try:
            return await self.stream.receive()
        except anyio.BrokenResourceError:
            raise anyio.EndOfStream from None


Script = Callable[[Peer], Awaitable[None]]


def answering(*chunks: bytes, times: int = 1) -> Script:
    """A script: respond to so many requests with the same chunks, then wait for the client to leave."""

    async def script(peer: Peer) -> None:
        for _ in range(times):
            await peer.respond(*chunks)
        await peer.until_closed()

    return script


class ScriptedServer:
    """Plays the n-th script to the n-th connection. A connection too many is closed and counted."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self._scripts = scripts
        self._tls = tls
        self._tasks = anyio.create_task_group()
        self.peers: list[Peer] = []

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}/"

    async def __aenter__(self) -> "ScriptedServer":
        listener: anyio.abc.Listener[anyio.abc.ByteStream]
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=64)
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        if self._tls is not None:
            listener = TLSListener(listener, self._tls, standard_compatible=False)
        self._listener = listener
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._serve)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(exc_type, exc_value, traceback)

    async def _serve(self) -> None:
        async with self._listener:
            await self._listener.serve(self._play)

    async def _play(self, stream: anyio.abc.ByteStream) -> None:
        peer = Peer(stream)
        self.peers.append(peer)
        async with stream:
            if len(self.peers) <= len(self._scripts):
                try:
                    await self._scripts[len(self.peers) - 1](peer)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    peer.gone.set()


class DeafServer:
    """Takes connections, as the kernel does without being asked, and reads nothing."""

    def __enter__(self) -> "DeafServer":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def accept(self) -> socket.socket:
        """The first connection, once its client has sent something. Blocks, so call it in a thread."""
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_S)
        connection.recv(1, socket.MSG_PEEK)
        return connection


def read_to_the_end(connection: socket.socket) -> int:
    """How many bytes come until the client has closed. Blocks, so call it in a thread."""
    with connection:
        return sum(iter(lambda: len(connection.recv(1 << 20)), 0))
