"""HTTP/2 on one connection."""

from typing import TYPE_CHECKING

from hypercorn.protocol.h2 import H2Protocol

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["HTTP2"]


class HTTP2(H2Protocol):
    """transport: the connection; `connection` is that of h2."""

    def __init__(self, transport: "Connection") -> None:
        super().__init__(*transport.protocol_arguments)
        self.transport = transport

    async def timed_out(self) -> None:
        """The deadline of reading has passed (see Connection.read_within). The connection ends after this."""

    async def stop(self) -> None:
        """The worker is being stopped, and this connection is not idle."""
