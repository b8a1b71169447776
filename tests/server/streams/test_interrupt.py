"""A reader of a byte stream is interrupted: the one that waits, else the next one. On sockets of one process."""

import socket
from collections.abc import Awaitable, Callable

import anyio
import pytest
from http_server import TIMEOUT_S
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.streams.connect import open_byte_stream

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

Read = Callable[[ByteStream], Awaitable[object]]
READS = [
    pytest.param(lambda stream: stream.receive(None), id="receive"),
    pytest.param(lambda stream: stream.receive_each(bool, None), id="receive_each"),
]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("read", READS)
async def test_one_reader_is_interrupted_and_the_next_one_reads(read: Read, waits: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = await open_byte_stream(ours)

    async def be_interrupted() -> None:
        with pytest.raises(InterruptedError):
            await read(stream)

    with theirs, anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            if waits:
                tasks.start_soon(be_interrupted)
                await anyio.wait_all_tasks_blocked()
            stream.interrupt()
            if not waits:
                tasks.start_soon(be_interrupted)
        theirs.send(b"x")
        assert await stream.receive(None) == b"x"
        stream.interrupt()  # of no reader, so the end does not miss what the peer still sends
        theirs.send(b"y")
        theirs.close()
        await stream.end(TIMEOUT_S)


async def test_a_writer_is_not_interrupted() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream, data = await open_byte_stream(ours), b"x" * 8_000_000
    with theirs, anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send_all, data, None)
            await anyio.wait_all_tasks_blocked()
            stream.interrupt()
            await anyio.wait_all_tasks_blocked()
            read = await anyio.to_thread.run_sync(theirs.makefile("rb").read, len(data))
        stream.abort()
    assert read == data
