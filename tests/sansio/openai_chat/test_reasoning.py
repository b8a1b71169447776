"""Earlier reasoning: what clients send back, and what is sent to upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Request
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


def test_cached_reasoning_is_written_in_place_of_the_clients() -> None:
    raw = {"model": "m", "messages": [{"role": "assistant", "content": "a"}]}
    request = SPEC.read_request(raw, Signer())
    reasoning = Reasoning("", Signature(CHAT, {"reasoning_content": "hm"}), path=AT)
    turn = Message("assistant", (reasoning, *request.messages[0].parts), AT)
    body = SPEC.write_request(Request(CHAT, "m", (turn,), native=raw), Capabilities(), Ledger())
    assert body["messages"] == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
