"""The interface of a connected byte stream, on either event loop.

anyio's stream pauses and resumes the socket around every read on asyncio, which takes a sixth of the gateway's CPU time
if tokens arrive one by one. So there are two small streams behind one Protocol: `asyncio_stream` uses the loop's
protocol callbacks, `trio_stream` the readiness of the socket. `connect` opens streams to upstreams, `serving` has the
streams of clients.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

# Passes a piece of a response's body to the client's connection and returns true, if that is possible without waiting.
# False: nothing was passed. For the pieces, also empty ones, between the first and the last one of a response, which go
# through `send`.
WriteNow: TypeAlias = Callable[[bytes], bool]
# Calls a function where the "http.disconnect" of a client that leaves arrives, so no task has to wait for it. If it has
# arrived already, it calls it immediately and returns true. None: there is nothing more to call.
OnDisconnect: TypeAlias = Callable[[Callable[[], None] | None], bool]
# The ASGI extension of our server: its member "write" is a WriteNow, "on_disconnect" an OnDisconnect, "receive" a
# function that returns what `receive` would return without waiting, else None, "rest" a function that returns a scope
# for what is done last for a request (RestOfTask), and "time" the clock of the event loop. For a WebSocket its member
# "send" takes texts, as UTF-8, and is to them what WriteNow is to pieces of a body.
NOW = "dragoman.now"

# Its extensions for WebSockets. The method wait() of the first returns when a stop has begun: the application then ends
# what it does and closes with 1012, and what is still open when the stop cancels requests is closed with that code.
DRAINING = "dragoman.draining"
# Texts are UTF-8 in both directions, if the application accepts with a true `utf8`. Then `text` is bytes, which were
# checked, and nobody has to make a str of megabytes.
UTF8 = "dragoman.utf8"

# Takes bytes and returns true if it can take more. It may not wait.
Take: TypeAlias = Callable[[bytes], bool]


class ByteStream(Protocol):
    """One connected stream. At most one task reads at a time, and one writes.

    Timeouts are in seconds; None waits without limit. receive() and send_all() raise TimeoutError, or another OSError
    if the connection breaks, and both can be cancelled.
    """

    async def receive(self, timeout: float | None) -> bytes:
        """Return what has arrived, waiting until something has; b"" if the peer has closed."""

    def receive_each(self, take: Take, timeout: float | None) -> Awaitable[None]:
        """Pass the bytes of each read to `take`, as they arrive, until it returns false or the peer has closed.

        Await what it returns immediately. That costs less than a call of receive() for each: `take` is called where the
        bytes arrive, which may be a callback of the event loop. `timeout` limits each wait. What `take` raises is
        raised.
        """

    def interrupt(self) -> None:
        """Let receive() or receive_each() raise InterruptedError: where a task waits in it, else its next call."""

    async def peer_ended(self) -> None:
        """Wait until the peer has ended its side, or the connection is broken, without reading what it has sent.

        Only Linux can tell: elsewhere it waits until it is cancelled.
        """

    def send_now(self, data: bytes) -> bytes | memoryview | None:
        """Pass as much of `data` to the kernel as is possible without waiting. No other send may be under way.

        Return None if that was all, else the rest, which may be b"": call send_all() with it before anything else.
        Raises OSError.
        """

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        """Pass all of `data` to the kernel."""

    def is_reusable(self) -> bool:
        """True if an idle stream is still open and has received nothing, as it must be between two exchanges."""

    async def end(self, linger: float) -> None:
        """Close gracefully: send the buffered bytes and the end of the stream, wait for the peer's end, close.

        For at most `linger` seconds, what the peer still sends is dropped. Raises nothing.
        """

    def drop_unsent(self) -> None:
        """Let abort() also drop what the peer has not received yet: one that does not read never learns of an end that
        comes after that.
        """

    def abort(self) -> None:
        """Close now, without waiting, so that cleanup needs no await. It may be called again."""

    def alpn_protocol(self) -> str | None:
        """Return the application protocol that the TLS handshake has chosen, or None."""
