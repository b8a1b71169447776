"""A request's body: read whole, unpacked, within limits of size and time.

Strategy: the limit counts bytes as they come and as they are after unpacking, each coding for itself, and holds
while they are unpacked, so a small body that grows to gigabytes stops early. Codings that cannot be read are refused by
name: to take them for JSON would blame the client for what it did not do wrong. A body that stops, or that is slower
than any network, is refused too, because it would keep its connection open for ever.
"""

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import anyio.lowlevel

from dragoman import RemoteProtocolError
from dragoman_server.upstream.content_coding import (
    CodingError,
    ContentDecoder,
    TooLarge,
    decoder_for,
)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Python reads no integer of thousands of digits, and no body has a length of twenty.
_LONGEST_LENGTH = 20

# A whole body may take `silence_s`, and a second for each 1024 bytes. GPRS is faster.
_SLOWEST_BYTES_PER_S = 1024


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete: nobody is there to answer."""


async def read_body(
    receive: Receive, content_encoding: str, content_length: str, limit: int, silence_s: float
) -> bytes:
    """Read the whole body of an ASGI request. silence_s: seconds for which the client may send nothing of it.

    Raises ClientDisconnected, and RemoteProtocolError with status 408 (too slow), 413 (too large), 415 (unknown coding)
    or 400 (the coding, or the body's framing, is broken).
    """
    try:
        decoder = decoder_for(content_encoding, limit)
    except CodingError as error:
        raise RemoteProtocolError(str(error), status=415) from None
    if content_length.isdecimal() and int(content_length[:_LONGEST_LENGTH]) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    received = 0
    deadline = latest = anyio.current_time() + silence_s
    # One scope for all messages: most bodies are there when they are asked for.
    with anyio.CancelScope(deadline=deadline) as scope:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                # serving/http1.py adds the error if the body was broken and the client has not left.
                raise message.get("error") or ClientDisconnected
            data = message.get("body", b"")
            more = message.get("more_body", False)
            received += len(data)
            if received > limit:
                raise _too_large(limit)
            if decoder is None:
                parts.append(data)
            else:
                scope.deadline = math.inf  # unpacking is our own time
                await _unpack(decoder, data, more, parts, limit)
            if not more:
                return b"".join(parts)
            now = anyio.current_time()
            deadline = min(latest + received / _SLOWEST_BYTES_PER_S, now + silence_s)
            scope.deadline = deadline
    silent = (
        "stopped in the middle" if deadline < latest + received / _SLOWEST_BYTES_PER_S else "comes too slowly"
    )
    # "the server did not receive a complete request message within the time that it was prepared to wait"
    # -- RFC 9110, 15.5.9
    raise RemoteProtocolError(
        f"the request body {silent} (body_timeout_s is {silence_s:g} s); send the request again",
        status=408,
    )


async def _unpack(decoder: ContentDecoder, data: bytes, more: bool, parts: list[bytes], limit: int) -> None:
    """Put what `data` unpacks to behind `parts`."""
    try:
        if data:
            decoder.receive_data(data)
        while (portion := decoder.next_portion()) is not None:
            parts.append(portion)
            await anyio.lowlevel.checkpoint()  # a piece from the socket may unpack to many megabytes
        if not more:
            decoder.receive_eof()
    except TooLarge:
        raise _too_large(limit) from None
    except CodingError as error:
        raise RemoteProtocolError(f"the request body cannot be unpacked: {error}") from None


def _too_large(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the request body has more than {limit} bytes", status=413)
