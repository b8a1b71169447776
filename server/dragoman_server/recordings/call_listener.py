"""Listen to what upstreams get and send, for whoever records or shows it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from dragoman_server.hosts import StreamedContent, UpstreamCall
from dragoman_server.proxying.destinations import Destination
from dragoman_server.streams.byte_stream import Take
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender
from dragoman_server.upstream.transport import UpstreamTimeouts

# What SCOPE_SENDERS has to return.
ListenedSender = Callable[[Destination, str, UpstreamSender], UpstreamSender]


class CallListener(Protocol):
    """Gets what becomes of one call."""

    def sent(self, data: bytes) -> None:
        """Bytes of a body that is sent while it arrives."""

    def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """The response has begun."""

    def received(self, data: bytes) -> None:
        """Bytes of its body were read, none at its end."""

    def failed(self, error: UpstreamError) -> None:
        """The connection has failed."""


class SenderWithListener(msgspec.Struct, frozen=True):
    """An UpstreamSender around another one.

    Attributes:
        listen: Returns what listens to a call.
    """

    listen: Callable[[UpstreamCall], CallListener]
    sender: UpstreamSender

    @asynccontextmanager
    async def open(
        self, call: UpstreamCall, *, timeouts: UpstreamTimeouts | None = None, proxy: str | None = None
    ) -> AsyncIterator[UpstreamResponseLike]:
        """Send a call, see UpstreamSender."""
        listener = self.listen(call)
        if call.content is not None and not isinstance(call.content, bytes):
            call = msgspec.structs.replace(call, content=_Content(listener, call.content))
        try:
            async with self.sender.open(call, timeouts=timeouts, proxy=proxy) as response:
                listener.head(response.status, response.headers)
                yield _Response(listener, response)
        except UpstreamError as error:
            listener.failed(error)
            raise


class _Content:
    """A body whose bytes are listened to as they are sent. See StreamedContent."""

    def __init__(self, listener: CallListener, content: StreamedContent) -> None:
        self.length = content.length
        self._listener = listener
        self._content = content

    async def receive(self) -> bytes:
        data = await self._content.receive()
        self._listener.sent(data)
        return data


class _Response:
    """A response whose bytes are listened to as they are read."""

    def __init__(self, listener: CallListener, response: UpstreamResponseLike) -> None:
        self.status = response.status
        self.headers = response.headers
        self._listener = listener
        self._response = response

    @property
    def ended(self) -> bool:
        return self._response.ended

    async def receive(self) -> bytes:
        data = await self._response.receive()
        self._listener.received(data)
        return data

    def receive_each(self, take: Take) -> Awaitable[None]:
        def listen_and_take(data: bytes) -> bool:
            self._listener.received(data)
            return take(data)

        return self._response.receive_each(listen_and_take)

    async def read_all(self, limit: int) -> bytes:
        data = await self._response.read_all(limit)
        self._listener.received(data)
        return data
