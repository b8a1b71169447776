"""The ledger through the application: the header, the log line, and strict mode."""

import logging
import re
from typing import Any

import pytest
from gateway.scripted import (
    CHAT,
    GEMINI,
    MESSAGES,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    chat_response,
    messages_response,
    request_body,
    scripted,
    whole,
)
from oracle import check_error

pytestmark = pytest.mark.anyio


WHOLE_RESPONSE = whole(messages_response([{"type": "text", "text": "Hello"}]))
# Only settings for which an upstream of Messages has no field.
LOSSY: dict[str, Any] = {
    "model": "up/m",
    "messages": [{"role": "user", "content": "Hi"}],
    "seed": 7,
    "logit_bias": {"50256": -100},
}


async def test_losses_of_a_whole_response_are_in_the_header_too() -> None:
    response = chat_response({"content": "Hello"})
    content = [{"token": "Hello", "logprob": -0.5, "bytes": None, "top_logprobs": []}]
    response["choices"][0]["logprobs"] = {"content": content}
    body = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    client = await scripted(CHAT, whole(response)).call(PATHS[MESSAGES], body)
    assert re.fullmatch("1; dropped=answer:/.*/logprobs", client.headers["dragoman-loss"])


async def test_values_are_never_in_the_header(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client = await scripted(MESSAGES, WHOLE_RESPONSE).call(
            PATHS[CHAT], {**LOSSY, "user_note": "canary-1", "seed": "canary-2"}
        )
    reported = client.headers["dragoman-loss"] + str([record.__dict__ for record in caplog.records])
    assert "user_note" in reported
    assert "canary" not in reported


# Strict mode.

REQUEST_STRICT, REQUEST_RECORD = {"dragoman-loss-policy": "refuse"}, {"dragoman-loss-policy": "record"}


LOSSY_OF = {
    CHAT: LOSSY,
    MESSAGES: {"model": "up/m", "max_tokens": 9, "messages": LOSSY["messages"], "container": "c"},
    RESPONSES: {"model": "up/m", "input": "Hi", "truncation": "auto"},
    GEMINI: {**request_body(GEMINI), "labels": {"team": "a"}},
}


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_strict_refusal_names_the_place_in_the_clients_form(client: str) -> None:
    gateway = scripted(CHAT if client != CHAT else MESSAGES, WHOLE_RESPONSE)
    response = await gateway.call(PATHS[client], LOSSY_OF[client], REQUEST_STRICT)
    assert check_error(client, 400, response.body) == []
    message = response.error["message"]
    place = {CHAT: "/logit_bias", MESSAGES: "/container", RESPONSES: "/truncation", GEMINI: "/labels"}[client]
    assert message.startswith("strict mode: ")
    assert place in message or "/seed" in message
