"""A client of HTTP/2 that sends any frames whatever: they are made with hyperframe, so that nothing holds it to
the RFC.

peer = Peer(gateway.connect())
peer.begin()
peer.send(peer.request(1))
peer.until(lambda frame: is_end(frame, 1))

`frames_of` reads what a server wrote, also without a socket.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from h2.errors import ErrorCodes
from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_WINDOW = 2**31 - 1

Headers = list[tuple[str, str]]

HEADERS: Headers = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "127.0.0.1"),
    (":path", "/healthz"),
]


def headers(*more: tuple[str, str], **pseudo: str | None) -> Headers:
    """A request's headers. pseudo: method, path, ...; None leaves one out."""
    values = {**dict(HEADERS), **{f":{name}": value for name, value in pseudo.items()}}
    return [*((name, value) for name, value in values.items() if value is not None), *more]


def settings(values: dict[int, int] | None = None, *, ack: bool = False) -> SettingsFrame:
    return SettingsFrame(0, settings=values or {}, flags=["ACK"] if ack else [])


def data(stream_id: int, content: bytes = b"", *, end: bool = False) -> DataFrame:
    return DataFrame(stream_id, data=content, flags=["END_STREAM"] if end else [])


def reset(stream_id: int, code: ErrorCodes = ErrorCodes.CANCEL) -> RstStreamFrame:
    return RstStreamFrame(stream_id, error_code=code)


def window(stream_id: int, size: int) -> WindowUpdateFrame:
    return WindowUpdateFrame(stream_id, window_increment=size)


def ping(content: bytes = b"12345678", *, ack: bool = False) -> PingFrame:
    return PingFrame(0, opaque_data=content, flags=["ACK"] if ack else [])


def goaway(code: ErrorCodes = ErrorCodes.NO_ERROR) -> GoAwayFrame:
    return GoAwayFrame(0, last_stream_id=0, error_code=code)


def raw(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame that hyperframe would not make."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


def is_end(frame: Frame, stream_id: int) -> bool:
    """Whether nothing more comes on this stream."""
    return frame.stream_id == stream_id and (isinstance(frame, RstStreamFrame) or "END_STREAM" in frame.flags)


def code_of(frame: RstStreamFrame | GoAwayFrame) -> str:
    return ErrorCodes(frame.error_code).name


def frames_of(buffer: bytearray) -> Iterator[Frame]:
    """Take the complete frames out of the buffer."""
    while len(buffer) >= 9:
        frame, length = Frame.parse_frame_header(memoryview(bytes(buffer[:9])))
        if len(buffer) < 9 + length:
            return
        frame.parse_body(memoryview(bytes(buffer[9 : 9 + length])))
        del buffer[: 9 + length]
        yield frame


class Peer:
    """One connection, without manners: windows are opened and pings answered when the test does it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.encoder = Encoder()
        self._decoder = Decoder()
        self._buffer = bytearray()
        self._waiting: list[Frame] = []
        self.responses: dict[int, dict[str, str]] = {}  # the headers of each stream
        self.contents: dict[int, bytearray] = {}

    def begin(self, values: dict[int, int] | None = None) -> None:
        self.send(PREFACE, settings(values))

    def request(
        self, stream_id: int, fields: Headers | None = None, *, end: bool = True, flags: Iterable[str] = ()
    ) -> HeadersFrame:
        """HEADERS of a request, by default of GET /healthz."""
        block = self.encoder.encode(HEADERS if fields is None else fields)
        all_flags = ["END_HEADERS", *flags, *(["END_STREAM"] if end else [])]
        return HeadersFrame(stream_id, data=block, flags=all_flags)

    def send(self, *frames: Frame | bytes) -> None:
        self.socket.sendall(
            b"".join(each if isinstance(each, bytes) else each.serialize() for each in frames)
        )

    def receive(self) -> Frame | None:
        """The next frame; None when the server has closed."""
        while not self._waiting:
            self._waiting.extend(frames_of(self._buffer))
            if self._waiting:
                break
            try:
                more = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not more:
                return None
            self._buffer += more
        frame = self._waiting.pop(0)
        if isinstance(frame, HeadersFrame):
            fields = self._decoder.decode(frame.data)
            self.responses.setdefault(frame.stream_id, {}).update(fields)
        elif isinstance(frame, DataFrame):
            self.contents.setdefault(frame.stream_id, bytearray()).extend(frame.data)
        return frame

    def until(self, is_it: Callable[[Frame], object]) -> list[Frame]:
        """All frames up to the first that is it. Fails when the server closes before."""
        found: list[Frame] = []
        while True:
            frame = self.receive()
            assert frame is not None, f"the server has closed after {found[-5:]}"
            found.append(frame)
            if is_it(frame):
                return found

    def until_closed(self) -> list[Frame]:
        found: list[Frame] = []
        while (frame := self.receive()) is not None:
            found.append(frame)
        return found

    def status_of(self, stream_id: int) -> str:
        """Read a stream to its end: its status, or what it was reset with."""
        last = self.until(lambda frame: is_end(frame, stream_id))[-1]
        return code_of(last) if isinstance(last, RstStreamFrame) else self.responses[stream_id][":status"]

    def settle(self, content: bytes = b"settled!") -> list[Frame]:
        """Frames until the server has handled all that was sent."""
        self.send(ping(content))
        return self.until(lambda frame: isinstance(frame, PingFrame) and frame.opaque_data == content)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def over_tls(connected: socket.socket, context: ssl.SSLContext) -> socket.socket:
    """The same connection with TLS, HTTP/2 chosen in the handshake."""
    context.set_alpn_protocols(["h2"])
    wrapped = context.wrap_socket(connected, server_hostname="127.0.0.1")
    assert wrapped.selected_alpn_protocol() == "h2"
    return wrapped


def answered(frames: Iterable[Frame], kind: type[Any]) -> list[Any]:
    """The frames of this kind."""
    return [frame for frame in frames if isinstance(frame, kind)]
