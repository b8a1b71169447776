"""Bodies of simple requests: what they may have, and errors about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.request import Message, Request, Text
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.simple_chat import SPEC

HI = {"role": "user", "content": "Hi"}


def read(body: dict[str, Any]) -> Request:
    return SPEC.read_request(body, Signer())


def test_all_members() -> None:
    body = {
        "model": "model-name",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Hello, how are you?"},
            {"role": "assistant", "content": "Well."},
            HI,
        ],
        "temperature": 0.7,
    }
    request = read(body)
    assert request.protocol == "simple_chat"
    assert request.model == "model-name"
    assert request.params == {"temperature": 0.7}
    assert request.param_paths == {"temperature": "/temperature"}
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[2] == Message(
        "assistant", (Text("Well.", path="/messages/2/content"),), "/messages/2"
    )
    assert (request.stream, request.include_usage, request.extra) == (False, False, None)


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
@pytest.mark.parametrize("temperature", [{}, {"temperature": None}])
def test_optional_members(model: dict[str, Any], temperature: dict[str, Any]) -> None:
    request = read({**model, **temperature, "messages": [HI]})
    assert request.model == ""
    assert request.params == {}
    assert request.extra is None


def test_empty_content_is_content() -> None:
    assert read({"messages": [{"role": "user", "content": ""}]}).messages[0].parts == (
        Text("", path="/messages/0/content"),
    )


@pytest.mark.parametrize("temperature", [0, 1, 0.25, -1, 1e300])
def test_any_number_is_a_temperature(temperature: float) -> None:
    """The upstream checks its range."""
    assert read({"messages": [HI], "temperature": temperature}).params == {"temperature": temperature}


def test_undefined_members_are_kept() -> None:
    request = read({"messages": [{**HI, "name": "ada"}], "stream": True, "top_p": 0.5})
    assert request.extra == {"stream": True, "top_p": 0.5}
    assert request.messages[0].extra == {"name": "ada"}
    assert request.stream is False  # its endpoint decides


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": [HI], "model": 5}, "model must be a string, not a number", "/model"),
    ({"messages": [HI], "temperature": "0.7"}, "temperature must be a number, not a string", "/temperature"),
    ({"messages": [HI], "temperature": True}, "temperature must be a number, not a boolean", "/temperature"),
    ({}, "messages must be an array of messages, not null", "/messages"),
    ({"messages": "Hi"}, "messages must be an array of messages, not a string", "/messages"),
    ({"messages": []}, "messages must contain at least one message", "/messages"),
    ({"messages": [HI, "Hi"]}, "messages[1] must be a message, not a string", "/messages/1"),
    (
        {"messages": [{"content": "Hi"}]},
        "messages[0].role must be one of system, user, assistant",
        "/messages/0/role",
    ),
    (
        {"messages": [{"role": "tool", "content": "Hi"}]},
        "messages[0].role must be one of system, user, assistant",
        "/messages/0/role",
    ),
    (
        {"messages": [{"role": ["user"], "content": "Hi"}]},
        "messages[0].role must be one of system, user, assistant",
        "/messages/0/role",
    ),
    (
        {"messages": [{"role": "user"}]},
        "messages[0].content must be a string, not null",
        "/messages/0/content",
    ),
    (
        {"messages": [HI, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        "messages[1].content must be a string, not an array",
        "/messages/1/content",
    ),
]


def test_errors_have_a_path(subtests: pytest.Subtests) -> None:
    for body, message, path in REFUSED:
        with subtests.test(message=message, path=path):
            with pytest.raises(RemoteProtocolError) as raised:
                read(body)
            assert (raised.value.message, raised.value.path, raised.value.status) == (message, path, 400)
            assert raised.value.code is not None
