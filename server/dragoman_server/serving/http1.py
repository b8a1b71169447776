"""HTTP/1.1 on one connection."""

from typing import TYPE_CHECKING

import h11
from hypercorn.protocol.h11 import H11Protocol

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["HTTP1"]


class HTTP1(H11Protocol):
    """transport: the connection; `connection` is h11's."""

    def __init__(self, transport: "Connection") -> None:
        super().__init__(*transport.protocol_arguments)
        self.transport = transport

    async def timed_out(self) -> None:
        """The deadline of reading has passed (see Connection.read_within). The connection ends after this."""

    async def stop(self) -> None:
        """The worker is being stopped, and this connection is not idle."""

    async def _check_protocol(self, event: h11.Request) -> None:
        # hypercorn 0.18 protocol/h11.py:292 changes to HTTP/2 here whatever `http2` says. Prior knowledge is seen by
        # the connection, where HTTP/2 is wanted; "Upgrade: h2c" is deprecated (RFC 9113, 3.1) and ignored, as RFC 9110,
        # 7.8 allows, since clients that want HTTP/2 in clear text have prior knowledge.
        pass
