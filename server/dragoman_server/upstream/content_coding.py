"""Decode gzip, deflate and zstd, one or several over another, incrementally and without I/O.

Clients compress their requests (Codex with zstd). Some upstreams compress although the gateway requests `identity`.
Output comes in bounded portions, because a small compressed body can unpack to gigabytes: other tasks can run between
two portions, and the caller sets a limit in bytes or in proportion to the input.
"""

import sys
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

# The most bytes that next_portion() returns. Parsing 16 KiB of the shortest events takes some milliseconds.
MAX_PORTION = 16 * 1024

# Bytes to which `ratio` does not apply, because short bodies often repeat one text.
FREE_BYTES = 1024 * 1024

# Empty frames of zstd or members of gzip in a row. Each costs a decoder.
_MAX_EMPTY = 100

# Two codings make no sense, but are allowed (RFC 9110, 8.4). More are an attack: each multiplies the size that the one
# before it has unpacked to.
_MAX_CODINGS = 2

# "An endpoint ... SHALL NOT use a window size ... larger than 8 MB" -- RFC 9659, for zstd as content coding.
# Its decoder allocates what the frame requests.
_ZSTD_WINDOW_LOG = 23


class CodingError(Exception):
    """The body does not have its content-encoding, or the encoding is unknown."""


class TooLarge(CodingError):
    """The decoded body is larger than allowed."""


class _Decompressor(Protocol):
    """The common part of the decompressors of zlib and zstd. It decodes one member of gzip, or one frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Layer:
    """The decoder of one coding. One member or frame may follow another.

    Attributes:
        returned: The number of bytes that have come out.
    """

    __slots__ = ("_decompressor", "_empty", "_more", "_name", "_pending", "returned")

    def __init__(self, name: str) -> None:
        self.returned = 0
        self._name = name
        self._pending = b""
        self._more = False
        self._empty = 0
        self._decompressor: _Decompressor | None = None

    def receive_data(self, data: bytes) -> None:
        self._pending += data

    def next_portion(self) -> bytes:
        # After a full portion there may be more output, although all the input was taken.
        while self._pending or self._more:
            if self._decompressor is None or self._decompressor.eof:
                if len(self._pending) < 2:  # see _deflate()
                    return b""
                if self._empty == _MAX_EMPTY:
                    raise CodingError(f"the body has {_MAX_EMPTY} empty members or frames in a row")
                self._empty += 1
                self._decompressor = _CODINGS[self._name](self._pending)
            try:
                data = self._decompressor.decompress(self._pending, MAX_PORTION)
            except _error_of(self._name):
                window = ", or needs a window of more than 8 MB" if self._name == "zstd" else ""
                raise CodingError(f"the body is not valid {self._name}{window}") from None
            is_whole = self._decompressor.eof
            # zlib's decompressor returns the input that it has not taken, zstd's keeps it.
            rest: bytes = getattr(self._decompressor, "unconsumed_tail", b"")
            self._pending = self._decompressor.unused_data if is_whole else rest
            self._more = len(data) == MAX_PORTION and not is_whole
            if data:
                self._empty = 0
                self.returned += len(data)
                return data
        return b""

    def receive_eof(self) -> None:
        if self._pending or not (self._decompressor is None or self._decompressor.eof):
            raise CodingError(f"the {self._name} body is cut off")


def _deflate(start: bytes) -> _Decompressor:
    # "deflate" is a zlib stream, but "some non-conformant implementations send the deflate compressed
    # data without the zlib wrapper". The wrapper starts with a method of 8 and a check of its two bytes
    # -- https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1.2
    first, second = start[0], start[1]
    wrapped = first & 0x0F == 8 and (first << 8 | second) % 31 == 0
    return zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


@cache
def _zstd() -> Any:
    """Return the module. Most processes never need it, and its import takes as long as five requests."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _error_of(coding: str) -> type[Exception]:
    """Return what its decompressor raises. Others than zstd have to import nothing for that."""
    error: type[Exception] = _zstd().ZstdError if coding == "zstd" else zlib.error
    return error


def _zstd_decompressor(start: bytes) -> _Decompressor:
    zstd = _zstd()
    decompressor: _Decompressor = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    )
    return decompressor


# Each makes the decompressor of what begins with these bytes, two at least.
_CODINGS: dict[str, Callable[[bytes], _Decompressor]] = {
    "gzip": lambda start: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": _zstd_decompressor,
}


class ContentDecoder:
    """Decoder of a body.

    Call receive_data(), then next_portion() until it returns None, and so on; at the end of the body receive_eof(). All
    three raise CodingError for bad data.

    Args:
        layers: the outermost coding first.
        limit: the most bytes that may come out of any layer, None for any number.
        ratio: the most bytes that may come out of any layer for each byte that came in, beyond FREE_BYTES; None for any
            number.
    """

    __slots__ = ("_layers", "_limit", "_ratio", "_received")

    def __init__(self, layers: Sequence[_Layer], limit: int | None = None, ratio: int | None = None) -> None:
        self._layers = layers
        self._limit = limit
        self._ratio = ratio
        self._received = 0

    def receive_data(self, data: bytes) -> None:
        self._received += len(data)
        self._layers[0].receive_data(data)

    def next_portion(self) -> bytes | None:
        """Return at most MAX_PORTION bytes of the decoded body; b"" if there may be more; None if it needs input.

        Raises TooLarge if the decoded body is larger than the limit or the ratio allows.
        """
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            portion = layer.next_portion()
            if not portion:
                continue
            if self._limit is not None and layer.returned > self._limit:
                raise TooLarge(f"the body unpacks to more than {self._limit} bytes")
            if self._ratio is not None and layer.returned > FREE_BYTES + self._ratio * self._received:
                raise TooLarge(f"the body unpacks to more than {self._ratio} times its size")
            if number == len(self._layers) - 1:
                return portion
            self._layers[number + 1].receive_data(portion)
            return b""
        return None

    def receive_eof(self) -> None:
        """Check that the coding has ended with the body, else raise CodingError. An empty body is valid."""
        for layer in self._layers:
            layer.receive_eof()


# "A recipient SHOULD consider x-gzip to be equivalent to gzip."
# -- https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1.3
_SYNONYMS = {"x-gzip": "gzip"}

# For the header accept-encoding of a 415.
ACCEPTED_CODINGS = ", ".join(_CODINGS)


def decoder_for(
    content_encoding: str, limit: int | None = None, ratio: int | None = None
) -> ContentDecoder | None:
    """Return the decoder for a content-encoding header; None if the body is not encoded. Raises CodingError.

    limit, ratio: see ContentDecoder.
    """
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [_SYNONYMS.get(name, name) for name in names if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > _MAX_CODINGS or not _CODINGS.keys() >= set(names):
        # The peer has written the header, so the message contains only a short, printable part of it.
        quoted = ascii(content_encoding.strip()[:40])
        raise CodingError(
            f"content-encoding {quoted} is not supported: the gateway decodes {ACCEPTED_CODINGS}, at most "
            f"{_MAX_CODINGS} at once"
        )
    # "in the order in which they were applied" (RFC 9110, 8.4): the last one is the outermost.
    return ContentDecoder([_Layer(name) for name in reversed(names)], limit, ratio)
