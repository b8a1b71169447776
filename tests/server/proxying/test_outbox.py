"""The order of a response's bytes on their way to its client, and how far a reader may be ahead. Time is virtual."""

import anyio
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.proxying.outbox import Chunk, Outbox

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


class Line:
    """A connection that can be written to without waiting, while it is `free`."""

    def __init__(self, *, free: bool = True) -> None:
        self.free = free
        self.written: list[bytes] = []

    def write_now(self, data: bytes) -> bool:
        if self.free:
            self.written.append(data)
        return self.free


async def write_all(outbox: Outbox, sent: list[Chunk], seconds: float = 0) -> None:
    """Be the writer of a client that takes `seconds` for everything."""
    while (item := outbox.take()) is not None:
        await anyio.sleep(seconds)
        sent.append(item)


async def test_the_writer_gets_everything_in_order_and_joined() -> None:
    outbox, sent = Outbox(Line(free=False)), []
    for data in (b"a", b"b"):
        assert not outbox.put(data)
    outbox.end(b"c")
    assert outbox.wants_writer()
    await write_all(outbox, sent)
    assert sent == [Chunk(b"abc", last=True)]


async def test_there_is_one_writer_while_there_is_something_to_send() -> None:
    outbox, sent = Outbox(Line(free=False)), []
    assert not outbox.wants_writer()
    outbox.put(b"a")
    assert not outbox.has_room, "a reader lets somebody write it"
    assert outbox.wants_writer()
    assert not outbox.wants_writer()
    assert outbox.has_room
    await write_all(outbox, sent)
    assert not outbox.wants_writer()
    outbox.put(b"b")
    assert outbox.wants_writer()


async def test_a_piece_goes_to_the_connection_at_once_while_there_is_no_writer() -> None:
    line, sent = Line(), []
    outbox = Outbox(line)
    async with anyio.create_task_group() as tasks:

        def put(data: bytes) -> bool:
            at_once = outbox.put(data)
            if outbox.wants_writer():
                tasks.start_soon(write_all, outbox, sent, 1)
            return at_once

        assert not put(b"head")  # the response has not begun
        await anyio.sleep(0.5)
        assert not put(b"a")  # the writer is sending
        await anyio.sleep(0.4)
        assert not put(b"b")
        await anyio.sleep(2)
        assert put(b"c")
        line.free = False
        assert not put(b"d")
        line.free = True
        assert not put(b"e")  # not before d
        await anyio.sleep(2)
        assert put(b"f")
        outbox.end(b"last")
        assert outbox.wants_writer()
        tasks.start_soon(write_all, outbox, sent, 1)
    assert sent == [
        Chunk(b"head", last=False),
        Chunk(b"ab", last=False),
        Chunk(b"de", last=False),
        Chunk(b"last", last=True),
    ]
    assert line.written == [b"c", b"f"]


@pytest.mark.parametrize("piece", [b"x", b"x" * 70_000], ids=["four pieces", "64 KiB"])
async def test_a_reader_waits_for_a_slow_client(piece: bytes) -> None:
    outbox, sent = Outbox(Line(free=False)), []
    times: list[float] = []
    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(9):
            outbox.put(piece)
            if outbox.wants_writer():
                tasks.start_soon(write_all, outbox, sent, 10)
                await anyio.wait_all_tasks_blocked()
            await outbox.room()
            times.append(anyio.current_time() - begun)
        outbox.end(b"")
    unsent_at = [(index, round(seconds, 3)) for index, seconds in enumerate(times)]
    if len(piece) == 1:
        assert unsent_at == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 10), (5, 10), (6, 10), (7, 10), (8, 20)]
    else:
        assert [round(seconds, 3) for _, seconds in unsent_at] == [0, *(10 * n for n in range(1, 9))]
    assert b"".join(chunk.data for chunk in sent) == piece * 9


async def test_unsent_is_what_waits_and_what_the_writer_has() -> None:
    outbox, sent = Outbox(Line(free=False)), []
    assert not outbox.unsent
    outbox.put(b"a")
    assert outbox.unsent
    assert outbox.wants_writer()
    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_all, outbox, sent, 5)
        await anyio.sleep(4.9)
        assert outbox.unsent
        await outbox.sent()
        assert anyio.current_time() - begun == pytest.approx(5)
    assert not outbox.unsent
