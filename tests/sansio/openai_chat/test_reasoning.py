"""Earlier reasoning: what clients send back, and what is sent to upstreams."""

from __future__ import annotations

from typing import Any

import pytest
from chat_requests import assistant, messages_of, user

from dragoman._ir.events import (
    Signature,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Request, Text
from dragoman._ir.signatures import Signer
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, signer)


def parts(message: dict[str, Any], signer: Signer = Signer()) -> tuple[Any, ...]:
    [found] = read(signer, messages=[message]).messages
    return found.parts


AT = "/messages/0"
WRAPPED_M = Signer().wrap(Signature("anthropic_messages", {"type": "thinking"}, "claude"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"reasoning_content": "hm"},
            [Reasoning("hm", Signature(CHAT, {"reasoning_content": "hm"}), path=f"{AT}/reasoning_content")],
        ),
        (
            {"reasoning": "hm", "reasoning_content": ""},
            [Reasoning("hm", Signature(CHAT, {"reasoning": "hm"}), path=f"{AT}/reasoning")],
        ),
        # Unsigned entries are native reasoning of Chat.
        (
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}, 5]},
            [
                Reasoning(
                    "hm",
                    Signature(
                        CHAT, {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}, 5]}
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
        # A wrapped signature, with the text in another member.
        (
            {
                "reasoning_content": "hm",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": WRAPPED_M, "index": 0}],
            },
            [
                Reasoning(
                    "hm",
                    Signature("anthropic_messages", {"type": "thinking"}, "claude"),
                    path=f"{AT}/reasoning_details/0/data",
                )
            ],
        ),
        # One that looks like ours and is not.
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "drg1.forged", "index": 0}]},
            [Reasoning("", None, path=f"{AT}/reasoning_details/0/data", forged=True)],
        ),
        # Real signatures of OpenRouter, in the chunks of a stream.
        (
            {
                "reasoning": "ab",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "a", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.text", "text": "b", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.text", "signature": "S", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.encrypted", "data": "R", "format": "anthropic-claude-v1", "index": 1},
                ],
            },
            [
                Reasoning(
                    "ab",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "ab", "signature": "S"}),
                    path=f"{AT}/reasoning_details/0",
                ),
                Reasoning(
                    "",
                    Signature("anthropic_messages", {"type": "redacted_thinking", "data": "R"}),
                    path=f"{AT}/reasoning_details/1",
                ),
            ],
        ),
        (
            {
                "reasoning_details": [
                    {
                        "type": "reasoning.summary",
                        "summary": "s",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {
                        "type": "reasoning.encrypted",
                        "data": "E",
                        "id": "rs_1",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {
                        "type": "reasoning.encrypted",
                        "data": "F",
                        "id": "rs_2",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {"type": "reasoning.text", "text": "tail", "index": 1},
                ]
            },
            [
                Reasoning(
                    "s",
                    Signature(
                        "openai_responses",
                        {
                            "type": "reasoning",
                            "id": "rs_1",
                            "summary": [{"type": "summary_text", "text": "s"}],
                            "encrypted_content": "E",
                        },
                    ),
                    path=f"{AT}/reasoning_details/1",
                ),
                Reasoning(
                    "",
                    Signature(
                        "openai_responses",
                        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "F"},
                    ),
                    path=f"{AT}/reasoning_details/2",
                ),
                Reasoning("tail", path=f"{AT}/reasoning_details"),
            ],
        ),
        # LiteLLM's blocks.
        (
            {
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "x", "signature": "S"},
                    {"type": "thinking", "thinking": "y", "signature": "T"},
                    {"type": "redacted_thinking", "data": "R"},
                ]
            },
            [
                Reasoning(
                    "x",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "x", "signature": "S"}),
                    path=f"{AT}/thinking_blocks/0",
                ),
                Reasoning(
                    "y",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "y", "signature": "T"}),
                    path=f"{AT}/thinking_blocks/1",
                ),
                Reasoning(
                    "",
                    Signature("anthropic_messages", {"type": "redacted_thinking", "data": "R"}),
                    path=f"{AT}/thinking_blocks/2",
                ),
            ],
        ),
        # Signatures that only the server that made them can read.
        (
            {
                "reasoning_details": [
                    {"type": "reasoning.encrypted", "data": "G", "format": "google-gemini-v1"}
                ]
            },
            [
                Reasoning(
                    "",
                    Signature(
                        CHAT,
                        {
                            "reasoning_details": [
                                {"type": "reasoning.encrypted", "data": "G", "format": "google-gemini-v1"}
                            ]
                        },
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
        # Unsigned blocks.
        (
            {"thinking_blocks": [{"type": "thinking", "thinking": "x"}], "reasoning_details": "odd"},
            [
                Reasoning(
                    "x",
                    Signature(
                        CHAT,
                        {
                            "reasoning_details": "odd",
                            "thinking_blocks": [{"type": "thinking", "thinking": "x"}],
                        },
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
    ],
)
def test_earlier_reasoning(fields: Any, expected: Any) -> None:
    assert parts({"role": "assistant", "content": None, **fields}) == tuple(expected)


def test_a_signature_without_its_mac_is_forged() -> None:
    entry = {"type": "reasoning.text", "text": "hm", "signature": WRAPPED_M}
    [block] = parts({"role": "assistant", "reasoning_details": [entry]}, Signer(b"secret"))
    assert block == Reasoning("hm", None, path=f"{AT}/reasoning_details/0/signature", forged=True)


def test_a_ciphertext_of_openai_needs_no_id() -> None:
    details = [{"type": "reasoning.encrypted", "data": "E", "format": "openai-responses-v1"}]
    request = read(messages=[{"role": "assistant", "content": None, "reasoning_details": details}])
    item = {"type": "reasoning", "summary": [], "encrypted_content": "E"}
    assert request.messages[0].parts == (
        Reasoning("", Signature("openai_responses", item), path="/messages/0/reasoning_details/0"),
    )


def test_text_before_a_signature_is_a_block_of_its_own() -> None:
    details = [
        {"type": "reasoning.text", "text": "loose", "index": 0},
        {"type": "reasoning.encrypted", "data": "odd", "format": "odd", "index": 1},
        {
            "type": "reasoning.text",
            "text": "a",
            "signature": "s",
            "format": "anthropic-claude-v1",
            "index": 2,
            "x": 1,
        },
    ]
    request = read(messages=[{"role": "assistant", "content": "b", "reasoning_details": details}])
    at = "/messages/0/reasoning_details"
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    assert request.messages[0].parts[:3] == (
        Reasoning("loose", path=at),
        Reasoning("a", Signature("anthropic_messages", block), extra={"x": 1}, path=f"{at}/2"),
        Reasoning("", Signature(CHAT, {"reasoning_details": [details[1]]}), path=f"{at}/1"),
    )


# -- reasoning for upstreams ------------------------------------------------------------------------------


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}


DETAIL = {"type": "reasoning.text", "text": "own", "signature": "S", "index": 0}


@pytest.mark.parametrize(
    ("field", "parts", "expected", "losses"),
    [
        ("reasoning", [Reasoning("a"), Reasoning("b")], {"reasoning": "a\n\nb"}, []),
        (
            "reasoning_details",
            [Reasoning("a"), Reasoning("b")],
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "a", "format": "unknown", "index": 0},
                    {"type": "reasoning.text", "text": "b", "format": "unknown", "index": 1},
                ]
            },
            [],
        ),
        (
            "reasoning_details",
            [Reasoning("own", Signature(CHAT, {"reasoning_details": [DETAIL]})), Reasoning("b")],
            {
                "reasoning_details": [
                    DETAIL,
                    {"type": "reasoning.text", "text": "b", "format": "unknown", "index": 1},
                ]
            },
            [],
        ),
        # Signatures are not forged.
        ("thinking_blocks", [Reasoning("a", path="/t")], {}, [("dropped", "/t")]),
        ("reasoning", [Reasoning("", Signature(CHAT, "odd"), path="/t")], {}, [("foreign_signature", "/t")]),
    ],
)
def test_c4_earlier_reasoning_goes_where_the_upstream_reads_it(
    field: Any, parts: Any, expected: Any, losses: Any
) -> None:
    [message], found = messages_of(
        assistant(*parts, Text("x")), capabilities=Capabilities(reasoning_field=field)
    )
    assert message == {"role": "assistant", "content": "x", **expected}
    assert found == losses


def test_a_signature_of_mistral_makes_content_a_list() -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    signed = Reasoning("hm", Signature(CHAT, {"content": [part]}), path="/t")
    assert messages_of(assistant(Text("a"), signed, Text("b"))) == (
        [
            {
                "role": "assistant",
                "content": [part, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            }
        ],
        [],
    )


def test_cached_reasoning_is_written_in_place_of_the_clients() -> None:
    raw = {"model": "m", "messages": [{"role": "assistant", "content": "a"}]}
    request = SPEC.read_request(raw, Signer())
    reasoning = Reasoning("", Signature(CHAT, {"reasoning_content": "hm"}), path=AT)
    turn = Message("assistant", (reasoning, *request.messages[0].parts), AT)
    body = SPEC.write_request(Request(CHAT, "m", (turn,), native=raw), Capabilities(), Ledger())
    assert body["messages"] == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]


def test_native_signatures_go_back_as_they_came() -> None:
    one = {"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]}
    two = {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "signature": "S", "index": 0}]}
    out, losses = messages_of(
        assistant(Reasoning("a", Signature(CHAT, one)), Reasoning("b", Signature(CHAT, two)), Text("x")),
        user(Text("go on")),
        assistant(Reasoning("hm", Signature(CHAT, {"content": [THINKING, text_part("forged")]})), Text("y")),
    )
    assert out[0] == {
        "role": "assistant",
        "content": "x",
        "reasoning": "a\n\nb",
        "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "signature": "S"}],
    }
    assert out[2] == {"role": "assistant", "content": [THINKING, text_part("y")]}
    assert losses == []


def test_an_upstream_without_a_reasoning_field_gets_none() -> None:
    out, losses = messages_of(
        assistant(
            Reasoning("a", Signature(CHAT, {"reasoning": "a"}), path="/a"),
            Reasoning("b", Signature("other", 1), path="/b"),
            Reasoning("", path="/c"),
            Text("x"),
        ),
        capabilities=Capabilities(reasoning_field=None),
    )
    assert out == [{"role": "assistant", "content": "x"}]
    assert losses == [("dropped", "/a"), ("foreign_signature", "/b"), ("dropped", "/b")]
