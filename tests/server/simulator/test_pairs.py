"""Agent loops against the simulator through the translator, over all pairs of different protocols.

The simulator refuses reasoning that does not come back byte for byte, so a loop that goes on is a proof.
"""

import itertools
import json

import pytest
from laws.clients import endpoint_of
from oracle import Kind, check_stream, check_whole, meaning_of_whole
from simulator_requests import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, Body, encoded, follow, request_body

from dragoman import PROTOCOLS, RequestTranslator, ResponseTranslator
from dragoman_server.simulator import reply_to
from dragoman_server.simulator.scripts import CUSTOM_INPUT

PAIRS = list(itertools.permutations(PROTOCOL_NAMES, 2))
pairs = pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=[" to ".join(pair) for pair in PAIRS])


def context(client: str, upstream: str, body: Body) -> bytes:
    """Return what a client gets for a request to which the simulator responds in the upstream's protocol."""
    translator = RequestTranslator(
        client=PROTOCOLS[client],
        upstream=PROTOCOLS[upstream],
        endpoint=endpoint_of(client, stream=body["stream"]),
    )
    translated = translator.translate(encoded(body))
    at = endpoint_of(upstream, stream=body["stream"])
    reply = reply_to(upstream, translated.body, endpoint=at, named=body["model"])
    data = b"".join(chunk.data for chunk in reply.chunks)
    assert reply.status == 200, data
    response = ResponseTranslator(
        client=PROTOCOLS[client],
        upstream=PROTOCOLS[upstream],
        context=translated.response_context(id="0123456789abcdef", now=1),
        upstream_streams=body["stream"],
    )
    response.receive_data(data)
    response.receive_eof()
    return response.data_to_send()


@pytest.mark.parametrize("model", ["reasoning", "tools", "custom"])
@pairs
@pytest.mark.each_choice
def test_a_tool_loop_comes_to_its_end(client: str, upstream: str, model: str) -> None:
    tools = {"custom": ("patch",)} if model == "custom" else {"tools": ("look", "see")}
    body = request_body(client, model, **tools)
    first = context(client, upstream, body)
    assert check_whole(client, first) == []
    calls = meaning_of_whole(client, first).calls
    found = [call.name for call in calls]
    assert found == {"reasoning": ["look"], "tools": ["look", "see"]}.get(model, ["patch"])
    second = context(client, upstream, follow(client, body, json.loads(first), ["found"] * len(calls)))
    text = meaning_of_whole(client, second).text(Kind.TEXT)
    assert text == "\n".join(f"{call.name} returned: found" for call in calls)
    if model == "custom":
        text = calls[0].text
        assert (json.loads(text)["input"] if client in (MESSAGES, GEMINI) else text) == CUSTOM_INPUT


@pytest.mark.parametrize(
    "model",
    ["echo", "tools", "custom", "reasoning", "refusal", "filter", "length", "length-tools", "empty", "count"],
)
@pairs
@pytest.mark.each_choice
def test_a_stream_is_right_in_the_clients_protocol(client: str, upstream: str, model: str) -> None:
    body = request_body(client, model, stream=True, tools=("look", "see"), custom=("patch",))
    assert check_stream(client, context(client, upstream, body), include_usage=client == CHAT) == []
