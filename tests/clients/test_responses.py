"""Text, usage, tools and reasoning through the official SDKs, over all pairs of protocols.

Every byte passes two real sockets: SDK to gateway, gateway to simulator.
"""

import json
import re
from typing import Any

import pytest
from oracle import CHAT, MESSAGES, RESPONSES, Kind, Stop
from sdk_clients.processes import PAIRS, Pair
from sdk_clients.sdk import Body, Sdk, SdkResponse, Way, body_of, each_way, next_turn, send

from dragoman_server.simulator.scripts import CUSTOM_INPUT

pytestmark = pytest.mark.process

TEXT = 'Seven words, naïve ones: "通訳" \\ 🐉 end'
ARGUMENTS = {"city": "some city", "days": 2}

REASONING_TEXT = re.compile(
    r"\*\*Reading the question\*\* It has 3 words, and each of them counts\.\n\n"
    r"\*\*Choosing the answer\*\* There (?:are tools to call|is no tool to call)\. \[[0-9a-f]{8}\]"
)


@each_way
def test_text(pair: Pair, sdk: Sdk, way: Way) -> None:
    response = send(sdk, pair.client, way, body_of(pair.client, pair.model("echo"), TEXT))
    assert response.meaning.text(Kind.TEXT) == TEXT
    assert response.meaning.stop is Stop.END
    word_count = len(TEXT.split())
    usage = response.meaning.usage
    assert (usage.input, usage.output) == (word_count, word_count)
    assert not usage.cached
    assert not usage.reasoning
    # The client's own name of the model; a relay changes nothing, so there it is the upstream's.
    assert response.model == ("echo" if pair.relayed else pair.model("echo"))


@each_way
def test_a_tool_loop_with_two_parallel_calls(pair: Pair, sdk: Sdk, way: Way) -> None:
    body = body_of(pair.client, pair.model("tools"), "Look and see", tools=("look", "see"))
    first = send(sdk, pair.client, way, body)
    assert first.meaning.stop is Stop.TOOL
    found = [(call.name, json.loads(call.text)) for call in first.meaning.calls]
    assert found == [("look", ARGUMENTS), ("see", ARGUMENTS)]
    assert len({call.id for call in first.meaning.calls}) == 2
    second = send(sdk, pair.client, way, next_turn(pair.client, body, first, ["one thing", "another"]))
    assert second.meaning.text(Kind.TEXT) == "look returned: one thing\nsee returned: another"
    assert second.meaning.stop is Stop.END
    assert not second.meaning.calls
    # Input before the assistant's turn is cached: the user's three words.
    usage = second.meaning.usage
    assert (usage.cached, usage.output) == (3, 7)
    # Three words of the user, two of the arguments of each call, three of the results.
    assert usage.input == 3 + 2 * 2 + 3


def reasoning_options(protocol: str) -> Body:
    """Return the settings of each vendor's documentation for a stateless client that requests reasoning."""
    if protocol == MESSAGES:
        return {"thinking": {"type": "adaptive", "display": "summarized"}}
    if protocol == RESPONSES:
        reasoning = {"effort": "low", "summary": "auto"}
        return {"reasoning": reasoning, "include": ["reasoning.encrypted_content"], "store": False}
    return {"reasoning_effort": "low"}


def shown_reasoning(protocol: str, response: SdkResponse) -> str:
    """Return the reasoning where a program of this protocol looks for it."""
    if protocol == CHAT:
        return str(response.turn["reasoning_content"])
    if protocol == MESSAGES:
        blocks = [block for block in response.turn if block["type"] == "thinking"]
        assert all(block["signature"] for block in blocks)
        return "\n\n".join(block["thinking"] for block in blocks if block["thinking"])
    items = [item for item in response.turn if item["type"] == "reasoning"]
    assert items[-1]["encrypted_content"]  # Gemini's signature is on the part after the reasoning
    return "\n\n".join(part["text"] for item in items for part in item["summary"])


@each_way
def test_reasoning_is_shown_and_comes_back_unchanged(pair: Pair, sdk: Sdk, way: Way) -> None:
    body = body_of(pair.client, pair.model("reasoning"), "Look at it", tools=("look",))
    body |= reasoning_options(pair.client)
    first = send(sdk, pair.client, way, body)
    assert REASONING_TEXT.fullmatch(shown_reasoning(pair.client, first))
    assert [call.name for call in first.meaning.calls] == ["look"]
    kinds = [block.kind for block in first.meaning.blocks]
    assert kinds.index(Kind.REASONING) < kinds.index(Kind.CALL)
    assert first.meaning.usage.reasoning
    # The model returns 400 unless its reasoning comes back unchanged.
    second = send(sdk, pair.client, way, next_turn(pair.client, body, first, ["found"]))
    assert second.meaning.text(Kind.TEXT) == "look returned: found"
    assert REASONING_TEXT.fullmatch(shown_reasoning(pair.client, second))


# A Chat client need not send reasoning back, so a gateway may have it stored.
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.client != CHAT or pair.relayed], ids=str)
def test_reasoning_that_was_left_out_is_refused(pair: Pair, sdk: Sdk) -> None:
    """So the test before can fail."""
    body = body_of(pair.client, pair.model("reasoning"), "Look at it", tools=("look",))
    body |= reasoning_options(pair.client)
    follow = next_turn(pair.client, body, send(sdk, pair.client, Way.WHOLE, body), ["found"])
    name = "input" if pair.client == RESPONSES else "messages"
    follow[name] = [without_reasoning(turn) for turn in follow[name]]
    follow[name] = [turn for turn in follow[name] if turn is not None]
    with pytest.raises(Exception, match="was not sent back") as raised:
        send(sdk, pair.client, Way.WHOLE, follow)
    assert raised.value.status_code == 400  # type: ignore[attr-defined]


def without_reasoning(turn: Any) -> Any:
    turn = turn if isinstance(turn, dict) else turn.to_dict()
    if turn.get("type") == "reasoning":
        return None
    content = turn.get("content")
    if isinstance(content, list):
        blocks = [block if isinstance(block, dict) else block.to_dict() for block in content]
        turn = {**turn, "content": [block for block in blocks if block.get("type") != "thinking"]}
    return {name: value for name, value in turn.items() if not name.startswith("reasoning")}


# Messages has no custom tools; OpenAI's helper for Chat Completions refuses them.
CUSTOM = [
    pytest.param(pair, way, id=f"{pair}-{way.value}")
    for pair in PAIRS
    for way in Way
    if pair.client == RESPONSES or (pair.client == CHAT and way is not Way.HELPER)
]


@pytest.mark.parametrize(("pair", "way"), CUSTOM)
def test_a_custom_tool(pair: Pair, sdk: Sdk, way: Way) -> None:
    body = body_of(pair.client, pair.model("custom"), "Patch the file", custom=("patch",))
    first = send(sdk, pair.client, way, body)
    (call,) = first.meaning.calls
    assert (call.custom, call.name, call.text) == (True, "patch", CUSTOM_INPUT)
    assert first.meaning.stop is Stop.TOOL
    second = send(sdk, pair.client, way, next_turn(pair.client, body, first, ["patched"]))
    assert second.meaning.text(Kind.TEXT) == "patch returned: patched"
