"""Chunks that differ in one text are read without decoding them, to the same events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core.fast_path import both_ways

END = [{"delta": {}, "finish_reason": "stop"}]


def stream(*choices: dict[str, Any], **more: Any) -> bytes:
    """Return one chunk for each choice, and the end of the stream."""
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [
        {**head, "choices": [{"index": 0, "finish_reason": None, **choice}], **more}
        for choice in [*choices, *END]
    ]
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )


def text(*texts: str, key: str = "content", index: int = 0) -> list[dict[str, Any]]:
    return [{"index": index, "delta": {key: text}} for text in texts]


def call(index: int, *texts: str, call_id: str = "call") -> list[dict[str, Any]]:
    first = {"index": index, "id": f"{call_id}{index}", "function": {"name": "f", "arguments": texts[0]}}
    later = [{"index": index, "function": {"arguments": text}} for text in texts[1:]]
    return [{"delta": {"tool_calls": [fragment]}} for fragment in [first, *later]]


DETAIL = {"type": "reasoning.text", "text": "b", "index": 0}

STREAMS: dict[str, tuple[bytes, int]] = {
    "text": (stream(*text("a", "b", "c", "ü\n", "")), 2),
    "refusal": (stream(*text("a", "b", "c", key="refusal")), 0),
    "reasoning": (stream(*text("a", "b", "c", key="reasoning_content"), *text("d", "e", "f")), 2),
    "reasoning under another name": (stream(*text("a", "b", "c", key="reasoning")), 1),
    "reasoning in entries": (
        stream(
            *text("a", key="reasoning"),
            {"delta": {"reasoning_details": [DETAIL]}},
            *text("c", "d", "e", key="reasoning"),
        ),
        0,
    ),
    "arguments": (stream(*call(0, "", '{"a"', ":", "1", "}")), 2),
    "a second call": (stream(*call(0, "{", "}"), *call(1, "{", '"a":', "2", "}")), 1),
    "two choices": (stream(*text("a", "b", "c"), *text("A", "B", "C", index=1), *text("d", "e", "f")), 3),
    "padding": (
        stream(*text("a", "b", "c")).replace(
            b'"finish_reason": null}]}', b'"finish_reason": null}], "obfuscation": "Ab1"}'
        ),
        1,
    ),
}


def test_the_fast_path_reads_the_same(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STREAMS:
        for client in ["anthropic_messages", "openai_responses"]:
            with subtests.test(name=name, client=client):
                data, taken = STREAMS[name]
                assert both_ways("openai_chat", client, data, monkeypatch) >= taken
