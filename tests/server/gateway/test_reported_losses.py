"""The ledger through the application: the header, the log line, and strict mode."""

import logging
import re
from typing import Any

import pytest
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    chat_response,
    messages_response,
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
HEADER = "2; dropped=/logit_bias, dropped=/seed"


def losses_of(header: str) -> set[str]:
    count, _, codes = header.partition("; ")
    found = set(codes.split(", "))
    assert count == str(len(found))
    return found


@pytest.mark.parametrize("stream", [True, False])
async def test_the_header_names_each_place(stream: bool) -> None:
    client = await scripted(MESSAGES, WHOLE_RESPONSE).call(PATHS[CHAT], {**LOSSY, "stream": stream})
    assert client.status == 200
    assert losses_of(client.headers["dragoman-loss"]) == losses_of(HEADER)


async def test_losses_of_a_whole_response_are_in_the_header_too() -> None:
    response = chat_response({"content": "Hello"})
    response["choices"][0]["logprobs"] = {
        "content": [{"token": "Hello", "logprob": -0.5, "bytes": None, "top_logprobs": []}]
    }
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


async def test_the_log_line_has_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await scripted(MESSAGES, WHOLE_RESPONSE).call(PATHS[CHAT], LOSSY)
    (line,) = [record.__dict__["dragoman"] for record in caplog.records if "dragoman" in record.__dict__]
    assert sorted(line["losses"]) == ["dropped /logit_bias", "dropped /seed"]


# Strict mode.

UPSTREAM_STRICT = {"upstream": {"loss_policy": "refuse"}}
SERVER_STRICT = {"loss_policy": "refuse"}
KEYS = {
    "keys": {
        "strict": {"loss_policy": "refuse"},
        "easy": {"loss_policy": "record"},
        "loose": {"may_loosen": True},
    }
}
REQUEST_STRICT, REQUEST_RECORD = {"dragoman-loss-policy": "refuse"}, {"dragoman-loss-policy": "record"}


LOSS_POLICIES: list[tuple[dict[str, Any], str | None, dict[str, str], int]] = [
    ({}, None, {}, 200),
    (SERVER_STRICT, None, {}, 400),
    (UPSTREAM_STRICT, None, {}, 400),
    ({}, None, REQUEST_STRICT, 400),
    (KEYS, "strict", {}, 400),
    (KEYS, "loose", {}, 200),
    (KEYS | UPSTREAM_STRICT, "easy", {}, 200),
    (KEYS | UPSTREAM_STRICT, "loose", {}, 400),
    (KEYS | UPSTREAM_STRICT, "loose", REQUEST_RECORD, 200),
    (KEYS, "easy", REQUEST_STRICT, 400),
    (KEYS, "strict", REQUEST_RECORD, 403),
    (UPSTREAM_STRICT, None, REQUEST_RECORD, 403),
    ({}, None, {"dragoman-loss-policy": "strict"}, 400),
]


async def test_the_loss_policy_that_applies() -> None:
    for settings, key, headers, status in LOSS_POLICIES:
        gateway = scripted(MESSAGES, WHOLE_RESPONSE, **settings)
        client = await gateway.call(PATHS[CHAT], LOSSY, headers, key)
        assert client.status == status, (settings, key, headers)
        assert bool(gateway.sent) is (status == 200), (
            "the upstream is called when and only when it is allowed"
        )


LOSSY_OF = {
    CHAT: LOSSY,
    MESSAGES: {"model": "up/m", "max_tokens": 9, "messages": LOSSY["messages"], "container": "c"},
    RESPONSES: {"model": "up/m", "input": "Hi", "truncation": "auto"},
}


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_strict_refusal_names_the_place_in_the_clients_form(client: str) -> None:
    gateway = scripted(CHAT if client != CHAT else MESSAGES, WHOLE_RESPONSE)
    response = await gateway.call(PATHS[client], LOSSY_OF[client], REQUEST_STRICT)
    assert check_error(client, 400, response.body) == []
    message = response.error["message"]
    place = {CHAT: "/logit_bias", MESSAGES: "/container", RESPONSES: "/truncation"}[client]
    assert message.startswith("strict mode: ")
    assert place in message or "/seed" in message


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_relay_passes_strict_mode(client: str) -> None:
    responses = {
        CHAT: whole(chat_response({"content": "Hello"})),
        MESSAGES: WHOLE_RESPONSE,
        RESPONSES: whole({"output": []}),
    }
    gateway = scripted(client, responses[client], loss_policy="refuse")
    response = await gateway.call(PATHS[client], {**LOSSY_OF[client], "unknown_field": 1})
    assert response.status == 200
    assert gateway.sent[0].body["unknown_field"] == 1
