"""Earlier reasoning: what clients send back, and what is sent to upstreams."""

from __future__ import annotations

from typing import Any

import pytest
from chat_requests import assistant, messages_of, text_part, user

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Request, Text
from dragoman._ir.signatures import Signer
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, signer)


def parts(message: dict[str, Any], signer: Signer = Signer()) -> tuple[Any, ...]:
    [found] = read(signer, messages=[message]).messages
    return found.parts


AT = "/messages/0"
WRAPPED_M = Signer().wrap(Signature("anthropic_messages", {"type": "thinking"}, "claude"))


def of_chat(text: str, at: str, **native: Any) -> Reasoning:
    return Reasoning(text, Signature(CHAT, native), path=f"{AT}/{at}")


def of_claude(text: str, at: str, **native: Any) -> Reasoning:
    return Reasoning(text, Signature("anthropic_messages", native), path=f"{AT}/{at}")


def of_openai(text: str, at: str, **native: Any) -> Reasoning:
    item = {"type": "reasoning", **native}
    return Reasoning(text, Signature("openai_responses", item), path=f"{AT}/{at}")


def detail(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", **fields, "index": index}


CLAUDES: dict[str, Any] = {"format": "anthropic-claude-v1"}
OPENAIS: dict[str, Any] = {"format": "openai-responses-v1"}
GEMINIS = [{"type": "reasoning.encrypted", "data": "G", "format": "google-gemini-v1"}]
UNSIGNED = [detail("text", text="hm"), 5]
BLOCKS = [
    {"type": "thinking", "thinking": "x", "signature": "S"},
    {"type": "thinking", "thinking": "y", "signature": "T"},
    {"type": "redacted_thinking", "data": "R"},
]
UNSIGNED_BLOCKS = [{"type": "thinking", "thinking": "x"}]

# Members of a message of an assistant, and its reasoning.
EARLIER: list[tuple[dict[str, Any], list[Reasoning]]] = [
    ({"reasoning_content": "hm"}, [of_chat("hm", "reasoning_content", reasoning_content="hm")]),
    ({"reasoning": "hm", "reasoning_content": ""}, [of_chat("hm", "reasoning", reasoning="hm")]),
    # Unsigned entries are native reasoning of Chat.
    ({"reasoning_details": UNSIGNED}, [of_chat("hm", "reasoning_details", reasoning_details=UNSIGNED)]),
    # A wrapped signature, with the text in another member.
    (
        {"reasoning_content": "hm", "reasoning_details": [detail("encrypted", data=WRAPPED_M)]},
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
        {"reasoning_details": [detail("encrypted", data="drg1.forged")]},
        [Reasoning("", None, path=f"{AT}/reasoning_details/0/data", forged=True)],
    ),
    # Real signatures of OpenRouter, in the chunks of a stream.
    (
        {
            "reasoning": "ab",
            "reasoning_details": [
                detail("text", text="a", **CLAUDES),
                detail("text", text="b", **CLAUDES),
                detail("text", signature="S", **CLAUDES),
                detail("encrypted", 1, data="R", **CLAUDES),
            ],
        },
        [
            of_claude("ab", "reasoning_details/0", type="thinking", thinking="ab", signature="S"),
            of_claude("", "reasoning_details/1", type="redacted_thinking", data="R"),
        ],
    ),
    (
        {
            "reasoning_details": [
                detail("summary", summary="s", **OPENAIS),
                detail("encrypted", data="E", id="rs_1", **OPENAIS),
                detail("encrypted", data="F", id="rs_2", **OPENAIS),
                detail("text", 1, text="tail"),
            ]
        },
        [
            of_openai(
                "s",
                "reasoning_details/1",
                id="rs_1",
                summary=[{"type": "summary_text", "text": "s"}],
                encrypted_content="E",
            ),
            of_openai("", "reasoning_details/2", id="rs_2", summary=[], encrypted_content="F"),
            Reasoning("tail", path=f"{AT}/reasoning_details"),
        ],
    ),
    # LiteLLM's blocks.
    (
        {"thinking_blocks": BLOCKS},
        [
            of_claude(block.get("thinking", ""), f"thinking_blocks/{number}", **block)
            for number, block in enumerate(BLOCKS)
        ],
    ),
    # Signatures that only the server that made them can read.
    ({"reasoning_details": GEMINIS}, [of_chat("", "reasoning_details", reasoning_details=GEMINIS)]),
    # Unsigned blocks.
    (
        {"thinking_blocks": UNSIGNED_BLOCKS, "reasoning_details": "odd"},
        [of_chat("x", "reasoning_details", reasoning_details="odd", thinking_blocks=UNSIGNED_BLOCKS)],
    ),
]


@pytest.mark.parametrize(("fields", "expected"), EARLIER)
def test_earlier_reasoning(fields: dict[str, Any], expected: list[Reasoning]) -> None:
    assert parts({"role": "assistant", "content": None, **fields}) == tuple(expected)


def test_a_signature_without_its_mac_is_forged() -> None:
    entry = {"type": "reasoning.text", "text": "hm", "signature": WRAPPED_M}
    [block] = parts({"role": "assistant", "reasoning_details": [entry]}, Signer(b"secret"))
    assert block == Reasoning("hm", None, path=f"{AT}/reasoning_details/0/signature", forged=True)


def test_a_ciphertext_of_openai_needs_no_id() -> None:
    details = [{"type": "reasoning.encrypted", "data": "E", **OPENAIS}]
    found = parts({"role": "assistant", "content": None, "reasoning_details": details})
    assert found == (of_openai("", "reasoning_details/0", summary=[], encrypted_content="E"),)


def test_text_before_a_signature_is_a_block_of_its_own() -> None:
    odd = detail("encrypted", 1, data="odd", format="odd")
    details = [detail("text", text="loose"), odd, detail("text", 2, text="a", signature="s", x=1, **CLAUDES)]
    found = parts({"role": "assistant", "content": "b", "reasoning_details": details})
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    assert found[:3] == (
        Reasoning("loose", path=f"{AT}/reasoning_details"),
        Reasoning(
            "a", Signature("anthropic_messages", block), extra={"x": 1}, path=f"{AT}/reasoning_details/2"
        ),
        of_chat("", "reasoning_details/1", reasoning_details=[odd]),
    )


# -- reasoning for upstreams ------------------------------------------------------------------------------


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
