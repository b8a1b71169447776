"""Reasoning that only its vendor can read, through the whole gateway and back, and its losses."""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import anyio
import pytest
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    RESPONSES,
    ScriptedGateway,
    chat_response,
    messages_response,
    responses_response,
    scripted,
    whole,
)

from dragoman_server.responses.reasoning import MAX_AGE_S
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio


OTHER_SECRET = Secret("another-secret-of-some-length-0123")

# Reasoning of each vendor.
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Let me see."}],
    "encrypted_content": "gAAAA-canary",
}
# Of a model whose server encrypts none.
SHOWN_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Let me see."}],
    "encrypted_content": None,
}
RESPONSES_RESPONSE = responses_response(
    [REASONING, {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Four.", "annotations": []}]}]
)  # fmt: skip
THINKING = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB-canary"}
MESSAGES_RESPONSE = messages_response([THINKING, {"type": "text", "text": "Four."}])

QUESTION = [{"role": "user", "content": "2+2?"}]
AGAIN = {"role": "user", "content": "Sure?"}
REASONS = {"thinking": {"type": "adaptive"}, "max_tokens": 9000}


async def thinking_block(gateway: ScriptedGateway, model: str = "up/m") -> dict[str, Any]:
    """Return the block that a client of Messages gets for the reasoning of an upstream of Responses."""
    client = await gateway.call(PATHS[MESSAGES], {"model": model, "messages": QUESTION, **REASONS})
    (block,) = [each for each in json.loads(client.body)["content"] if each["type"] == "thinking"]
    return dict(block)


async def sent_back(gateway: ScriptedGateway, block: dict[str, Any], model: str = "up/m") -> tuple[Any, str]:
    """Return what the upstream gets when the client sends the block back, and the loss header of the response."""
    turn = {"role": "assistant", "content": [block, {"type": "text", "text": "Four."}]}
    messages = [*QUESTION, turn, AGAIN]
    client = await gateway.call(PATHS[MESSAGES], {"model": model, "messages": messages, **REASONS})
    assert client.status == 200
    items = gateway.sent[-1].body["input"]
    reasoning = [each for each in items if each["type"] == "reasoning"]
    return (reasoning[0] if reasoning else None), client.headers.get("dragoman-loss", "")


async def test_a_wrapped_signature_is_unwrapped_for_its_vendor() -> None:
    gateway = scripted(RESPONSES, whole(RESPONSES_RESPONSE))
    block = await thinking_block(gateway)
    assert block["thinking"] == "Let me see."
    assert block["signature"].startswith("drg1.")
    found, reported = await sent_back(gateway, block)
    assert found == {key: value for key, value in REASONING.items() if key != "status"}
    assert reported == ""


def cut(text: str) -> str:
    return text.rpartition(".")[0]


def changed(text: str) -> str:
    return text[:20] + ("A" if text[20] != "A" else "B") + text[21:]


@pytest.mark.parametrize("forge", [cut, changed, lambda text: text + "A", lambda text: "drg1.AAAA"])
async def test_a_forged_signature_is_left_out_and_recorded(forge: Any) -> None:
    gateway = scripted(RESPONSES, whole(RESPONSES_RESPONSE))
    block = await thinking_block(gateway)
    found, reported = await sent_back(gateway, {**block, "signature": forge(block["signature"])})
    assert found is None
    assert "foreign_signature=/messages/1/content/0" in reported


@pytest.mark.parametrize("genuine", [True, False])
async def test_a_signature_of_another_vendor_is_recorded_and_chat_gets_its_text(genuine: bool) -> None:
    block = await thinking_block(scripted(RESPONSES, whole(RESPONSES_RESPONSE)))
    if not genuine:
        block["signature"] = cut(block["signature"])
    upstream = {"reasoning_field": "reasoning"}
    gateway = scripted(CHAT, whole(chat_response({"content": "Yes."})), upstream=upstream)
    turn = {"role": "assistant", "content": [block, {"type": "text", "text": "Four."}]}
    messages = [*QUESTION, turn, AGAIN]
    client = await gateway.call(PATHS[MESSAGES], {"model": "up/m", "messages": messages, **REASONS})
    assert "canary" not in json.dumps(gateway.sent[-1].body)
    assert gateway.sent[-1].body["messages"][1]["reasoning"] == "Let me see."
    assert "foreign_signature=/messages/1/content/0" in client.headers["dragoman-loss"]


# Clients of Chat that do not send reasoning back.

CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}}
CALLS = whole(messages_response([THINKING, CALL], "tool_use"))
TEXT_RESPONSE = whole(messages_response([{"type": "text", "text": "Four."}]))
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
]


def chat(messages: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "up/m", "messages": messages, "tools": TOOLS, "reasoning_effort": "high", **more}


def turn_of(client: Any, stream: bool) -> dict[str, Any]:
    """Return the assistant's turn with only its calls, as most clients keep it."""
    if not stream:
        message = json.loads(client.body)["choices"][0]["message"]
        return {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]}
    calls: dict[int, dict[str, Any]] = {}
    for line in client.body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            for fragment in choice["delta"].get("tool_calls") or ():
                if fragment["index"] in calls:
                    calls[fragment["index"]]["function"]["arguments"] += fragment["function"]["arguments"]
                else:
                    calls[fragment["index"]] = fragment
    return {"role": "assistant", "content": None, "tool_calls": list(calls.values())}


async def second_turn(
    gateway: ScriptedGateway,
    *,
    stream: bool = False,
    wait: float = 0,
    keys: tuple[str | None, str | None] = (None, None),
    **more: str,
) -> Any:
    """Return the assistant's turn that the upstream gets if its client sends only the calls and `more`."""
    first = await gateway.call(PATHS[CHAT], chat(QUESTION, stream=stream), key=keys[0])
    await anyio.sleep(wait)
    turn = turn_of(first, stream) | more
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "4"}
    await gateway.call(PATHS[CHAT], chat([*QUESTION, turn, result]), key=keys[1])
    return gateway.sent[-1].body["messages"][1]["content"]


@pytest.mark.parametrize("stream", [True, False])
async def test_stored_reasoning_is_added_for_clients_that_drop_it(stream: bool) -> None:
    first, second = await second_turn(scripted(MESSAGES, CALLS, TEXT_RESPONSE), stream=stream)
    assert first == THINKING
    assert (second["type"], second["id"]) == ("tool_use", "toolu_1")


@pytest.mark.parametrize(
    ("settings", "wait", "found"),
    [
        ({}, MAX_AGE_S - 1, True),
        ({}, MAX_AGE_S + 1, False),
        ({"reasoning_store_bytes": 0}, 0, False),
        ({"reasoning_store_bytes": 100}, 0, False),
    ],
)
async def test_stored_reasoning_is_bounded(settings: dict[str, Any], wait: float, found: bool) -> None:
    content = await second_turn(scripted(MESSAGES, CALLS, TEXT_RESPONSE, **settings), wait=wait)
    assert (content[0] == THINKING) is found


async def test_stored_reasoning_is_kept_no_longer_by_an_explanation() -> None:
    gateway = scripted(MESSAGES, CALLS, TEXT_RESPONSE)
    turn = turn_of(await gateway.call(PATHS[CHAT], chat(QUESTION)), False)
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "4"}
    clients = []
    for prefix in ("/admin/explain", ""):
        await anyio.sleep(MAX_AGE_S - 1)
        clients.append(await gateway.call(prefix + PATHS[CHAT], chat([*QUESTION, turn, result])))
    assert THINKING["signature"] in clients[0].body.decode()
    assert gateway.sent[-1].body["messages"][1]["content"][0] != THINKING


async def test_reasoning_that_the_client_sends_back_counts() -> None:
    """A client that keeps reasoning_details sends its reasoning back without the store."""
    gateway = scripted(MESSAGES, CALLS, TEXT_RESPONSE, reasoning_store_bytes=0)
    first = await gateway.call(PATHS[CHAT], chat(QUESTION))
    turn = json.loads(first.body)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "4"}
    await gateway.call(PATHS[CHAT], chat([*QUESTION, turn, result]))
    assert gateway.sent[-1].body["messages"][1]["content"][0] == THINKING


# An account of another organization cannot read what the first one made.

UNVERIFIED = {
    "error": {
        "message": "The encrypted content gAAA...1234 could not be verified.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_encrypted_content",
    }
}
TOO_LONG = {
    "error": {
        "message": "Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but got an array with length 1 instead.",
        "type": "invalid_request_error",
        "param": "input[1].content",
        "code": "array_above_max_length",
    }
}
UNSIGNED = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
    },
}
CALL_M = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
CALL_R = {"type": "function_call", "call_id": "t1", "name": "f", "arguments": "{}"}
RESULT_M = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "4"}]}
RESULT_R = {"type": "function_call_output", "call_id": "t1", "output": "4"}
MOVED = [
    pytest.param(
        MESSAGES,
        {"max_tokens": 9000, "messages": [*QUESTION, {"role": "assistant", "content": [THINKING, CALL_M]}, RESULT_M]},
        [UNSIGNED, MESSAGES_RESPONSE],
        ["messages", 1, "content"],
        [CALL_M],
        id="messages",
    ),
    pytest.param(
        RESPONSES,
        {"input": [*QUESTION, REASONING, CALL_R, RESULT_R], "store": False},
        [UNVERIFIED, RESPONSES_RESPONSE],
        ["input"],
        [QUESTION[0], CALL_R, RESULT_R],
        id="responses",
    ),
    pytest.param(
        RESPONSES,
        {"input": [*QUESTION, SHOWN_REASONING, CALL_R, RESULT_R], "store": False},
        [TOO_LONG, RESPONSES_RESPONSE],
        ["input"],
        [QUESTION[0], CALL_R, RESULT_R],
        id="an open model's",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "body", "replies", "place", "left"), MOVED)
async def test_c11_reasoning_of_another_account_is_left_out_once_and_recorded(
    protocol: str, body: dict[str, Any], replies: list[Any], place: list[Any], left: Any, record: Any
) -> None:
    gateway = scripted(protocol, whole(replies[0], 400), whole(replies[1]))
    client = await gateway.call(PATHS[protocol], {"model": "up/m", **body})
    assert client.status == 200
    assert json.loads(client.body) == replies[1]
    assert "foreign_signature=/" in client.headers["dragoman-loss"]
    first, second = (sent.body for sent in gateway.sent)
    assert second != first
    for step in place:
        second = second[step]
    assert second == left
    line = record()
    assert (line["attempts"], line["outcome"], line["upstream_status"]) == (2, "completed", 200)
    found = [(each["account"], each["model"], each["status"], each["cause"]) for each in line["failures"]]
    assert found == [("up/default", "up/m", 400, replies[0]["error"]["message"])]


SIGNED_TURN = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "Four."}]}


@pytest.mark.parametrize(
    ("messages", "headers", "sent"),
    [
        ([*QUESTION, SIGNED_TURN, AGAIN], {}, 2),
        ([*QUESTION, SIGNED_TURN, AGAIN], {"dragoman-loss-policy": "refuse"}, 1),
        (QUESTION, {}, 1),  # there is nothing to leave out
    ],
    ids=["once", "never in strict mode", "without reasoning"],
)
async def test_how_often_it_is_tried_without_reasoning(
    messages: list[Any], headers: dict[str, str], sent: int
) -> None:
    gateway = scripted(MESSAGES, whole(UNSIGNED, 400))
    body = {"model": "up/m", "max_tokens": 9, "messages": messages}
    client = await gateway.call(PATHS[MESSAGES], body, headers)
    assert (client.status, client.error) == (400, UNSIGNED["error"])
    assert len(gateway.sent) == sent


SYSTEM = {"role": "system", "content": "be brief"}
OTHER = {"role": "user", "content": "another question"}


@pytest.mark.parametrize(
    ("now", "headers", "found"),
    [
        (QUESTION, {}, True),
        ([*QUESTION, OTHER], {}, True),
        # Clients change their instructions.
        ([SYSTEM, *QUESTION], {}, True),
        ([OTHER, *QUESTION], {}, False),
        (QUESTION, {"session-id": "another"}, False),
        ([], {}, False),
    ],
)
async def test_reasoning_of_another_conversation_with_the_same_ids_is_not_added(
    now: list[Any], headers: dict[str, str], found: bool
) -> None:
    gateway = scripted(MESSAGES, CALLS, TEXT_RESPONSE)
    turn = turn_of(await gateway.call(PATHS[CHAT], chat(QUESTION)), False)
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "4"}
    await gateway.call(PATHS[CHAT], chat([*now, turn, result]), headers=headers)
    sent = [each for each in gateway.sent[-1].body["messages"] if each["role"] == "assistant"]
    assert (sent[0]["content"][0] == THINKING) is found


@pytest.mark.parametrize("secret", [OTHER_SECRET, None], ids=["another", "none"])
async def test_a_signature_of_another_secret_is_left_out_and_recorded(secret: Secret | None) -> None:
    block = await thinking_block(scripted(RESPONSES, whole(RESPONSES_RESPONSE), secret=secret))
    found, reported = await sent_back(scripted(RESPONSES, whole(RESPONSES_RESPONSE)), block)
    assert found is None
    assert "foreign_signature=/messages/1/content/0" in reported


async def test_strict_mode_refuses_a_forged_signature() -> None:
    gateway = scripted(RESPONSES, whole(RESPONSES_RESPONSE))
    block = {**await thinking_block(gateway), "signature": "drg1.AAAA"}
    turn = {"role": "assistant", "content": [block, {"type": "text", "text": "Four."}]}
    body = {"model": "up/m", "messages": [*QUESTION, turn, AGAIN], "max_tokens": 9}
    client = await gateway.call(PATHS[MESSAGES], body, {"dragoman-loss-policy": "refuse"})
    assert client.status == 400
    assert len(gateway.sent) == 1


@pytest.mark.parametrize(
    ("keys", "found"), [(("red", "red"), True), (("red", "blue"), False)], ids=["own", "another's"]
)
async def test_reasoning_of_another_key_is_not_added(keys: tuple[str, str], found: bool) -> None:
    gateway = scripted(MESSAGES, CALLS, TEXT_RESPONSE, keys={"red": {}, "blue": {}})
    assert ((await second_turn(gateway, keys=keys))[0] == THINKING) is found
