"""gzip and deflate, undone piece by piece without I/O.

The gateway asks for `identity`; some servers compress all the same. Output comes in bounded portions,
because a small compressed body can unpack to gigabytes, and only its reader knows how much is too much.
"""

import enum
import zlib

__all__ = ["MAX_PORTION", "CodingError", "ContentDecoder", "decoder_for"]

# Most bytes that one call of `next_portion` gives. Compression reaches a thousand to one.
MAX_PORTION = 256 * 1024


class CodingError(Exception):
    """The body is not what its content-encoding says, or the encoding is unknown."""


class _Format(enum.Enum):
    GZIP = "gzip"
    DEFLATE = "deflate"


# "A recipient SHOULD consider x-gzip to be equivalent to gzip."
# -- https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1.3
_FORMATS = {"gzip": _Format.GZIP, "x-gzip": _Format.GZIP, "deflate": _Format.DEFLATE}


def decoder_for(content_encoding: str) -> "ContentDecoder | None":
    """The decoder for a content-encoding header; None if there is nothing to undo. Raises CodingError."""
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _FORMATS:
        # The header is a peer's text: a short, printable cut of it goes into the message.
        shown = ascii(", ".join(names)[:40])
        raise CodingError(f"content-encoding {shown} cannot be decoded: the gateway reads gzip and deflate")
    return ContentDecoder(_FORMATS[names[0]])


class ContentDecoder:
    """Feed with `receive_data` and call `next_portion` until it gives b"", then feed again.

    At the end of the body call `receive_eof`. All three raise CodingError for bad data.
    """

    __slots__ = ("_format", "_inflate", "_more", "_pending", "_started")

    def __init__(self, coding: _Format) -> None:
        self._format = coding
        self._pending = b""
        self._inflate: zlib._Decompress | None = None
        self._more = False
        self._started = False

    def receive_data(self, data: bytes) -> None:
        self._pending += data
        self._started = True

    def next_portion(self) -> bytes:
        """The next bytes of the decoded body, at most MAX_PORTION; b"" when more input is needed."""
        # A full portion can leave output inside zlib although it has taken all the input.
        while self._pending or self._more:
            if self._inflate is None or self._inflate.eof:
                if len(self._pending) < 2:
                    return b""
                self._inflate = zlib.decompressobj(self._window_bits())
            try:
                data = self._inflate.decompress(self._pending, MAX_PORTION)
            except zlib.error:
                raise CodingError(f"the body is not valid {self._format.value}") from None
            # What follows the end of one gzip member is the next member.
            self._pending = self._inflate.unconsumed_tail or self._inflate.unused_data
            self._more = len(data) == MAX_PORTION and not self._inflate.eof
            if data:
                return data
        return b""

    def receive_eof(self) -> None:
        """The body has ended: CodingError unless its coding has ended too. No body at all is fine."""
        if self._started and (self._pending or self._inflate is None or not self._inflate.eof):
            raise CodingError(f"the {self._format.value} body is cut off")

    def _window_bits(self) -> int:
        """zlib's name for the format that begins in `_pending`, of which two bytes are there."""
        if self._format is _Format.GZIP:
            return zlib.MAX_WBITS | 16
        # "deflate" is a zlib stream, but "some non-conformant implementations send the deflate compressed
        # data without the zlib wrapper". The wrapper starts with a method of 8 and a check of its two bytes
        # -- https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1.2
        first, second = self._pending[0], self._pending[1]
        wrapped = first & 0x0F == 8 and (first << 8 | second) % 31 == 0
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS
