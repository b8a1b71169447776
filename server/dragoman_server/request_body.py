"""A request's body: read whole, unpacked, within a limit.

Strategy: the limit counts bytes as they are after unpacking, and holds while they are unpacked, so a small
body that grows to gigabytes stops early. Codings that cannot be read are refused by name: to take them for
JSON would blame the client for what it did not do wrong.
"""

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dragoman import RemoteProtocolError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# The codings that zlib reads. wbits: 47 tells gzip and zlib apart by their header.
_CODINGS = {"gzip": 47, "x-gzip": 47, "deflate": 47}
_IDENTITY = ("", "identity")


class ClientLeft(Exception):
    """The client closed the connection before its request was complete: nobody is there to answer."""


async def read_body(receive: Receive, content_encoding: str, content_length: str, limit: int) -> bytes:
    """The whole body of an ASGI request.

    Raises ClientLeft, and RemoteProtocolError with status 413 (too large), 415 (unknown coding) or 400 (the
    coding is broken).
    """
    coding = content_encoding.strip().lower()
    if coding not in _IDENTITY and coding not in _CODINGS:
        raise RemoteProtocolError(
            f"content-encoding {coding[:40]!a} cannot be read here; send the body plain, as gzip or as deflate",
            status_hint=415,
        )
    if content_length.isdecimal() and int(content_length) > limit:
        raise _too_large(limit)
    packed = None if coding in _IDENTITY else zlib.decompressobj(_CODINGS[coding])
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        data = message.get("body", b"")
        if packed is not None:
            data = _unpack(packed, data, limit - size)
        size += len(data)
        if size > limit:
            raise _too_large(limit)
        parts.append(data)
        if not message.get("more_body", False):
            break
    if packed is not None and not packed.eof:
        raise RemoteProtocolError("the compressed body ends too early", status_hint=400)
    return b"".join(parts)


def _unpack(packed: "zlib._Decompress", data: bytes, room: int) -> bytes:
    try:
        # One byte more than there is room for shows that it is too much, and is all that is unpacked of it.
        return packed.decompress(data, room + 1)
    except zlib.error:
        raise RemoteProtocolError(
            "the body is not in the coding that content-encoding names", status_hint=400
        ) from None


def _too_large(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the request body has more than {limit} bytes", status_hint=413)
