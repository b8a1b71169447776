"""Responses to requests that the application never receives: invalid ones, too large ones, and too slow ones.

If the application has a method `refusal`, that makes the response, in the form of the path's protocol, and logs it like
everything else that the application refuses; HTTP1 and HTTP2 send it. For other applications it is plain text.
"""

from collections.abc import Callable, Iterable
from typing import Any

from starlette.types import Scope

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.replies import Reply

# Makes the whole response from the readable parts of the request (see refused_scope) and the error.
RefusalMaker = Callable[[Scope, RemoteProtocolError | RequestRefused], Reply]


def refusal_of(app: Any) -> RefusalMaker:
    """Return the application's `refusal`, or plain_text_refusal()."""
    refusal: RefusalMaker = getattr(app, "refusal", plain_text_refusal)
    return refusal


def refused_scope(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Scope:
    """Make a scope from the readable parts of a request that the application does not get.

    target: in origin form; b"" where none can be read. headers: lower-case names.
    """
    path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "query_string": query,
        "headers": list(headers),
    }


def plain_text_refusal(scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
    """Return the error's message as plain text, for an application without `refusal`."""
    return Reply(error.status, [("content-type", "text/plain")], f"{error.message}\n".encode())
