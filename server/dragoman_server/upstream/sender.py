"""The interface for sending requests to upstreams. `UpstreamClient` and the simulator have it."""

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dragoman_server.hosts import UpstreamCall
from dragoman_server.streams.byte_stream import Take
from dragoman_server.upstream.transport import UpstreamTimeouts


class UpstreamResponseLike(Protocol):
    """The part of UpstreamResponse that its readers use."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[str, str]]: ...

    @property
    def ended(self) -> bool:
        """True if it is known that nothing more is to be received."""

    def receive(self) -> Awaitable[bytes]: ...

    def receive_each(self, take: Take) -> Awaitable[None]: ...

    async def read_all(self, limit: int) -> bytes: ...


class UpstreamSender(Protocol):
    """Send one request per `open()`; the response is readable inside of its `async with` block."""

    def open(
        self,
        call: UpstreamCall,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> AbstractAsyncContextManager[UpstreamResponseLike]: ...
