"""Invariant: whatever bytes come in over HTTP/1.1, the server responds to others, never with a 500, writes no
traceback and keeps no descriptor.
"""

import pytest
from edge import CHAT_PATH, chat, post
from fuzz import chunks, cut_places, cuts, damage, mutated_json, run
from fuzz_server import Served
from gateway.scripted import PATHS
from hypothesis import strategies as st
from laws.fixtures import REQUESTS

pytestmark = [pytest.mark.process, pytest.mark.fuzz]

_HEADS = [
    post(CHAT_PATH, chat()),
    post(CHAT_PATH, chat(stream=False)),
    post(CHAT_PATH, chat(), {"expect": "100-continue"}),
    b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 2,
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\n\r\n",
    b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n"
    b"\r\n\x1f\x8b\x08\x00",
    b"OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://a\r\naccess-control-request-method: POST\r\n\r\n",
    b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade, http2-settings\r\n"
    b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
_bodies = {name: [*REQUESTS[name].values()] for name in PATHS}
requests = st.one_of(
    st.tuples(
        st.lists(st.sampled_from(_HEADS), min_size=1, max_size=3).map(b"".join), st.lists(cuts, max_size=4)
    ).map(lambda drawn: damage(*drawn)),
    mutated_json(_bodies).map(
        lambda drawn: post(PATHS[drawn[0]], drawn[1].replace(b'"some-model"', b'"up/m"'))
    ),
)


@pytest.mark.promise("R2")
def test_any_bytes(served: Served) -> None:
    def check(data: bytes, places: list[int], responses: bool) -> None:
        found = served.send("http/1.1", chunks(data, places), responses)
        assert not found.startswith(b"HTTP/1.1 500"), found
        served.is_alive()

    run(check, requests, cut_places, st.booleans(), examples=20, after=served.is_well, shrinks=False)
