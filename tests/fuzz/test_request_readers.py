"""Invariant: whatever JSON or bytes a client sends, its protocol's reader gives a request, or a RemoteProtocolError
that says where, and no other exception; and it takes a time that grows with the size alone.
"""

import time

from fuzz import fuzz, mutated_json
from hypothesis import strategies as st
from laws.fixtures import REQUESTS
from laws.unknown import VALUES

from dragoman import PROTOCOLS, RemoteProtocolError, Signer
from dragoman._wire.json import decode_object, encode
from dragoman.document import Request

BODIES = {protocol: list(bodies.values()) for protocol, bodies in REQUESTS.items()}
anything = st.tuples(
    st.sampled_from(sorted(BODIES)),
    st.one_of(
        st.binary(max_size=60), VALUES.map(encode), st.dictionaries(st.text(max_size=6), VALUES).map(encode)
    ),
)
# Of processor time; a request of 64 messages takes 0.15 ms.
MAX_MS = 50
MAX_MS_PER_KB = 5


def check(protocol: str, body: bytes) -> None:
    started = time.thread_time()
    refusal: RemoteProtocolError | None = None
    try:
        request = PROTOCOLS[protocol].read_request(decode_object(body, "the request body"), Signer())
        assert isinstance(request, Request)
    except RemoteProtocolError as error:
        refusal = error
    spent_ms = (time.thread_time() - started) * 1000
    assert spent_ms < MAX_MS + MAX_MS_PER_KB * len(body) / 1024
    if refusal is not None:
        assert 400 <= refusal.status < 500
        # Where the whole body is no JSON object there is no place inside of it.
        assert refusal.path or refusal.code == "invalid_json", refusal


@fuzz(mutated_json(BODIES), examples=150)
def test_mutated_requests(drawn: tuple[str, bytes]) -> None:
    check(*drawn)


@fuzz(anything, examples=80)
def test_anything(drawn: tuple[str, bytes]) -> None:
    check(*drawn)
