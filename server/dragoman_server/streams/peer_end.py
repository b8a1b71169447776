"""The ends of connections on which one side does not read: notice the peer's, and make it notice ours."""

import contextlib
import select
import socket
import struct
import sys

import anyio


async def wait_for_peer_end(connected: socket.socket) -> None:
    """See ByteStream.peer_ended(). The socket may be closed meanwhile."""
    if sys.platform == "linux" and connected.fileno() >= 0:
        # An event loop waits for bytes only, and here there may be some that nobody takes. A set with this socket alone
        # becomes readable when "stream socket peer closed connection, or shut down writing half of connection"
        # -- https://man7.org/linux/man-pages/man2/epoll_ctl.2.html
        with contextlib.suppress(OSError), select.epoll() as waiting:  # there may be no file left for it
            waiting.register(connected, select.EPOLLRDHUP)
            await anyio.wait_readable(waiting.fileno())
            return
    await anyio.sleep_forever()


def reset_when_closed(connected: socket.socket) -> None:
    """See ByteStream.drop_unsent()."""
    with contextlib.suppress(OSError):  # it is closed
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
