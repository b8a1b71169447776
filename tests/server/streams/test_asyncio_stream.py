"""Streams on asyncio, on sockets of one process."""

import socket
import tracemalloc
from pathlib import Path

import anyio
import pytest
from http_certificate import make_certificate
from virtual_time import REAL_BACKENDS

from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.streams.connect import open_byte_stream

pytestmark = [pytest.mark.anyio, pytest.mark.backends(REAL_BACKENDS[0])]

# In KiB, without what OpenSSL has. With the buffer that asyncio has for TLS it would be more than 256.
KIB_OF_A_STREAM = 64


async def test_what_a_stream_with_tls_holds(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    accepted, connected = certificate.server(), certificate.client()
    streams: list[ByteStream] = []

    async def open_pair() -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)

        async def accept() -> None:
            streams.append(await open_byte_stream(theirs, accepted))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            streams.append(await open_byte_stream(ours, connected, "127.0.0.1"))
        await streams[0].send_all(b"x", 1)
        assert await streams[1].receive(1) == b"x"
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await open_pair()
        each = (await open_pair() - before) / 2 / 1024
    finally:
        tracemalloc.stop()
        for stream in streams:
            stream.abort()
    assert each < KIB_OF_A_STREAM, f"{each:.1f} KiB"
