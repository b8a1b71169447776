"""gzip, deflate and zstd bodies, chunk by chunk and bounded."""

import gzip
import os
import sys
import zlib

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from dragoman_server.upstream import content_coding
from dragoman_server.upstream.content_coding import (
    FREE_BYTES,
    MAX_PORTION,
    CodingError,
    ContentDecoder,
    TooLarge,
    decoder_for,
)

TEXT = b'data: {"delta":"hello"}\n\n' * 40


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


CODED = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip, upper case": ("X-GZIP", gzip.compress(TEXT)),
    "gzip among identities": (" identity, gzip ,", gzip.compress(TEXT)),
    "gzip in two members": ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate, fast": ("deflate", zlib.compress(TEXT, 1)),
    "deflate without the zlib wrapper": ("deflate", raw_deflate(TEXT)),
    "zstd": ("zstd", zstd.compress(TEXT)),
    "zstd in two frames": ("ZSTD", zstd.compress(TEXT[:100]) + zstd.compress(TEXT[100:])),
    "gzip, then zstd": ("gzip, zstd", zstd.compress(gzip.compress(TEXT))),
    "zstd, then deflate": ("zstd, identity, deflate", zlib.compress(zstd.compress(TEXT))),
    "gzip twice": ("gzip, x-gzip", gzip.compress(gzip.compress(TEXT))),
}


def decoded(decoder: ContentDecoder, chunks: list[bytes]) -> bytes:
    out = b""
    for chunk in chunks:
        decoder.receive_data(chunk)
        out += b"".join(iter(decoder.next_portion, None))
    return out


def made(header: str, **limits: int) -> ContentDecoder:
    decoder = decoder_for(header, **limits)
    assert decoder is not None
    return decoder


def test_a_body_is_decoded_however_it_is_cut() -> None:
    for name, (header, coded) in CODED.items():
        for chunks in ([coded], [coded[i : i + 1] for i in range(len(coded))]):
            decoder = made(header)
            assert decoded(decoder, chunks) == TEXT, (name, chunks)
            decoder.receive_eof()


@pytest.mark.parametrize("header", ["", "identity", "Identity, ,"])
def test_there_may_be_nothing_to_undo(header: str) -> None:
    assert decoder_for(header) is None


@pytest.mark.parametrize("header", ["br", "gzip, br", "gzip, gzip, gzip", "gzip\r\nx"])
def test_other_codings_are_refused(header: str) -> None:
    with pytest.raises(CodingError, match="the gateway decodes gzip, deflate, zstd") as caught:
        decoder_for(header)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("header", "coded"), CODED.values(), ids=CODED)
def test_a_body_that_is_cut_off_is_an_error(header: str, coded: bytes) -> None:
    for length in (1, 2, len(coded) - 1):
        decoder = made(header)
        decoded(decoder, [coded[:length]])
        with pytest.raises(CodingError, match="is cut off"):
            decoder.receive_eof()


@pytest.mark.parametrize("header", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_something_else_is_an_error(header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if header != "zstd":  # a process that has no file left to open cannot import it
        monkeypatch.setattr(content_coding, "_zstd", None)
    with pytest.raises(CodingError, match=f"the body is not valid {header}"):
        decoded(made(header), [b"\xff\xffnot compressed at all"])


def test_no_body_at_all_is_no_error() -> None:
    decoder = made("gzip")
    assert decoder.next_portion() is None
    decoder.receive_eof()


PACKERS = {"gzip": gzip.compress, "zstd": zstd.compress}


SIZES: list[int] = [MAX_PORTION - 1, MAX_PORTION, MAX_PORTION + 1, 3 * MAX_PORTION + 17]


@pytest.mark.parametrize("coding", PACKERS)
@pytest.mark.promise("S8")
def test_portions_are_bounded_and_none_is_lost(coding: str) -> None:
    for size in SIZES:
        decoder = made(coding)
        decoder.receive_data(PACKERS[coding](b"\0" * size))
        portions = list(iter(decoder.next_portion, None))
        assert max(map(len, portions)) <= MAX_PORTION, size
        assert sum(map(len, portions)) == size, size
        decoder.receive_eof()


def test_a_zstd_frame_with_a_large_window_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    coded = packer.compress(os.urandom(100)) + packer.flush()
    with pytest.raises(CodingError, match="a window of more than 8 MB"):
        decoded(made("zstd"), [coded])


@pytest.mark.promise("S8")
@pytest.mark.parametrize("coding", PACKERS)
def test_decompressed_data_has_a_limit_and_one_in_proportion_to_its_input(coding: str) -> None:
    def unpack(size: int, **limits: int) -> int:
        return len(decoded(made(coding, **limits), [PACKERS[coding](bytes(size))]))

    assert unpack(100, limit=100) == 100
    with pytest.raises(TooLarge, match="more than 100 bytes"):
        unpack(101, limit=100)
    assert unpack(FREE_BYTES, ratio=2) == FREE_BYTES
    with pytest.raises(TooLarge, match="more than 2 times its size"):
        unpack(2 * FREE_BYTES, ratio=2)


@pytest.mark.promise("S8")
@pytest.mark.parametrize("coding", PACKERS)
def test_empty_frames_have_a_limit(coding: str) -> None:
    """8 bytes cost a decoder, and a copy of the bytes after them."""
    empty = (
        gzip.compress(b"", mtime=0) if coding == "gzip" else b"\x50\x2a\x4d\x18\0\0\0\0"
    )  # a skippable frame
    chunks = [empty * 100 + PACKERS[coding](b"a")] * 3
    with pytest.raises(CodingError, match="100 empty members or frames in a row"):
        decoded(made(coding), chunks)
    chunks = [empty * 99 + PACKERS[coding](b"a")] * 3
    assert decoded(made(coding), chunks) == b"aaa"


def test_the_limit_holds_between_two_codings() -> None:
    """Empty members unpack to nothing, however many there are."""
    inner = gzip.compress(b"", mtime=0) * 10_000
    decoder = decoder_for("gzip, zstd", 10_000)
    assert decoder is not None
    with pytest.raises(TooLarge):
        decoded(decoder, [zstd.compress(inner)])
