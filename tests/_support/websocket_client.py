"""A WebSocket client that sends any frames whatever, over HTTP/1.1 and HTTP/2, as bytes.

over = OVER["h2"]
stream = FakeStream([over.opening(), over.frames(frame(TEXT, b"hello"))])
await connect(app, stream).run()
assert over.answer(stream.sent).frames == [(FIN | TEXT, b"hello")]
"""

from collections.abc import Iterator
from typing import NamedTuple

from h2_client import PREFACE, data, frames_of, headers, settings
from hpack import Decoder, Encoder
from hyperframe.frame import DataFrame, HeadersFrame, RstStreamFrame

from dragoman_server.serving.websocket_frames import CLOSE

FIN, COMPRESSED = 0x80, 0x40
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
FIELDS = {"sec-websocket-version": "13"}
UPGRADE = {**FIELDS, "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": KEY}


def frame(opcode: int, payload: bytes = b"", *, fin: int = FIN, mask: bytes | None = b"\1\2\3\4") -> bytes:
    """One frame. opcode: with reserved bits, if any."""
    size = len(payload)
    short = size if size < 126 else 126 if size < 2**16 else 127
    extended = size.to_bytes({126: 2, 127: 8}[short]) if short > 125 else b""
    head = bytes([fin | opcode, (0x80 if mask is not None else 0) | short]) + extended
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


def close(code: int | None = None, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else code.to_bytes(2) + reason)


def frames_in(sent: bytes) -> Iterator[tuple[int, bytes]]:
    """The first byte and the payload of each frame of a server. Fails if they are not whole."""
    while sent:
        size, start = sent[1], 2
        if size > 125:
            start = {126: 4, 127: 10}[size]
            size = int.from_bytes(sent[2:start])
        assert len(sent) >= start + size, sent[:20]
        yield sent[0], sent[start : start + size]
        sent = sent[start + size :]


class Answer(NamedTuple):
    """What a server has sent. ended: how the stream of HTTP/2 did."""

    status: int
    headers: dict[str, str]
    body: bytes
    ended: str = ""

    @property
    def frames(self) -> list[tuple[int, bytes]]:
        return list(frames_in(self.body))


class OverHTTP1:
    def opening(self, fields: dict[str, str] = {}, path: str = "/ws") -> bytes:  # noqa: B006
        lines = [f"{name}: {value}\r\n" for name, value in {"host": "a", **UPGRADE, **fields}.items()]
        return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    def frames(self, *frames: bytes) -> bytes:
        return b"".join(frames)

    def answer(self, sent: bytes) -> Answer:
        head, _, body = sent.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return Answer(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)


class OverHTTP2:
    def opening(self, fields: dict[str, str] = {}, path: str = "/ws") -> bytes:  # noqa: B006
        pseudo = headers(method="CONNECT", protocol="websocket", path=path)
        block = Encoder().encode([*{**dict(pseudo), **FIELDS, **fields}.items()])
        request = HeadersFrame(1, data=block, flags=["END_HEADERS"])
        return PREFACE + settings({4: 2**20}).serialize() + request.serialize()

    def frames(self, *frames: bytes) -> bytes:
        whole = b"".join(frames)
        parts = [whole[at : at + 16384] for at in range(0, len(whole), 16384)]
        return b"".join(data(1, part).serialize() for part in parts)

    def answer(self, sent: bytes) -> Answer:
        fields: dict[str, str] = {}
        body, ended, decoder = b"", "", Decoder()
        for each in frames_of(bytearray(sent)):
            if isinstance(each, HeadersFrame):
                fields = {str(name): str(value) for name, value in decoder.decode(each.data)}
            elif isinstance(each, DataFrame):
                body += each.data
            elif isinstance(each, RstStreamFrame) and not ended:
                ended = "reset"
            if each.stream_id == 1 and "END_STREAM" in each.flags:
                ended = "end"
        return Answer(int(fields.pop(":status", "0")), fields, body, ended)


OVER = {"http/1.1": OverHTTP1(), "h2": OverHTTP2()}
