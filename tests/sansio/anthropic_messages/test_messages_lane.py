"""Delta events that differ in one text are read without decoding them, and mean the same."""

import json
from typing import Any

import pytest
from core.fast_path import both_ways


def stream(*blocks: tuple[dict[str, Any], list[dict[str, Any]]]) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "x", "model": "m", "usage": {}}}
    ]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    )
    events.append({"type": "message_stop"})
    return b"".join(
        b"event: %b\ndata: %b%b}\n\n"
        % (event["type"].encode(), json.dumps(event).encode()[:-1], b" " * (number % 5))
        for number, event in enumerate(events)
    )


def deltas(kind: str, key: str, *pieces: str) -> list[dict[str, Any]]:
    return [{"type": kind, key: piece} for piece in pieces]


TEXT = ({"type": "text", "text": ""}, deltas("text_delta", "text", "a", "b", "c", "ü\n", "", "d"))
THINKING = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [*deltas("thinking_delta", "thinking", "a", "b", "c"), {"type": "signature_delta", "signature": "s"}],
)
CALL = (
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    deltas("input_json_delta", "partial_json", "", '{"a"', ":", "1", "}"),
)


@pytest.mark.parametrize(
    ("blocks", "taken"), [([TEXT], 2), ([THINKING, TEXT], 3), ([CALL], 2), ([TEXT, CALL, CALL], 4)]
)
@pytest.mark.parametrize("client", ["openai_chat", "openai_responses"])
def test_both_ways_agree(blocks: list[Any], taken: int, client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_ways("anthropic_messages", client, stream(*blocks), monkeypatch) >= taken
