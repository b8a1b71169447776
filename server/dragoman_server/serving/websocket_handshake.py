"""The handshake of a WebSocket over HTTP/1.1 (RFC 6455, 4.2) and HTTP/2 (RFC 8441), without I/O.

permessage-deflate (RFC 7692) is accepted so that clients may compress what they send. Its responses keep no context on
either side: a window would cost 32 KiB for each idle socket, and a compressor 256 KiB. What is sent is not compressed,
as in event streams over HTTP ("an endpoint MAY send uncompressed messages"): tokens are small, and come one by one.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman import RequestRefused
from dragoman_server.streams.http1_head import joined

Headers = Sequence[tuple[bytes, bytes]]

_VERSION = b"13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3

_DEFLATE = "permessage-deflate"
_NO_CONTEXT = ("server_no_context_takeover", "client_no_context_takeover")
_WINDOW_BITS = frozenset(map(str, range(8, 16)))


class Handshake(msgspec.Struct, frozen=True):
    """A valid handshake.

    Attributes:
        key: None over HTTP/2.
        subprotocols: the names that the client offers.
        extensions: the value of Sec-WebSocket-Extensions in the response: permessage-deflate, or None.
    """

    key: bytes | None
    subprotocols: tuple[str, ...]
    extensions: str | None

    def accept(
        self, subprotocol: str | None, headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the status and the headers of the response that opens the WebSocket. headers: more of them."""
        if subprotocol is not None and subprotocol not in self.subprotocols:
            raise ValueError("the client has not offered this subprotocol")
        fields = [*headers]
        if subprotocol is not None:
            fields.append((b"sec-websocket-protocol", subprotocol.encode()))
        if self.extensions is not None:
            fields.append((b"sec-websocket-extensions", self.extensions.encode()))
        if self.key is None:
            return 200, fields
        digest = hashlib.sha1(self.key + _GUID, usedforsecurity=False).digest()
        fields += [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", base64.b64encode(digest)),
        ]
        return 101, fields


def is_handshake(method: str, version: str, fields: Mapping[bytes, bytes]) -> bool:
    """True if a request of HTTP/1.1 asks for a WebSocket, whether correctly or not.

    "A server MAY ignore a received Upgrade header field" (RFC 9110, 7.8): those to other protocols are.
    """
    upgrade = fields.get(b"upgrade")
    return upgrade is not None and method == "GET" and version >= "1.1" and b"websocket" in _tokens(upgrade)


def read_upgrade(headers: Headers) -> Handshake:
    """Return the handshake of a request with is_handshake(). Raises RequestRefused."""
    fields = joined(headers)
    if b"upgrade" not in _tokens(fields.get(b"connection", b"")):
        raise _malformed("Connection does not name Upgrade; a proxy may have removed it")
    if b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0":
        raise _malformed("it has a body")
    _check_version(fields)
    key = fields.get(b"sec-websocket-key", b"")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        is_key = False
    if not is_key:
        raise _malformed("Sec-WebSocket-Key is not 16 bytes in base64")
    return _handshake(fields, key)


def read_connect(protocol: bytes, headers: Headers) -> Handshake:
    """Return the handshake of an extended CONNECT. protocol: the value of `:protocol`. Raises RequestRefused."""
    if protocol != b"websocket":
        # "... SHOULD respond to the request with a 501 (Not Implemented) status code" -- RFC 9220, 3
        raise RequestRefused("of the extended CONNECT, only websocket is supported", status=501)
    fields = joined(headers)
    _check_version(fields)
    return _handshake(fields, None)


def _handshake(fields: Mapping[bytes, bytes], key: bytes | None) -> Handshake:
    offered = fields.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")
    offers = fields.get(b"sec-websocket-extensions", b"").decode("latin-1").split(",")
    extensions = next(filter(None, map(_accept_offer, offers)), None)
    return Handshake(key, tuple(filter(None, map(str.strip, offered))), extensions)


def _check_version(fields: Mapping[bytes, bytes]) -> None:
    version = fields.get(b"sec-websocket-version", b"")
    if version != _VERSION:
        raise RequestRefused("Sec-WebSocket-Version is not 13, the one that is supported", status=426)


def _accept_offer(offer: str) -> str | None:
    """Return the response to one offer of an extension, None if it has to be declined (RFC 7692, 7.1)."""
    name, *parts = (part.strip() for part in offer.split(";"))
    if name.lower() != _DEFLATE:
        return None
    parameters: dict[str, str] = {}
    for part in parts:
        key, _, value = (each.strip() for each in part.partition("="))
        if key in parameters:
            return None
        parameters[key] = value.strip('"')
    bits = parameters.pop(
        "server_max_window_bits", None
    )  # has to be repeated, and means nothing without a compressor
    client_bits = parameters.pop("client_max_window_bits", "") or "15"
    if (bits is not None and bits not in _WINDOW_BITS) or client_bits not in _WINDOW_BITS:
        return None
    if any(parameters.pop(each, "") for each in _NO_CONTEXT) or parameters:
        return None
    return "; ".join([_DEFLATE, *_NO_CONTEXT, *([] if bits is None else [f"server_max_window_bits={bits}"])])


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip(b" \t").lower() for token in value.split(b",")}


def _malformed(why: str) -> RequestRefused:
    return RequestRefused(f"the WebSocket handshake is malformed: {why}", status=400)
