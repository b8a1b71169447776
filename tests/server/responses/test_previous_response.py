"""Conversations that go on from stored responses: every upstream protocol, as a server drives the application."""

import json
from typing import Any

import pytest
from gateway.simulated import Gateway, gateway
from gateway.stored import (
    ON,
    PATH,
    USER,
    create_response,
    each_mode,
    each_stateless,
    each_translated,
    refused,
    text_of,
)
from oracle import RESPONSES, check_error

pytestmark = pytest.mark.anyio


# Going on from a response.


@each_stateless
@each_mode
async def test_the_conversation_goes_on(up: Gateway, upstream: str, stream: bool) -> None:
    first = await create_response(up, upstream, "one two", stream=stream)
    second = await create_response(up, upstream, "three", stream=stream, previous_response_id=first["id"])
    third = await create_response(up, upstream, "four five", stream=stream, previous_response_id=second["id"])
    assert [text_of(each) for each in (first, second, third)] == ["one two", "three", "four five"]
    # Each word of the user is repeated once.
    assert [each["usage"]["input_tokens"] for each in (first, second, third)] == [2, 5, 8]
    assert "previous_response_id" not in up.last.body


@each_stateless
async def test_a_result_needs_its_call(up: Gateway, upstream: str) -> None:
    first = await create_response(up, upstream, "one")
    calls = [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "x"},
    ]
    results = [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "x"} for call in calls
    ]
    with_call = await create_response(
        up, upstream, [*calls, results[0], USER], previous_response_id=first["id"]
    )
    # The other call is earlier in the conversation.
    await create_response(up, upstream, [results[1], USER], previous_response_id=with_call["id"])
    later = {"model": f"{upstream}/echo", "input": [USER, results[1]], "previous_response_id": first["id"]}
    error = await refused(up, 400, later)
    assert error["message"] == "No tool call found for function call output with call_id b."
    assert error["param"] == "input[1].call_id"


@each_translated
@each_mode
async def test_the_response_has_store_as_it_is(upstream: str, stream: bool) -> None:
    async with gateway(**ON) as up:
        assert (await create_response(up, upstream, "one", stream=stream))["store"] is True
        assert (await create_response(up, upstream, "one", stream=stream, store=True))["store"] is True
        assert (await create_response(up, upstream, "one", stream=stream, store=False))["store"] is False
    async with gateway() as up:
        assert (await create_response(up, upstream, "one", stream=stream))["store"] is False
        assert (await create_response(up, upstream, "one", stream=stream, store=True))["store"] is False


@each_translated
async def test_a_stored_response_is_no_loss(upstream: str) -> None:
    body = {"model": f"{upstream}/echo", "input": "one", "store": True}
    async with gateway(**ON, loss_policy="refuse") as up:
        client = await up.call(PATH, body)
        assert client.status == 200, client.body
        assert "dragoman-loss" not in client.headers
        assert "store" not in up.last.body


# Items.


@each_stateless
@pytest.mark.parametrize("bare", [False, True], ids=["typed", "bare"])
async def test_an_item_reference_stands_for_the_item(up: Gateway, upstream: str, bare: bool) -> None:
    first = await create_response(up, upstream, "one two three")
    reference = {"id": first["output"][0]["id"]} | ({} if bare else {"type": "item_reference"})
    second = await create_response(up, upstream, [USER, reference, {**USER, "content": "end"}])
    assert second["usage"]["input_tokens"] == 1 + 3 + 1
    sent = json.dumps(up.last.body)
    assert "item_reference" not in sent
    assert "one two three" in sent


@each_translated
async def test_references_count_for_the_size_of_the_request(upstream: str) -> None:
    async with gateway(**ON, max_body_bytes=1400) as up:
        stored = [await create_response(up, upstream, "x" * 400) for _ in range(2)]
        references = [{"type": "item_reference", "id": each["output"][0]["id"]} for each in stored]
        await create_response(up, upstream, [USER, *references])
        sent = len(up.upstreams.sent)
        stored.append(await create_response(up, upstream, "y" * 400))
        references.append({"type": "item_reference", "id": stored[2]["output"][0]["id"]})
        unknown = {"type": "item_reference", "id": "msg_unknown"}
        body = {"model": f"{upstream}/echo", "input": [USER, *references, unknown]}
        error = await refused(up, 413, body)
        assert "more than 1400 bytes with the stored items" in error["message"]
        assert error["param"] == "input[3]"
        body = {"model": f"{upstream}/echo", "input": "x" * 900, "previous_response_id": stored[0]["id"]}
        assert (await refused(up, 413, body))["param"] == "input[0]"
        assert len(up.upstreams.sent) == sent + 1


@each_translated
@pytest.mark.parametrize("id", ["msg_no", "not an id at all"])
async def test_an_unknown_item_is_refused(up: Gateway, upstream: str, id: str) -> None:
    body = {"model": f"{upstream}/echo", "input": [USER, {"type": "item_reference", "id": id}]}
    error = await refused(up, 404, body)
    assert (error["code"], error["param"]) == ("item_not_found", "input[1].id")
    assert error["message"].startswith(f"Item with id '{id}' not found.")
    assert not up.upstreams.sent


# Responses that cannot be continued.


@each_translated
@pytest.mark.parametrize("id", ["resp_unknown", "not an id at all", "\ud800", "resp_" + "x" * 500])
async def test_an_unknown_response_is_refused_as_openai_does(up: Gateway, upstream: str, id: str) -> None:
    body = {"model": f"{upstream}/echo", "input": "x", "previous_response_id": id}
    error = await refused(up, 400, body)
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert error["type"] == "invalid_request_error"
    if len(id) < 100 and id.isascii():
        assert error["message"] == f"Previous response with id '{id}' not found."
    assert not up.upstreams.sent


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a number for the id": ({"previous_response_id": 5}, "previous_response_id", "must be a string"),
    "a number for the input": ({"input": 5}, "input", "must be a string or an array"),
    "a number for an item": ({"input": [USER, 5]}, "input[1]", "must be an object, not a number"),
    "a reference to nothing": ({"input": [{"type": "item_reference"}]}, "input[0].id", "is required"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_types_are_errors(up: Gateway, name: str) -> None:
    wrong, param, message = WRONG[name]
    error = await refused(up, 400, {"model": "chat/echo", "input": "x", **wrong})
    assert error["param"] == param
    assert message in error["message"]


# Switched off, as it is by default.

OFF: dict[str, dict[str, Any]] = {
    "previous_response_id": {"input": "x", "previous_response_id": "resp_1"},
    "input[0]": {"input": [{"type": "item_reference", "id": "msg_1"}]},
}


@each_translated
@pytest.mark.parametrize("param", OFF)
async def test_off_the_error_names_the_setting(upstream: str, param: str) -> None:
    async with gateway() as up:
        error = await refused(up, 400, {"model": f"{upstream}/echo", **OFF[param]})
        assert (error["param"], error["code"]) == (param, "unsupported_parameter")
        assert "server.response_store" in error["message"]
        assert not up.upstreams.sent


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
)
async def test_off_no_response_is_found_and_the_error_has_the_reason(method: str, path: str) -> None:
    async with gateway() as up:
        client = await up.call(f"{PATH}/resp_1{path}", {}, method)
        assert client.status == 400
        assert check_error(RESPONSES, 400, client.body) == []
        error = client.error
        assert error["code"] == "unsupported_operation"
        assert "server.response_store" in error["message"]


# Upstreams of Responses may have responses that the gateway does not have.

THEIRS: dict[str, dict[str, Any]] = {
    "a response": {"previous_response_id": "resp_theirs", "input": [USER]},
    "an item": {"input": [{"type": "item_reference", "id": "msg_theirs"}, USER]},
    "both": {"previous_response_id": "resp_theirs", "input": [{"type": "item_reference", "id": "msg_theirs"}, USER]},
}  # fmt: skip


@pytest.mark.parametrize("server", [{}, ON], ids=["off", "on"])
@pytest.mark.parametrize("upstream", ["openai", "stateless"])
@pytest.mark.parametrize("name", THEIRS)
async def test_an_unknown_id_is_relayed_unchanged(name: str, upstream: str, server: dict[str, Any]) -> None:
    async with gateway(**server) as up:
        sent = json.dumps({"model": f"{upstream}/echo", **THEIRS[name]}, indent=1).encode()
        client = await up.call(PATH, sent)
        assert client.status == 200, client.body
        assert up.last.content == sent.replace(f"{upstream}/".encode(), b"")
        # Only the upstream has the whole of such a conversation.
        await up.get(f"{PATH}/{json.loads(client.body)['id']}", 404 if server else 400)


async def test_a_lookalike_is_no_reference() -> None:
    async with gateway() as up:
        assert text_of(await create_response(up, "chat", [{**USER, "extra": {"id": "x"}}])) == "again"


async def test_an_upstream_that_stores_gets_our_items_and_keeps_its_own_references(up: Gateway) -> None:
    first = await create_response(up, "chat", "one two")
    ours = {"type": "item_reference", "id": first["output"][0]["id"]}
    theirs = {"type": "item_reference", "id": "msg_theirs"}
    await create_response(up, "openai", [theirs, ours, USER])
    sent = up.last.body["input"]
    assert (sent[0], sent[1]["content"][0]["text"], sent[2]) == (theirs, "one two", USER)
