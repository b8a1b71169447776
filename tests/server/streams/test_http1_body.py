"""The chunk decoder: tables of coded bytes in, body bytes out, however the input is cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.streams.http1_body import MAX_CHUNK_LINE, MAX_TRAILERS, ChunkedBody

NEXT = b"HTTP/1.1 200 OK\r\n"

BODIES = {
    "no chunk": (b"0\r\n\r\n", b""),
    "one chunk": (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "two chunks": (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
    "upper and lower hex": (b"A\r\n0123456789\r\nb\r\n0123456789a\r\n0\r\n\r\n", b"01234567890123456789a"),
    "leading zeros": (b"0005\r\nhello\r\n0000\r\n\r\n", b"hello"),
    "sixteen digits": (b"0000000000000001\r\nx\r\n0\r\n\r\n", b"x"),
    "blanks after the size": (b"5  \t\r\nhello\r\n0 \r\n\r\n", b"hello"),
    "extensions": (b'5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n', b"hello"),
    "trailers": (b"1\r\nx\r\n0\r\nDigest: a b\r\nx-empty:\r\n\r\n", b"x"),
    "payload that looks like framing": (b"9\r\n0\r\n\r\n5\r\na\r\n0\r\n\r\n", b"0\r\n\r\n5\r\na"),
    "payload that looks like framing, behind a plain one": (
        b"1\r\na\r\n7\r\n2\r\nbc\r\n\r\n0\r\n\r\n",
        b"a2\r\nbc\r\n",
    ),
    "payload of CRLFs": (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n"),
    "longest size line": (b"1;" + b"e" * (MAX_CHUNK_LINE - 4) + b"\r\nx\r\n0\r\n\r\n", b"x"),
    "longest trailers": (b"0\r\na:" + b"v" * (MAX_TRAILERS - 4) + b"\r\n\r\n", b""),
}

SIZE_LINE = "a chunk-size line is not hex digits, an optional extension and CRLF"
SIZE_LINE_LENGTH = f"a chunk-size line is longer than {MAX_CHUNK_LINE} bytes"
PAYLOAD_END = "a chunk's payload is not followed by CRLF"
TRAILER = "a trailer line is not a header field"
TRAILER_END = "a trailer line does not end in CRLF"
TRAILER_LENGTH = f"trailers are longer than {MAX_TRAILERS} bytes"

# The good bytes before the error come out first.
ERRORS = {
    "not hex": (b"5\r\nhello\r\nxyz\r\n", b"hello", SIZE_LINE),
    "empty size": (b"\r\n", b"", SIZE_LINE),
    "0x prefix": (b"0x5\r\nhello\r\n", b"", SIZE_LINE),
    "sign": (b"+5\r\nhello\r\n", b"", SIZE_LINE),
    "underscore": (b"1_0\r\n", b"", SIZE_LINE),
    "blank before the size": (b" 5\r\nhello\r\n", b"", SIZE_LINE),
    "seventeen digits": (b"00000000000000005\r\nhello\r\n", b"", SIZE_LINE),
    "seventeen digits, behind a plain chunk": (b"1\r\na\r\n00000000000000005\r\nhello\r\n", b"a", SIZE_LINE),
    "bare LF after the size": (b"5\nhello\r\n", b"", SIZE_LINE),
    "bare CR after the size": (b"5\rhello\r\n", b"", SIZE_LINE),
    "bare LF in an extension": (b"5;a\nb\r\nhello\r\n", b"", SIZE_LINE),
    "NUL in an extension": (b"5;a\x00b\r\nhello\r\n", b"", SIZE_LINE),
    "size line one byte too long": (b"1;" + b"e" * (MAX_CHUNK_LINE - 3) + b"\r\nx\r\n", b"", SIZE_LINE_LENGTH),
    "size line without end": (b"1;" + b"e" * MAX_CHUNK_LINE, b"", SIZE_LINE_LENGTH),
    "payload longer than its size": (b"3\r\nhello\r\n", b"hel", PAYLOAD_END),
    "payload followed by LF": (b"5\r\nhello\n0\r\n\r\n", b"hello", PAYLOAD_END),
    "payload followed by CR": (b"5\r\nhello\rX", b"hello", PAYLOAD_END),
    "trailer without a colon": (b"1\r\nx\r\n0\r\nnonsense\r\n\r\n", b"x", TRAILER),
    "trailer with a folded line": (b"0\r\na: b\r\n c\r\n\r\n", b"", TRAILER),
    "trailer with a bare CR": (b"0\r\na: b\rc\r\n\r\n", b"", TRAILER),
    "trailer ended by LF": (b"0\r\na: b\n", b"", TRAILER_END),
    "trailers too long": (b"0\r\n" + b"a: " + b"v" * MAX_TRAILERS, b"", TRAILER_LENGTH),
    "too many trailers": (b"0\r\n" + b"a: bcdefgh\r\n" * (MAX_TRAILERS // 12 + 1), b"", TRAILER_LENGTH),
}  # fmt: skip


def fed(reads: list[bytes]) -> tuple[ChunkedBody, bytes]:
    decoder = ChunkedBody(padded=True)
    return decoder, b"".join([decoder.receive_data(read) for read in reads])


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def everywhere_cut_in_two(data: bytes) -> list[list[bytes]]:
    return [[data[:i], data[i:]] for i in range(len(data))] if len(data) < 200 else []


@pytest.mark.promise("R4")
def test_a_body_is_decoded_however_it_is_cut() -> None:
    """And what follows it is left over."""
    for name, (coded, body) in BODIES.items():
        alone = [[coded], one_by_one(coded), *everywhere_cut_in_two(coded)]
        followed = [[coded + NEXT], one_by_one(coded + NEXT), [coded, NEXT]]
        for reads, rest in [*((each, b"") for each in alone), *((each, NEXT) for each in followed)]:
            decoder, decoded = fed(reads)
            found = decoded, decoder.complete, decoder.error, decoder.unused
            assert found == (body, True, None, rest), (name, reads)


def test_an_error_is_the_same_however_the_input_is_cut() -> None:
    for name, (coded, good, error) in ERRORS.items():
        for reads in [[coded], one_by_one(coded), *everywhere_cut_in_two(coded)]:
            decoder, decoded = fed(reads)
            assert (decoded, str(decoder.error), decoder.complete) == (good, error, False), (name, reads)


def test_nothing_comes_out_after_an_error() -> None:
    decoder, _ = fed([b"zz\r\n"])
    error = decoder.error
    assert decoder.receive_data(b"5\r\nhello\r\n0\r\n\r\n") == b""
    decoder.receive_eof()
    assert decoder.error is error
    assert not decoder.complete


def test_an_end_before_the_last_crlf_is_an_error() -> None:
    for cut in range(len(b"5\r\nhello\r\n0\r\na: b\r\n\r\n")):
        decoder, _ = fed([b"5\r\nhello\r\n0\r\na: b\r\n\r\n"[:cut]])
        decoder.receive_eof()
        assert str(decoder.error) == "the connection ended without the last chunk of the body", cut


def test_an_end_after_the_body_is_no_error() -> None:
    decoder, _ = fed([b"0\r\n\r\n"])
    decoder.receive_eof()
    assert decoder.error is None


def test_all_chunks_of_one_read_are_one_bytes_object() -> None:
    decoder = ChunkedBody(padded=True)
    assert decoder.receive_data(b"1\r\na\r\n1\r\nb\r\n4\r\ncd") == b"abcd"
    assert decoder.receive_data(b"ef\r\n1\r\ng\r\n") == b"efg"


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=12),
    cuts=st.lists(st.integers(min_value=0, max_value=600), max_size=8),
    tail=st.binary(max_size=8),
)
def test_any_chunks_cut_anywhere_give_their_payloads(
    chunks: list[bytes], cuts: list[int], tail: bytes
) -> None:
    coded = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n" + tail
    edges = sorted({0, len(coded), *(c for c in cuts if c < len(coded))})
    reads = [coded[a:b] for a, b in itertools.pairwise(edges)]
    decoder, decoded = fed(reads)
    assert (decoded, decoder.complete, decoder.unused) == (b"".join(chunks), True, tail)


# Bytes that mean something to the decoder, so that errors lie deeper than in random ones.
FRAMING_BYTES = st.text("01a:; x\r\n", max_size=40).map(str.encode)


@given(data=FRAMING_BYTES | FRAMING_BYTES.map(b"0\r\n".__add__), cut=st.integers(min_value=0, max_value=43))
def test_any_bytes_end_the_same_way_whole_or_cut(data: bytes, cut: int) -> None:
    whole, body = fed([data])
    halved, same_body = fed([data[:cut], data[cut:]])
    expected = (same_body, str(halved.error), halved.complete, halved.unused)
    assert (body, str(whole.error), whole.complete, whole.unused) == expected
