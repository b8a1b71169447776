"""Invariant: whatever bytes a compressed body has, the decoder gives portions of a bounded size or a CodingError, the
same however they are cut, and of a body that is whole exactly what was compressed.
"""

import gzip
import sys
import zlib

from fuzz import chunks, cut_places, cuts, damage, fuzz, streams
from hypothesis import strategies as st

from dragoman_server.upstream.content_coding import MAX_PORTION, CodingError, TooLarge, decoder_for

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1024 * 1024
CODERS = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "gzip, zstd": lambda data: zstd.compress(gzip.compress(data, mtime=0)),
}
# By name, because Hypothesis writes each value out.
PLAIN = {"": b"", "x": b"x", "zeros": b"\0" * 700_000, "too large": b"\n" * (LIMIT + 1)} | {
    name: each[0] for name, each in streams().items()
}


def decoded(coding: str, parts: list[bytes]) -> tuple[bytes, type[CodingError] | None]:
    decoder = decoder_for(coding, LIMIT)
    assert decoder is not None
    out = b""
    try:
        for part in parts:
            decoder.receive_data(part)
            while (portion := decoder.next_portion()) is not None:
                assert len(portion) <= MAX_PORTION
                out += portion
        decoder.receive_eof()
    except CodingError as error:
        return out, type(error)
    return out, None


def check(coding: str, name: str, plan: list[tuple[int, int, bytes]], places: list[int]) -> None:
    plain = PLAIN[name]
    coded = CODERS[coding](plain)
    changed = damage(coded, plan)
    out, error = decoded(coding, chunks(changed, places))
    assert len(out) <= LIMIT
    whole, same = decoded(coding, [changed])
    # What is whole before the place of an error may come or not: an error ends the response anyway. A body that is both
    # damaged and too large may be found to be either.
    assert (error is None) == (same is None)
    assert error is not None or out == whole
    if changed == coded:
        assert (out, error) == ((plain, None) if len(plain) <= LIMIT else (out, TooLarge))


@fuzz(
    st.sampled_from(sorted(CODERS)),
    st.sampled_from(sorted(PLAIN)),
    st.lists(cuts, max_size=2),
    cut_places,
    examples=150,
)
def test_damaged_bodies(
    coding: str, name: str, plan: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    check(coding, name, plan, places)
