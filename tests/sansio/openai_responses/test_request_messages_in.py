"""Messages, calls, results and reasoning in the input of a Responses request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.natives import with_unknown_members

from dragoman._ir.events import Signature
from dragoman._ir.request import Message, Reasoning, Request
from dragoman._ir.wrapped_signatures import WRAPPED_PREFIX, Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.openai_responses import SPEC


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return with_unknown_members(SPEC, SPEC.read_request({"model": "m", "input": "hi", **body}, signer))


def item(value: dict[str, Any], signer: Signer = Signer()) -> Message:
    (message,) = read(signer, input=[value]).messages
    return message


def test_a_wrapped_signature_is_unwrapped() -> None:
    signer = Signer(b"secret")
    signature = Signature("anthropic_messages", {"type": "thinking", "thinking": "t", "signature": "s"}, "c")
    value = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": signer.wrap(signature)}
    assert item(value, signer).parts == (Reasoning("", signature, path="/input/0"),)


def test_forged_reasoning_is_only_text() -> None:
    value = {
        "type": "reasoning",
        "summary": [{"text": "t"}],
        "encrypted_content": WRAPPED_PREFIX + "AAAA.mac",
    }
    assert item(value, Signer(b"secret")).parts == (Reasoning("t", None, path="/input/0", forged=True),)


# The commonest shapes are read by short code; with an unknown field in them, by the general code.


ODD = {"x_odd": 1}
TEXT = {"type": "input_text", "text": "a"}
OUTPUT_TEXT = {"type": "output_text", "text": "a", "annotations": []}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "a"}


def bare(part: Any) -> Any:
    """Return a message or part without its unknown fields."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, native=None, **inner)


# Common shapes, and each with a member more, so that the general code reads it.
COMMON_SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[
        (each, {**each, **ODD})
        for each in (
            {"role": "user", "content": "a"},
            {"type": "message", "role": "user", "content": [TEXT]},
            CALL,
            CUSTOM,
            OUTPUT,
            {**OUTPUT, "type": "custom_tool_call_output"},
            {**OUTPUT, "output": [TEXT]},
            {**OUTPUT, "output": [TEXT, TEXT]},
        )
    ],
    *[
        ({"role": "assistant", "content": [part]}, {"role": "assistant", "content": [{**part, **ODD}]})
        for part in (TEXT, OUTPUT_TEXT, {**OUTPUT_TEXT, "annotations": [{"type": "url_citation"}]})
    ],
]


def test_common_shapes_are_read_as_by_the_general_code(subtests: pytest.Subtests) -> None:
    for common, odd in COMMON_SHAPES:
        with subtests.test(common=common):
            short, long = read(input=[common]).messages, read(input=[odd]).messages
            assert short != long
            assert short == tuple(map(bare, long))


@pytest.mark.parametrize("item", [{**CALL, "name": ""}, {**CALL, "name": 1}, {**CUSTOM, "name": None}])
def test_errors_in_common_shapes_have_a_path(item: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(input=[item])
    assert caught.value.path == "/input/0/name"


def test_paths_go_on_beyond_those_made_beforehand() -> None:
    messages = read(input=[{"role": "user", "content": "a"}] * 600).messages
    assert [message.path for message in messages] == [f"/input/{n}" for n in range(600)]
