"""Content blocks of a request, read into parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.natives import with_unknown_members

from dragoman._ir.events import Signature
from dragoman._ir.request import Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.anthropic_messages import SPEC

SIGNER = Signer(b"key")


def read(*messages: Any, **fields: Any) -> Request:
    return with_unknown_members(
        SPEC, SPEC.read_request({"model": "m", "max_tokens": 9, "messages": list(messages), **fields}, SIGNER)
    )


def parts(*content: Any, role: str = "user") -> tuple[Any, ...]:
    """Return the parts of a message with this content."""
    return read({"role": role, "content": list(content)}).messages[0].parts


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_a_wrapped_signature_is_unwrapped(kind: str) -> None:
    signature = Signature(
        "openai_responses", {"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}, "gpt"
    )
    text = SIGNER.wrap(signature)
    block = {"thinking": {"thinking": "hm", "signature": text}, "redacted_thinking": {"data": text}}[kind]
    (part,) = parts({"type": kind, **block})
    assert part.signature == signature


ODD = {"x_odd": 1}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "a"}


SHORTCUTS: list[Any] = [
    {"type": "text", "text": "a"},
    USE,
    {**USE, "input": {}},
    RESULT,
    {**RESULT, "content": ""},
    {**RESULT, "content": []},
    {**RESULT, "content": [{"type": "text", "text": "a"}]},
    {**RESULT, "is_error": True},
]


def test_shortcuts_read_the_same_as_the_general_way(subtests: pytest.Subtests) -> None:
    for common in SHORTCUTS:
        with subtests.test(common=common):
            [short], [long] = parts(common), parts({**common, **ODD})
            assert short.native is None
            assert long.native == ODD
            assert short == msgspec.structs.replace(long, native=None)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({**USE, "id": 1}, "id"),
        ({**USE, "name": None}, "name"),
        ({**USE, "input": "x"}, "input"),
        ({**RESULT, "tool_use_id": 1}, "tool_use_id"),
        ({"type": 1}, "type"),
    ],
)
def test_shortcuts_report_the_same_errors(wrong: Any, field: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parts(wrong)
    assert caught.value.path == f"/messages/0/content/0/{field}"
