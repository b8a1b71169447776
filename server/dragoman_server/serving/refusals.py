"""Responses to requests that the application never receives: invalid ones, too large ones, and too slow ones."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.wire.replies import Reply


def refusal(
    app: Any,
    method: bytes,
    target: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    client: tuple[str, int] | None,
    error: RemoteProtocolError | RequestRefused,
) -> Reply:
    """Return the whole response, which HTTP1 and HTTP2 send.

    If the application has a method `refusal`, that makes it, in the form of the path's protocol, and logs it like
    everything else that the application refuses. For other applications it is plain text.

    target: in origin form; b"" where none can be read. headers: the readable ones, with lower-case names.
    client: its address, as in an ASGI scope.
    """
    if not hasattr(app, "refusal"):
        reply = Reply(error.status, [("content-type", "text/plain")], f"{error.message}\n".encode())
        return _with_version(reply)
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "method": method.decode("ascii"),
        "path": path.decode("latin-1"),
        "query_string": query,
        "headers": list(headers),
        "client": client,
    }
    return _with_version(app.refusal(scope, error))


def _with_version(reply: Reply) -> Reply:
    """Add the version of WebSocket that is supported, which has to be in a 426 (RFC 6455, 4.4)."""
    if reply.status != 426:
        return reply
    return replace(reply, headers=[*reply.headers, ("sec-websocket-version", "13")])
