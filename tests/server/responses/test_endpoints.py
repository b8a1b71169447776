"""The endpoints below /v1/responses/{id}, as a server drives the application: get, delete, list, stream again."""

from typing import Any

import pytest
from gateway.simulated import Gateway, frames, gateway
from gateway.stored import ON, PATH, create_response, each_mode, each_stateless, refused
from oracle import RESPONSES, check_error

pytestmark = pytest.mark.anyio


# GET and DELETE.


@each_stateless
@each_mode
async def test_a_response_can_be_retrieved(up: Gateway, upstream: str, stream: bool) -> None:
    first = await create_response(up, upstream, "one two", stream=stream, metadata={"a": "b"})
    found = await up.get(f"{PATH}/{first['id']}?include=message.output_text.logprobs")
    assert found == {**first, "store": True, "previous_response_id": None}
    second = await create_response(up, upstream, "three", stream=stream, previous_response_id=first["id"])
    found = await up.get(f"{PATH}/{second['id']}")
    assert found == {**second, "store": True, "previous_response_id": first["id"]}


async def test_a_deleted_response_is_gone_and_the_conversation_goes_on(up: Gateway) -> None:
    first = await create_response(up, "chat", "one")
    second = await create_response(up, "chat", "two", previous_response_id=first["id"])
    path = f"{PATH}/{first['id']}"
    expected = {"id": first["id"], "object": "response", "deleted": True}
    assert await up.json(path, method="DELETE") == expected
    await up.get(path, 404)
    await up.json(path, method="DELETE", status=404)
    await refused(up, 400, {"model": "chat/echo", "input": "x", "previous_response_id": first["id"]})
    third = await create_response(up, "chat", "three", previous_response_id=second["id"])
    assert third["usage"]["input_tokens"] == 5


@pytest.mark.parametrize("id", ["resp_unknown", "%F0%9F%90%89", "a b", "."])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
)
@pytest.mark.each_choice
async def test_an_unknown_response_is_404_in_the_right_form(
    up: Gateway, id: str, method: str, path: str
) -> None:
    client = await up.call(f"{PATH}/{id}{path}", {}, method)
    assert client.status == 404
    assert check_error(RESPONSES, 404, client.body) == []
    message = client.error["message"]
    assert message == f"Response with id '{id}' not found."


async def test_there_is_nothing_to_cancel(up: Gateway) -> None:
    first = await create_response(up, "chat", "one")
    error = await refused(up, 400, {}, f"{PATH}/{first['id']}/cancel")
    assert error["message"] == "Cannot cancel a synchronous response."


# Streaming again.


def deltas_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@each_stateless
async def test_a_response_in_the_background_can_be_streamed_again(up: Gateway, upstream: str) -> None:
    text = "one two three"
    first = await create_response(up, upstream, text, metadata={"a": "b"}, stream=True, background=True)
    path = f"{PATH}/{first['id']}?stream=true"
    client = await up.call(path, method="GET")
    assert (client.status, client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    events = frames(client.body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    expected = ["response.created", "response.in_progress", "response.output_item.added"]
    assert [event["type"] for event in events[:3]] == expected
    assert {event["response"]["id"] for event in events if "response" in event} == {first["id"]}
    assert events[0]["response"]["metadata"] == {"a": "b"}
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    assert deltas_of(events) == "one two three"
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"] == await up.get(f"{PATH}/{first['id']}")
    later = await up.call(f"{path}&starting_after=3", method="GET")
    assert frames(later.body) == events[4:]
    assert frames((await up.call(f"{path}&starting_after=9999", method="GET")).body) == []


@each_mode
async def test_a_response_of_a_request_that_waited_is_not_streamed_again(up: Gateway, stream: bool) -> None:
    first = await create_response(up, "chat", "one", stream=stream)
    client = await up.call(f"{PATH}/{first['id']}?stream=true", method="GET")
    assert client.status == 404
    assert "background=true" in client.error["message"]


BAD_QUERIES = {
    "?stream=maybe": "stream must be true or false",
    "?stream=true&starting_after=x": "starting_after must be an integer",
    "?stream=true&starting_after=-1": "starting_after must be an integer",
    f"?stream=true&starting_after={2**53 + 1}": "starting_after must be an integer",
    "/input_items?limit=0": "limit must be an integer from 1 to 100",
    "/input_items?limit=101": "limit must be an integer from 1 to 100",
    "/input_items?limit=many": "limit must be an integer from 1 to 100",
    "/input_items?order=up": "order must be asc or desc",
    "/input_items?after=msg_unknown": "after must be an id of this list",
}


async def test_an_invalid_query_is_refused() -> None:
    for query in BAD_QUERIES:
        async with gateway(**ON) as up:
            first = await create_response(up, "chat", "one")
            client = await up.call(f"{PATH}/{first['id']}{query}", method="GET")
            assert client.status == 400, query
            assert check_error(RESPONSES, 400, client.body) == [], query
            assert BAD_QUERIES[query] in client.error["message"], query


# Input items.


async def test_input_items_are_the_whole_input_of_the_model(up: Gateway) -> None:
    first = await create_response(up, "chat", "one")
    content = [{"type": "input_text", "text": "two"}]
    named = {"type": "message", "id": "msg_mine", "role": "user", "content": content}
    second = await create_response(
        up, "chat", [named, {"role": "assistant", "content": "hm"}], previous_response_id=first["id"]
    )
    page = await up.get(f"{PATH}/{second['id']}/input_items?order=asc&include=reasoning.encrypted_content")
    assert page["object"] == "list"
    assert page["has_more"] is False
    data = page["data"]
    assert [item["content"][0]["text"] for item in data] == ["one", "one", "two", "hm"]
    assert [item["role"] for item in data] == ["user", "assistant", "user", "assistant"]
    expected = ["input_text", "output_text", "input_text", "output_text"]
    assert [item["content"][0]["type"] for item in data] == expected
    assert all(item["id"] and item["type"] == "message" and item["status"] == "completed" for item in data)
    assert (data[1], data[2]) == (first["output"][0], {**named, "status": "completed"})
    assert (page["first_id"], page["last_id"]) == (data[0]["id"], data[-1]["id"])
    assert len({item["id"] for item in data}) == 4


async def test_input_items_come_in_pages(up: Gateway) -> None:
    items = [{"role": "user", "content": f"word{number}"} for number in range(45)]
    first = await create_response(up, "chat", items)
    path = f"{PATH}/{first['id']}/input_items"

    async def text(query: str) -> tuple[list[str], dict[str, Any]]:
        page = await up.get(f"{path}?{query}")
        return [item["content"][0]["text"] for item in page["data"]], page

    newest, page = await text("")
    assert newest == [f"word{number}" for number in range(44, 24, -1)]
    assert page["has_more"] is True
    older, page = await text(f"after={page['last_id']}&limit=100")
    assert older == [f"word{number}" for number in range(24, -1, -1)]
    assert page["has_more"] is False
    none, page = await text(f"after={page['last_id']}")
    assert (none, page["first_id"], page["last_id"], page["has_more"]) == ([], None, None, False)
    oldest, page = await text("order=asc&limit=2")
    assert oldest == ["word0", "word1"]
    assert (await text(f"order=asc&limit=2&after={page['last_id']}"))[0] == ["word2", "word3"]
