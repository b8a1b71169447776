"""Errors: each SDK raises its own class, whatever the protocol of the upstream is."""

from typing import Any

import anthropic
import openai
import pytest
from oracle import CHAT, MESSAGES, RESPONSES
from sdk_clients.processes import PAIRS, Pair
from sdk_clients.sdk import Sdk, Way, body_of, send

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
# Errors with another text than the upstream's.
MESSAGES_OF = {
    "error-context": "prompt is too long",
    "error-401": r"refused a request without a key \(401\): set api_key of",
}
LASTING = {"error-401", "error-403"}
API_ERROR: dict[str, Any] = {CHAT: openai.APIError, MESSAGES: anthropic.APIError, RESPONSES: openai.APIError}

# A program must never take a response that broke off for a complete one.
FINISHED = {"message_stop", "response.completed", "response.incomplete"}


@pytest.mark.parametrize("way", [Way.WHOLE, Way.EVENTS], ids=["whole", "events"])
@pytest.mark.each_choice
def test_an_error_of_the_upstream(pair: Pair, sdk: Sdk, way: Way) -> None:
    for model, classes in CLASSES.items():
        expected = classes[pair.client == MESSAGES]
        with pytest.raises(expected, match=MESSAGES_OF.get(model, "the simulator")) as raised:
            send(sdk, pair.client, way, body_of(pair.client, pair.model(model), "Hello"))
        error: Any = raised.value
        assert error.request_id
        assert (error.response.headers.get("x-should-retry") == "false") is (model in LASTING)
        if model == "error-429@7":
            assert error.response.headers["retry-after"] == "7"
        if model == "error-context" and pair.client != MESSAGES:
            assert error.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("model", "text"),
    [("error-mid", "failed in the middle"), ("cut", "connection ended"), ("cut-end", "ended|truncated")],
)
def test_a_response_that_breaks_off(pair: Pair, sdk: Sdk, model: str, text: str) -> None:
    """Streamed and whole: the content before the break arrives, and no end."""
    body = body_of(pair.client, pair.model(model), "Hello")
    for way in (Way.WHOLE, Way.HELPER):
        with pytest.raises(API_ERROR[pair.client], match=text):
            send(sdk, pair.client, way, body)
    events: list[Any] = []
    with pytest.raises(API_ERROR[pair.client], match=text):
        sdk.events(pair.client, body, events)
    assert "stood" in str([event.to_dict() for event in events])
    if pair.client == CHAT:
        assert not any(choice.finish_reason for chunk in events for choice in chunk.choices)
    else:
        assert not FINISHED & {event.type for event in events}


# In a relay, the upstream decides.
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not pair.relayed], ids=str)
def test_a_request_that_the_gateway_refuses(pair: Pair, sdk: Sdk) -> None:
    """A request that cannot be translated is refused with its place, before an upstream is called."""
    body = body_of(pair.client, pair.model("echo"), "Hello")
    name = "input" if pair.client == RESPONSES else "messages"
    body[name] = [{"role": "user", "content": 7}]
    for way in Way:
        with pytest.raises(CLASSES["error-400"][pair.client == MESSAGES], match=name):
            send(sdk, pair.client, way, body)
