"""The end of a peer that is noticed without reading, on real sockets."""

import errno
import select
import socket
import sys

import anyio
import pytest
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.streams.connect import open_byte_stream
from dragoman_server.streams.peer_end import wait_for_peer_end

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*REAL_BACKENDS, UVLOOP),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell"),
]


@pytest.mark.parametrize(("open_files", "noticed"), [("few", True), ("too many", False)])
async def test_the_end_is_noticed_behind_bytes_if_a_file_can_be_opened(
    open_files: str, noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    if open_files == "too many":
        monkeypatch.setattr(select, "epoll", refuse)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"x")
        theirs.close()
        with anyio.move_on_after(5 if noticed else 0.01) as waiting:
            await wait_for_peer_end(ours)
    assert waiting.cancelled_caught is not noticed


async def test_a_connection_that_has_ended_has_its_protocol() -> None:
    """Clients leave right behind the handshake of TLS: that is no error of the gateway."""
    ours, theirs = socket.socketpair()
    with theirs:
        stream = await open_byte_stream(ours)
        stream.abort()
        assert stream.alpn_protocol() is None
