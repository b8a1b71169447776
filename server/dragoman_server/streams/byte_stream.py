"""What a connected byte stream can do, on either event loop.

anyio's stream pauses and resumes the socket around every read on asyncio, which is a sixth of the gateway's
CPU when tokens arrive one by one. So there are two small streams of our own behind one Protocol: the loop's
own protocol callbacks on asyncio (`_asyncio_stream`), readiness of the socket on trio (`_trio_stream`).
`_connect` opens those to upstreams, `serving` those of clients.
"""

from typing import Protocol

__all__ = ["ByteStream", "SocketLike"]


class SocketLike(Protocol):
    def getsockopt(self, level: int, optname: int, /) -> int: ...

    def setsockopt(self, level: int, optname: int, value: int, /) -> None: ...


class ByteStream(Protocol):
    """One connected stream. One task reads at a time and one writes; timeouts are seconds, None is for
    ever.

    Both waits raise TimeoutError, or another OSError when the connection breaks, and both can be cancelled.
    """

    async def receive(self, timeout: float | None) -> bytes:
        """What has arrived, waiting until something has; b"" when the peer has closed."""

    def send_now(self, data: bytes) -> bytes | memoryview | None:
        """Hand as much of `data` to the kernel as is possible without waiting. No other send may be under way.

        Returns None if that was all, else what send_all() must be called with before anything else; it may be b"".
        Raises OSError.
        """

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        """Hand all of `data` to the kernel."""

    def is_reusable(self) -> bool:
        """Whether an idle stream is still open and silent, as it must be between two exchanges."""

    async def end(self, linger: float) -> None:
        """Close gracefully: send what is buffered and the end of the stream, wait for the peer's end, close.

        What the peer still sends is dropped, for at most `linger` seconds. Raises nothing.
        """

    def abort(self) -> None:
        """Close now. It waits for nothing, so cleanup needs no await; calling it again is harmless."""

    def alpn_protocol(self) -> str | None:
        """The application protocol that the TLS handshake chose, None without one."""

    def raw_socket(self) -> SocketLike:
        """The socket, to ask it for options and addresses."""
