"""Request bodies: ASGI messages and headers in, bytes or an error with its status out."""

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from gateway.fakes import other_turns

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.http.request import BodyReader, ClientDisconnected
from dragoman_server.upstream.content_coding import MAX_PORTION

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.anyio

TEXT = b'{"model": "m", "input": "' + b"Hello. " * 100 + b'"}'
LIMIT = 10_000
SILENCE_S = 30.0


class Chunks:
    """`receive` of a client that sends these chunks, and stays or leaves at their end."""

    def __init__(self, chunks: Sequence[bytes], *, complete: bool = True) -> None:
        self.messages: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
        ]
        self.taken = 0
        if complete:
            self.messages[-1]["more_body"] = False
        self.messages.append({"type": "http.disconnect"})

    async def __call__(self) -> MutableMapping[str, Any]:
        self.taken += 1
        return self.messages.pop(0)


async def read(
    *chunks: bytes, coding: str = "", length: str = "", limit: int = LIMIT, complete: bool = True
) -> bytes:
    headers = {"content-encoding": coding, "content-length": length}
    return await BodyReader(Chunks(chunks, complete=complete), headers, limit, SILENCE_S).read_all()


async def refused(*chunks: bytes, **more: Any) -> tuple[int, str]:
    with pytest.raises((RemoteProtocolError, RequestRefused)) as caught:
        await read(*chunks, **more)
    return caught.value.status, caught.value.message


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "plain": ("", bytes),
    "identity": ("identity", bytes),
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "in capitals": ("GZip ", gzip.compress),
    "gzip of two members": ("gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its wrapper": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
    "zstd over gzip": ("gzip, zstd", lambda data: zstd.compress(gzip.compress(data))),
}


async def test_g10_a_body_is_unpacked_however_it_is_cut() -> None:
    for name in CODINGS:
        coding, pack = CODINGS[name]
        packed = pack(TEXT)
        assert await read(packed, coding=coding) == TEXT, name
        assert await read(*[packed[i : i + 1] for i in range(len(packed))], coding=coding) == TEXT, name
        assert await read(b"", packed, b"", coding=coding) == TEXT, name


async def test_a_message_without_members_is_the_end() -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    assert await BodyReader(receive, {}, LIMIT, SILENCE_S).read_all() == b""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"type": "http.request", "body": bytes(LIMIT), "more_body": False}, (LIMIT, 0)),
        ({"type": "http.request", "body": bytes(LIMIT + 1), "more_body": False}, RequestRefused),
        ({"type": "http.request", "body": b"a", "more_body": True}, (2, 1)),
        ({"type": "http.disconnect"}, ClientDisconnected),
        (None, (1, 1)),
    ],
)
async def test_what_is_there_without_waiting_is_read_first(
    message: dict[str, Any] | None, expected: tuple[int, int] | type[Exception]
) -> None:
    receive, there = Chunks([b"b"]), [message]

    def receive_now() -> dict[str, Any] | None:
        return there.pop() if there else None

    if isinstance(expected, tuple):
        body = await BodyReader(receive, {}, LIMIT, SILENCE_S, receive_now).read_all()
        assert (len(body), receive.taken) == expected
    else:
        with pytest.raises(expected):
            await BodyReader(receive, {}, LIMIT, SILENCE_S, receive_now).read_all()


@pytest.mark.parametrize("coding", ["br", "gzip, br", "compress", "x" * 1000])
async def test_g10_an_unknown_coding_is_named(coding: str) -> None:
    status, message = await refused(TEXT, coding=coding)
    assert status == 415
    assert coding[:10] in message
    assert "the gateway decodes gzip, deflate, zstd" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "packed",
    [TEXT, gzip.compress(TEXT)[:-1], gzip.compress(TEXT) + b"trailing", gzip.compress(TEXT)[:-8] + bytes(8)],
    ids=["plain", "cut", "trailing", "wrong checksum"],
)
async def test_a_broken_coding_is_the_clients_error(packed: bytes) -> None:
    for step in [1, 10_000]:
        chunks = [packed[i : i + step] for i in range(0, len(packed), step)]
        status, message = await refused(*chunks, coding="gzip")
        assert status == 400, step
        assert message.startswith("the request body cannot be unpacked: the "), step


@pytest.mark.parametrize("chunks", [(), (b'{"mod',)], ids=["at once", "in the middle"])
async def test_a_client_that_leaves_gets_no_response(chunks: Sequence[bytes]) -> None:
    with pytest.raises(ClientDisconnected):
        await read(*chunks, complete=False)


# The limit.


async def test_a_body_without_an_end_that_the_server_has_seen_is_no_client_that_left() -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect", "error": RemoteProtocolError("no chunk", status=400)}

    with pytest.raises(RemoteProtocolError, match="no chunk"):
        await BodyReader(receive, {}, LIMIT, SILENCE_S).read_all()


@pytest.mark.parametrize(("coding", "pack"), [("", bytes), ("gzip", gzip.compress), ("zstd", zstd.compress)])
@pytest.mark.promise("S7", "S8")
async def test_g12_the_limit_is_what_is_just_allowed(coding: str, pack: Callable[[bytes], bytes]) -> None:
    assert len(await read(pack(bytes(LIMIT)), coding=coding)) == LIMIT
    found = await refused(pack(bytes(LIMIT + 1)), coding=coding)
    assert found == (413, "the request body has more than 10000 bytes")


@pytest.mark.parametrize("length", ["10001", "9" * 5000, "0" * 15 + "10001"])
async def test_a_declared_length_is_refused_before_a_byte_is_read(length: str) -> None:
    receive = Chunks([TEXT])
    with pytest.raises(RequestRefused, match="more than 10000 bytes"):
        await BodyReader(receive, {"content-length": length}, LIMIT, SILENCE_S).read_all()
    assert receive.taken == 0


@pytest.mark.promise("S8")
@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", lambda data: gzip.compress(data, 9)),
        ("zstd", lambda data: zstd.compress(data, 9)),
        # A frame that decoders skip (RFC 8878, 3.1.2): all that the outer coding unpacks to comes to nothing.
        ("zstd, gzip", lambda data: gzip.compress(b"\x50\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data, 9)),
    ],
)  # fmt: skip
async def test_g12_a_bomb_is_not_unpacked(coding: str, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(bytes(50 * 2**20))
    assert len(bomb) < 64 * 2**10
    tracemalloc.start()
    try:
        status, _ = await refused(bomb, coding=coding, limit=2**20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 413
    assert peak < 4 * 2**20


@pytest.mark.promise("S8")
async def test_others_have_their_turn_while_a_chunk_is_decompressed() -> None:
    async with other_turns() as turns:
        await read(gzip.compress(bytes(64 * MAX_PORTION)), coding="gzip", limit=64 * MAX_PORTION)
    assert turns() > 32


async def test_members_that_are_nearly_all_empty_stop_at_the_limit() -> None:
    """They decompress to almost nothing, so the input is counted as well."""
    receive = Chunks([gzip.compress(b"") * 50 + gzip.compress(b"a")] * 100)
    with pytest.raises(RequestRefused) as caught:
        await BodyReader(receive, {"content-encoding": "gzip"}, LIMIT, SILENCE_S).read_all()
    assert caught.value.status == 413
    assert receive.taken <= 11


# Time. A pause is the time before each chunk.

SLOW_BODIES: dict[str, tuple[list[tuple[float, bytes]], float | None]] = {
    # name -> pauses and chunks, and when it is refused
    "silent from the start": ([(10_000, b"")], 30),
    "silent in the middle": ([(0, b" " * 50_000), (29, b" "), (10_000, b"")], 59),
    "with pauses that are just allowed": ([(29, b" " * 100_000)] * 5, None),
    # 30 seconds, and one for each 1024 bytes
    "a byte a second": ([(1, b" ")] * 1000, 30),
    "a kilobyte a second": ([(1, b" " * 1024)] * 1000, None),
    "half a kilobyte a second": ([(1, b" " * 512)] * 1000, 60),
}


@pytest.mark.promise("S10")
@pytest.mark.parametrize("name", SLOW_BODIES)
async def test_a_body_has_a_time_for_its_pauses_and_one_for_its_size(name: str) -> None:
    paced, refused_after = SLOW_BODIES[name]
    chunks = iter(paced)

    async def receive() -> MutableMapping[str, Any]:
        pause, chunk = next(chunks, (0, None))
        await anyio.sleep(pause)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    begun = anyio.current_time()
    if refused_after is None:
        found = len(await BodyReader(receive, {}, 2**20, SILENCE_S).read_all())
        assert found == sum(len(chunk) for _, chunk in paced)
        return
    with pytest.raises(RequestRefused) as caught:
        await BodyReader(receive, {}, 2**20, SILENCE_S).read_all()
    assert caught.value.status == 408
    assert anyio.current_time() - begun == pytest.approx(refused_after, abs=1)
