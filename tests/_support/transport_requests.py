"""Requests for the transport, what its responses contain, and responses for a client with another one."""

from collections.abc import AsyncIterator, Sequence

import httpx2

from dragoman_server.upstream.http1 import request_head
from dragoman_server.upstream.transport import Http1Request, RequestURL, ResponseBody, UpstreamTimeouts


def request_to(
    url: str,
    content: bytes = b"{}",
    *,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] = (),
    **timeouts: float | None,
) -> Http1Request:
    """A request as UpstreamClient makes it. Without a timeout it waits for ever."""
    target = RequestURL.of(httpx2.URL(url))
    head = request_head(method, target.target, target.host, headers, len(content))
    names = ("connect", "read", "write", "pool")
    return Http1Request(method, target, head, content, UpstreamTimeouts(*map(timeouts.get, names)))


async def read(body: ResponseBody) -> list[bytes]:
    """The pieces of the body, to its end."""
    pieces = []
    while data := await body.receive():
        pieces.append(data)
    return pieces


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces of one size."""

    def __init__(self, body: bytes, size: int) -> None:
        self._body, self._size = body, size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), self._size):
            yield self._body[at : at + self._size]
