"""Invariant: whatever frames come in over a WebSocket, in whatever pieces, the application learns how it has ended,
what is sent are whole frames with nothing behind a Close, and there is no internal error.
"""

import contextlib
import logging

import anyio
import pytest
from client_stream import FakeStream, connect
from fuzz import chunks, cut_places, cuts, damage, run
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from virtual_time import UVLOOP, VIRTUAL_BACKENDS, backend
from websocket_client import COMPRESSED, FIN, OVER, close, frame

from dragoman_server.serving.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    is_close_code,
)
from dragoman_server.settings import ServerSettings

pytestmark = pytest.mark.fuzz

_SETTINGS = ServerSettings(max_body_bytes=4096)
_PAYLOADS = st.one_of(
    st.sampled_from(
        [b"", b"hello", "é€😀".encode(), b"\xed\xa0\x80", b"\xc3", b"x" * 126, b"x" * 5000, b"\x03\xe8bye"]
    ),
    st.sampled_from([bytes.fromhex("f248cdc9c90700"), bytes.fromhex("f348cdc9c9070000"), b"\x03\x00" * 50]),
    st.binary(max_size=200),
)
_frames = st.builds(
    lambda opcode, bits, payload, fin, masked: frame(
        opcode | bits, payload, fin=fin, mask=b"\1\2\3\4" if masked else None
    ),
    st.sampled_from([TEXT, TEXT, BINARY, CONTINUATION, CONTINUATION, PING, PONG, CLOSE, 3, 15]),
    st.sampled_from([0, 0, 0, COMPRESSED, COMPRESSED, 0x20]),
    _PAYLOADS,
    st.sampled_from([FIN, FIN, 0]),
    st.sampled_from([True] * 15 + [False]),
)
_closes = st.builds(close, st.integers(0, 5100), st.binary(max_size=20))
_streams = st.tuples(
    st.lists(st.one_of(_frames, _frames, _frames, _closes), max_size=10).map(b"".join),
    st.one_of(st.just([]), st.just([]), st.lists(cuts, max_size=2)),
).map(lambda drawn: damage(*drawn))


@pytest.mark.promise("R2")
@pytest.mark.parametrize("name", [*VIRTUAL_BACKENDS, UVLOOP])
def test_any_frames(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(logging.getLogger("dragoman"), "propagate", True)

    def check(data: bytes, places: list[int], version: str, deflates: bool) -> None:
        codes: list[int] = []

        async def echo(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            message = {"type": "websocket.accept"}
            while message["type"] != "websocket.disconnect":
                with contextlib.suppress(OSError):
                    await send({**message, "type": message["type"].replace("receive", "send")})
                message = await receive()
            codes.append(message["code"])

        over = OVER[version]
        fields = {"sec-websocket-extensions": "permessage-deflate"} if deflates else {}
        parts = [over.frames(part) for part in chunks(data, places)]
        stream = FakeStream([over.opening(fields), *parts], leaves=True)

        async def main() -> None:
            await connect(echo, stream, _SETTINGS).run()

        kind, options = backend(name)
        anyio.run(main, backend=kind, backend_options=options)
        assert len(codes) == 1, codes
        assert codes[0] in (1005, 1006) or is_close_code(codes[0])
        kinds = [first & 0xF for first, _ in over.answer(stream.sent).frames]
        assert CLOSE not in kinds[:-1]
        assert not caplog.records

    run(check, _streams, cut_places, st.sampled_from(sorted(OVER)), st.booleans(), examples=100)
