"""Invariant: between all pairs of protocols a request, however mutated, becomes one for the upstream or is refused with
a place, and a value that nobody knows is in what comes out, or its place is in the ledger.
"""

from typing import Any

import msgspec
import pytest
from fuzz import change, fuzz, mutated_json, steps
from hypothesis import strategies as st
from laws.fixtures import REQUESTS
from laws.unknown import lost_of_request
from oracle import PROTOCOL_NAMES

from dragoman import PROTOCOLS, UPSTREAMS, RemoteProtocolError, RequestRefused, RequestTranslator
from dragoman._wire.json import decode_object

BODIES = {protocol: list(bodies.values()) for protocol, bodies in REQUESTS.items()}
PAIRS = [(client, upstream) for client in BODIES for upstream in PROTOCOL_NAMES]
upstreams = st.sampled_from(PROTOCOL_NAMES)
# What upstreams take differs; the passes for it are in the way of every request.
targets = st.sampled_from(
    [
        {},
        {"relay": "rewrite"},
        {"custom_tools": True, "mid_system": True, "cache_marks": "breakpoint", "tool_images": True},
        {
            "turn_order": "alternate",
            "structured_output": "none",
            "call_ids": "alnum9",
            "forced_tools": "no",
            "prefill": False,
        },
    ]
)


def check(client: str, body: bytes, upstream: str, capabilities: dict[str, Any]) -> None:
    try:
        done = RequestTranslator(
            client=PROTOCOLS[client],
            upstream=UPSTREAMS[upstream],
            capabilities=msgspec.convert(capabilities, UPSTREAMS[upstream].capabilities),
            max_fan_out=4,
        ).translate(body)
    except (RemoteProtocolError, RequestRefused) as error:
        refusal = error
    else:
        # A value of a wrong type that every protocol has may go on: its upstream is the one to refuse it.
        assert not done.relayed or done.body == body
        # A relay passes on bytes that are no UTF-8 inside of a value (tests/sansio/wire/test_splice.py).
        sent = done.body.decode(errors="replace").encode() if done.relayed else done.body
        assert isinstance(decode_object(sent, "what was written"), dict)
        return
    assert 400 <= refusal.status < 500
    assert refusal.path or refusal.code == "invalid_json" or refusal.message.endswith("nested too deep"), (
        refusal
    )


@fuzz(mutated_json(BODIES), upstreams, targets, examples=150)
def test_mutated_requests(drawn: tuple[str, bytes], upstream: str, capabilities: dict[str, Any]) -> None:
    check(*drawn, upstream, capabilities)


@pytest.mark.promise("R13")
@fuzz(st.sampled_from(PAIRS), st.lists(steps, max_size=3), st.data(), examples=100)
def test_unknown_fields_of_mutated_requests_are_recorded(
    pair: tuple[str, str], plan: list[Any], data: st.DataObject
) -> None:
    client, upstream = pair
    body = change(data.draw(st.sampled_from(BODIES[client])), plan)
    if isinstance(body, dict) and client != upstream and client in PROTOCOL_NAMES:
        assert lost_of_request(client, upstream, body, data) == []
