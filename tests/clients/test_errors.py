"""Errors: each SDK raises the class of its own that a program catches, whoever the upstream is."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from cl_processes import PAIRS, Pair
from cl_sdk import Sdk, Way, ask, body_of, each_way
from oracle import CHAT, MESSAGES, RESPONSES

pytestmark = pytest.mark.process

# The upstream's status -> the class of OpenAI's SDK and that of Anthropic's.
CLASSES: dict[str, tuple[type[Exception], type[Exception]]] = {
    "error-400": (openai.BadRequestError, anthropic.BadRequestError),
    "error-context": (openai.BadRequestError, anthropic.BadRequestError),
    "error-401": (openai.AuthenticationError, anthropic.AuthenticationError),
    "error-403": (openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    "error-404": (openai.NotFoundError, anthropic.NotFoundError),
    "error-429@7": (openai.RateLimitError, anthropic.RateLimitError),
    "error-500": (openai.InternalServerError, anthropic.InternalServerError),
    "error-529": (openai.InternalServerError, anthropic.OverloadedError),
}
# What is told in other words than the upstream's.
WORDS = {
    "error-context": "prompt is too long",
    "error-401": r"refused a request without a key \(401\): set api_key of",
}
LASTING = {"error-401", "error-403"}
API_ERROR = {CHAT: openai.APIError, MESSAGES: anthropic.APIError, RESPONSES: openai.APIError}

# Whatever else happens, a program must never take an answer that broke off for a finished one.
FINISHED = {"message_stop", "response.completed", "response.incomplete"}


@pytest.mark.parametrize("way", [Way.WHOLE, Way.EVENTS], ids=["whole", "events"])
@pytest.mark.parametrize("model", CLASSES)
def test_an_error_of_the_upstream(pair: Pair, sdk: Sdk, way: Way, model: str) -> None:
    expected = CLASSES[model][pair.client == MESSAGES]
    text = WORDS.get(model, "the simulator")
    with pytest.raises(expected, match=text) as raised:
        ask(sdk, pair.client, way, body_of(pair.client, pair.model(model), "Hello"))
    error: Any = raised.value
    assert error.request_id
    assert (error.response.headers.get("x-should-retry") == "false") is (model in LASTING)
    if model == "error-429@7":
        assert error.response.headers["retry-after"] == "7"
    if model == "error-context" and pair.client != MESSAGES:
        assert error.code == "context_length_exceeded"


@each_way
@pytest.mark.parametrize(
    ("model", "text"),
    [("error-mid", "gave up in the middle"), ("cut", "connection ended"), ("cut-end", "ended|truncated")],
)
def test_an_answer_that_breaks_off(pair: Pair, sdk: Sdk, way: Way, model: str, text: str) -> None:
    body = body_of(pair.client, pair.model(model), "Hello")
    expected: Any = API_ERROR[pair.client]
    with pytest.raises(expected, match=text):
        ask(sdk, pair.client, way, body)


@pytest.mark.parametrize("model", ["error-mid", "cut", "cut-end"])
def test_what_came_before_the_break_arrives_and_no_end(pair: Pair, sdk: Sdk, model: str) -> None:
    events: list[Any] = []
    with pytest.raises(API_ERROR[pair.client]):
        sdk.events(pair.client, body_of(pair.client, pair.model(model), "Hello"), events)
    shown = str([event.to_dict() for event in events])
    assert "stood" in shown
    if pair.client == CHAT:
        assert not any(choice.finish_reason for chunk in events for choice in chunk.choices)
    else:
        assert not FINISHED & {event.type for event in events}


@each_way
def test_a_model_that_nobody_has(pair: Pair, sdk: Sdk, way: Way) -> None:
    """Once the upstream says so, once the gateway itself."""
    expected = CLASSES["error-404"][pair.client == MESSAGES]
    for model, hint in ((pair.model("ecko"), "echo"), ("nobody/echo", "upstream/model")):
        with pytest.raises(expected, match=hint):
            ask(sdk, pair.client, way, body_of(pair.client, model, "Hello"))


# A relay leaves the judgement to the upstream.
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not pair.relayed], ids=str)
@each_way
def test_a_request_that_the_gateway_refuses(pair: Pair, sdk: Sdk, way: Way) -> None:
    """What cannot be translated is told by its place, before any upstream is asked."""
    body = body_of(pair.client, pair.model("echo"), "Hello")
    name = "input" if pair.client == RESPONSES else "messages"
    body[name] = [{"role": "user", "content": 7}]
    with pytest.raises(CLASSES["error-400"][pair.client == MESSAGES], match=name):
        ask(sdk, pair.client, way, body)
