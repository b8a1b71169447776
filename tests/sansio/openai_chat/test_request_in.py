"""Requests that clients send, and the documents that are read from them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.natives import with_unknown_members

from dragoman._ir.events import ToolKind
from dragoman._ir.request import Message
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.openai_chat import SPEC

# -- shortcuts --------------------------------------------------------------------------------------------


ODD = {"x_odd": 1}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN = {"role": "assistant", "content": "so", "tool_calls": [CALL]}


def read_messages(*messages: Any) -> tuple[Message, ...]:
    request = SPEC.read_request({"model": "m", "messages": [*messages]}, Signer())
    found: tuple[Message, ...] = with_unknown_members(SPEC, request.messages)
    return found


def bare(part: Any) -> Any:
    """Return a message or part without its extra members."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, native=None, **inner)


# Common shapes, and each with a member more, so that the general code reads it.
SHORTCUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[
        (each, {**each, **ODD})
        for each in (
            {"role": "system", "content": "a"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "a"},
            TURN,
            {**TURN, "content": None},
            {**TURN, "content": [{"type": "text", "text": "a"}]},
            {**TURN, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": "a"},
        )
    ],
    (TURN, {**TURN, "tool_calls": [{**CALL, **ODD}]}),
    (TURN, {**TURN, "tool_calls": [{**CALL, "function": {**CALL["function"], **ODD}}]}),  # type: ignore[dict-item]
]


def test_the_shortcuts_read_the_same(subtests: pytest.Subtests) -> None:
    for common, odd in SHORTCUTS:
        with subtests.test(common=common):
            short, long = read_messages(common), read_messages(odd)
            assert short != long
            assert short == tuple(map(bare, long))


def test_results_of_custom_calls_have_their_kind_in_the_shortcut() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    messages = ({**TURN, "tool_calls": [custom]}, {"role": "tool", "tool_call_id": "c", "content": "a"})
    turn, result = read_messages(*messages)
    assert [part.kind for part in (turn.parts[1], result.parts[0])] == [ToolKind.CUSTOM] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ({**CALL, "id": 1}, "/messages/0/tool_calls/0/id"),
        ({**CALL, "function": {"name": None, "arguments": ""}}, "/messages/0/tool_calls/0/function/name"),
    ],
)
def test_wrong_types_in_the_shortcuts_are_refused_with_their_path(call: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_messages({**TURN, "tool_calls": [call]})
    assert caught.value.path == path


def test_paths_beyond_those_made_once() -> None:
    messages = read_messages(*[{"role": "user", "content": "a"}] * 600)
    assert [message.path for message in messages] == [f"/messages/{n}" for n in range(600)]
