"""Answers to what never becomes a request of the application: it cannot be read, is too large, or takes too long.

Strategy: the application makes the answer, in the form of the path's protocol, and writes its line in the log, as for
all that it refuses; the protocols of this package send it. So an application that has `refusal` is asked; any other one
gets plain text for its clients.
"""

from collections.abc import Callable, Iterable
from typing import Any

from starlette.types import Scope

from dragoman import RemoteProtocolError

from ..replies import Reply

__all__ = ["Refusal", "in_plain_text", "refusal_of", "refused_scope"]

# Of the request, as far as it is known (see refused_scope), and what is wrong with it: the whole answer.
Refusal = Callable[[Scope, RemoteProtocolError], Reply]


def refusal_of(app: Any) -> Refusal:
    """How this application refuses."""
    refusal: Refusal = getattr(app, "refusal", in_plain_text)
    return refusal


def refused_scope(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Scope:
    """What is known of a request that is refused before the application sees it.

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


def in_plain_text(scope: Scope, error: RemoteProtocolError) -> Reply:
    """For an application that does not say how it refuses."""
    return Reply(error.status_hint, [("content-type", "text/plain")], f"{error.message}\n".encode())
