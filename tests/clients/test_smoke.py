"""The other event loops and the async clients, over some pairs; all pairs on one loop are in the other files."""

import json
from typing import Any

import pytest
from oracle import Kind
from sdk_clients.processes import CROSSED, PAIRS, Gateway, Pair
from sdk_clients.sdk import Sdk, body_of, each_way, next_turn, send

pytestmark = [
    pytest.mark.process,
    pytest.mark.parametrize(("backend", "kind"), [("trio", "async"), ("uvloop", "sync")]),
    pytest.mark.parametrize("pair", [*CROSSED, PAIRS[0]], ids=str),
]


@pytest.fixture
def gateway(backend: str, gateway_on: Any) -> Gateway:
    if backend == "uvloop":
        pytest.importorskip("uvloop")
    found: Gateway = gateway_on(backend)
    return found


@each_way
def test_a_tool_loop(pair: Pair, sdk: Sdk, way: Any) -> None:
    body = body_of(pair.client, pair.model("tools"), "Look and see", tools=("look", "see"))
    first = send(sdk, pair.client, way, body)
    calls = [(call.name, json.loads(call.text)["days"]) for call in first.meaning.calls]
    assert calls == [("look", 2), ("see", 2)]
    second = send(sdk, pair.client, way, next_turn(pair.client, body, first, ["one", "two"]))
    assert second.meaning.text(Kind.TEXT) == "look returned: one\nsee returned: two"


def test_the_models(pair: Pair, sdk: Sdk) -> None:
    assert pair.model("echo") in sdk.models(pair.client)
