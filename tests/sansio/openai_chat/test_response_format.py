"""The format of the response: read, and written with what strict servers require."""

from __future__ import annotations

from typing import Any

import pytest
from chat_requests import write

from dragoman._ir.request import Message, ResponseFormat, Text
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}

OPEN = {"type": "object"}


@pytest.mark.parametrize(
    ("form", "expected", "losses"),
    [
        (ResponseFormat(CLOSED, path="/output_config/format"), {"name": "response", "schema": CLOSED}, []),
        (
            ResponseFormat(CLOSED, "n", "d", True, path="/text/format"),
            {"name": "n", "description": "d", "schema": CLOSED, "strict": True},
            [],
        ),
        (ResponseFormat(OPEN, "n", strict=False), {"name": "n", "schema": OPEN, "strict": False}, []),
        # With `strict` the server would refuse the request.
        (
            ResponseFormat(OPEN, "n", strict=True, path="/text/format"),
            {"name": "n", "schema": OPEN, "strict": False},
            [("altered", "/text/format")],
        ),
    ],
)
def test_schemas_are_strict_only_where_the_server_accepts_that(form: Any, expected: Any, losses: Any) -> None:
    body, found = write(response_format=form)
    assert body["response_format"] == {"type": "json_schema", "json_schema": expected}
    assert found == losses


INSTRUCTION = "Answer with one JSON object."
ALTERED = [("altered", "/text/format")]


@pytest.mark.parametrize(
    ("messages", "expected", "losses"),
    [
        ((Message("user", (Text("As json, please"),)),), None, []),
        ((Message("user", (Text("a"), Text("As JSON"))),), None, []),
        (
            (Message("user", (Text("Go"),)),),
            [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Go"}],
            ALTERED,
        ),
        ((), [{"role": "system", "content": INSTRUCTION}], ALTERED),
        (
            (Message("system", (Text("Be terse"),)),),
            [{"role": "system", "content": f"Be terse\n\n{INSTRUCTION}"}],
            ALTERED,
        ),
        (
            (Message("system", (Text("a"), Text("b"))),),
            [{"role": "system", "content": f"a\n\nb\n\n{INSTRUCTION}"}],
            ALTERED,
        ),
    ],
)
def test_json_is_mentioned_in_the_messages(messages: Any, expected: Any, losses: Any) -> None:
    body, found = write(*messages, response_format=ResponseFormat(path="/text/format"))
    assert body["response_format"] == {"type": "json_object"}
    assert expected is None or body["messages"] == expected
    assert found == losses


def test_the_instruction_is_a_part_beside_other_parts() -> None:
    message = Message("system", (Text("a"), Text("b")))
    body, _ = write(
        message, capabilities=Capabilities(text_content="parts"), response_format=ResponseFormat()
    )
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": text} for text in ("a", "b", INSTRUCTION)
    ]
