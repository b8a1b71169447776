"""Invariant: whatever frames come in over HTTP/2, in whatever order, the server responds to others, writes no
traceback and keeps no descriptor.
"""

import json

import pytest
from edge import CHAT_PATH, chat
from fuzz import chunks, cut_places, cuts, damage, run
from fuzz_server import Served
from h2_client import PREFACE
from hpack import Encoder
from hyperframe import frame as h2
from hyperframe.exceptions import HyperframeError
from hypothesis import strategies as st

pytestmark = [pytest.mark.process, pytest.mark.fuzz]

_BODY = json.dumps(chat()).encode()


def _headers(method: str, path: str, **more: str) -> bytes:
    fields = {":method": method, ":scheme": "https", ":authority": "127.0.0.1", ":path": path, **more}
    # Nothing is added to the table of the connection, so that frames may come in any order.
    return Encoder().encode([(name, value, True) for name, value in fields.items()], huffman=False)


_HEADERS = [
    _headers("POST", CHAT_PATH, **{"content-type": "application/json", "content-length": str(len(_BODY))}),
    _headers("POST", CHAT_PATH, **{"content-type": "application/json"}),
    _headers("GET", "/healthz"),
    _headers("GET", ""),
    _headers("CONNECT", "/"),
    _headers("POST", "/v1/messages", **{"content-length": "-1", "connection": "close"}),
    _headers("POST", "/v1/responses", Upper="x", te="gzip"),
    b"\xff\xff\xff",
    b"",
]
_flags = st.sets(st.sampled_from(["END_STREAM", "END_HEADERS", "ACK", "PRIORITY", "PADDED"]), max_size=3)


def _frame(kind: str, stream: int, flags: set[str], data: bytes, number: int) -> bytes:
    """One frame, without flags that its kind does not have."""
    made: h2.Frame
    try:
        if kind == "headers":
            made = h2.HeadersFrame(stream, data=data)
        elif kind == "data":
            made = h2.DataFrame(stream, data=data)
        elif kind == "continuation":
            made = h2.ContinuationFrame(stream, data=data)
        elif kind == "settings":
            made = h2.SettingsFrame(0, settings={} if "ACK" in flags else {number % 8: number})
        elif kind == "window":
            made = h2.WindowUpdateFrame(stream, window_increment=number)
        elif kind == "ping":
            made = h2.PingFrame(0, opaque_data=data[:8].ljust(8, b"x"))
        elif kind == "reset":
            made = h2.RstStreamFrame(stream, error_code=number % 20)
        elif kind == "priority":
            made = h2.PriorityFrame(stream, depends_on=number % 8, stream_weight=number % 256)
        elif kind == "goaway":
            made = h2.GoAwayFrame(0, last_stream_id=stream, error_code=number % 20)
        else:
            made = h2.PushPromiseFrame(stream, promised_stream_id=2, data=data)
        for flag in flags & {each.name for each in made.defined_flags}:
            made.flags.add(flag)
        return bytes(made.serialize())
    except (HyperframeError, ValueError):
        return b""


_KINDS = (
    *("headers", "headers", "headers", "data", "data", "continuation", "settings"),
    *("window", "ping", "reset", "reset", "priority", "goaway", "push"),
)
frames = st.builds(
    _frame,
    st.sampled_from(_KINDS),
    st.sampled_from([1, 1, 3, 3, 5, 7, 0, 2, 2**31 - 1]),
    _flags,
    st.sampled_from([*_HEADERS, _HEADERS[0], _BODY, _BODY[:10], b"x" * 20_000]),
    st.sampled_from([0, 1, 3, 8, 100, 65_535, 2**31 - 1]),
)
_REQUEST = _frame("headers", 1, {"END_HEADERS"}, _HEADERS[0], 0)
_REMAINING_BODY = _frame("data", 1, {"END_STREAM"}, _BODY, 0)
streams = st.tuples(
    st.lists(
        st.one_of(frames, st.sampled_from([_REQUEST, _REQUEST, _REMAINING_BODY, _REMAINING_BODY])),
        max_size=12,
    ).map(b"".join),
    st.one_of(st.just([]), st.just([]), st.lists(cuts, max_size=2)),
).map(lambda drawn: PREFACE + damage(h2.SettingsFrame(0).serialize() + drawn[0], drawn[1]))


@pytest.mark.promise("R2")
def test_any_frames(served: Served) -> None:
    def check(data: bytes, places: list[int], responses: bool) -> None:
        served.send("h2", chunks(data, places), responses)
        served.is_alive()

    run(check, streams, cut_places, st.booleans(), examples=20, after=served.is_well, shrinks=False)
