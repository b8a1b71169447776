"""Parameters that the gateway implements for upstreams that lack them, through the application: `n`, `stop`, usage."""

import json
from typing import Any

import pytest
from gateway.fakes import Script, Sleep
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    RESPONSES,
    chat_response,
    chunk,
    events_in,
    messages_response,
    responses_response,
    scripted,
    stream,
    whole,
)

pytestmark = pytest.mark.anyio


REQUEST = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}


def text_response(text: str) -> Script:
    return whole(messages_response([{"type": "text", "text": text}]))


def item(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": content}


# n.


async def test_several_choices_are_requested_one_by_one_and_their_usage_is_summed(record: Any) -> None:
    gateway = scripted(MESSAGES, text_response("a"), text_response("b"), text_response("c"))
    client = await gateway.call(PATHS[CHAT], {**REQUEST, "n": 3})
    body = json.loads(client.body)
    assert len(gateway.sent) == 3
    assert all("n" not in sent.body for sent in gateway.sent)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert sorted(choice["message"]["content"] for choice in body["choices"]) == ["a", "b", "c"]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (9, 12)
    assert "dragoman-loss" not in client.headers
    assert (record()["input_tokens"], record()["output_tokens"]) == (9, 12)


async def test_several_choices_in_one_stream() -> None:
    gateway = scripted(RESPONSES, *[whole(responses_response([item(text)])) for text in "ab"])
    requested = {**REQUEST, "n": 2, "stream": True, "stream_options": {"include_usage": True}}
    client = await gateway.call(PATHS[CHAT], requested)
    texts = {0: "", 1: ""}
    found = events_in(client.body)
    for each in found:
        for choice in each["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert sorted(texts.values()) == ["a", "b"]
    assert found[-1]["usage"]["total_tokens"] == 14
    assert client.body.endswith(b"data: [DONE]\n\n")


async def test_an_upstream_with_choices_gets_one_request() -> None:
    gateway = scripted(CHAT, whole(chat_response({"content": "a"})))
    await gateway.call(PATHS[CHAT], {**REQUEST, "n": 3})
    assert [sent.body["n"] for sent in gateway.sent] == [3]


@pytest.mark.promise("S7")
async def test_more_choices_than_the_gateway_allows() -> None:
    gateway = scripted(MESSAGES, text_response("a"))
    client = await gateway.call(PATHS[CHAT], {**REQUEST, "n": 17})
    assert (client.status, gateway.sent) == (400, [])
    assert "at most 16" in client.error["message"]


# stop.


def text_in(body: bytes) -> str:
    choices = [choice for each in events_in(body) for choice in each["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def delta(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, "content_index": 0, "item_id": "m_1", **more}


def streamed(*texts: str) -> Script:
    created = {**responses_response([]), "status": "in_progress"}
    empty = {**item(""), "content": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    whole_text = "".join(texts)
    return stream(
        {"type": "response.created", "response": created},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
        delta("content_part.added", part=part),
        *[delta("output_text.delta", delta=text) for text in texts],
        delta("output_text.done", text=whole_text),
        delta("content_part.done", part={**part, "text": whole_text}),
        {"type": "response.output_item.done", "output_index": 0, "item": item(whole_text)},
        {"type": "response.completed", "response": responses_response([item(whole_text)])},
    )


@pytest.mark.parametrize("client", [CHAT, MESSAGES])
async def test_stop_sequences_are_applied_if_the_upstream_has_none(client: str) -> None:
    gateway = scripted(RESPONSES, whole(responses_response([item("one\nEND two")])))
    name = "stop" if client == CHAT else "stop_sequences"
    response = await gateway.call(PATHS[client], {**REQUEST, "max_tokens": 90, name: ["END", "never"]})
    body = json.loads(response.body)
    assert not {"stop", "stop_sequences"} & gateway.sent[0].body.keys()
    if client == CHAT:
        assert body["choices"][0]["message"]["content"] == "one\n"
        assert body["choices"][0]["finish_reason"] == "stop"
    else:
        assert [block["text"] for block in body["content"]] == ["one\n"]
        assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")
    assert "dragoman-loss" not in response.headers


async def test_a_stream_ends_at_the_stop_and_the_upstream_is_closed() -> None:
    script = streamed("one E", "N", "D two", " three")
    script = Script([*script.body[:6], Sleep(3600), *script.body[6:]], headers=script.headers)
    gateway = scripted(RESPONSES, script)
    response = await gateway.call(PATHS[CHAT], {**REQUEST, "stop": "END", "stream": True})
    assert text_in(response.body) == "one "
    assert response.body.endswith(b"data: [DONE]\n\n")
    (fake,) = [sent.fake for sent in gateway.sent]
    assert fake.open_count == 0
    assert fake.closed_at is not None
    assert fake.closed_at < 60, "the client does not wait for bytes that it will not get"


async def test_text_that_only_begins_like_a_stop_arrives_complete() -> None:
    gateway = scripted(RESPONSES, streamed("one E", "N", "C", "EN"))
    response = await gateway.call(PATHS[CHAT], {**REQUEST, "stop": "END", "stream": True})
    assert text_in(response.body) == "one ENCEN"


# Usage.


@pytest.mark.parametrize(
    ("streams", "done"),
    [(True, True), (True, False), (False, True)],
    ids=["stream", "stream, cut between finish and usage", "whole"],
)
async def test_usage_that_was_not_reported_is_marked_as_an_estimate(
    streams: bool, done: bool, record: Any
) -> None:
    text = "Hello there, this is an answer."
    if streams:
        script = stream(chunk({"role": "assistant", "content": text}), chunk({}, "stop"), done=done)
    else:
        script = whole(chat_response({"content": text}, usage=None))
    body = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi there. " * 20}]}
    client = await scripted(CHAT, script).call(PATHS[MESSAGES], {**body, "stream": streams})
    if streams:
        assert client.headers["dragoman-estimate"] == "input_tokens"
        usage = next(each["usage"] for each in events_in(client.body) if each["type"] == "message_delta")
    else:
        assert client.headers["dragoman-loss"] == "1; estimated=answer:/usage"
        usage = json.loads(client.body)["usage"]
    assert 30 < usage["input_tokens"] < 100
    assert usage["output_tokens"] == 8
    assert (record()["losses"], record()["estimated"]) == (["estimated answer:/usage"], True)


async def test_usage_is_requested_of_a_chat_upstream() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    script = stream(
        chunk({"role": "assistant", "content": "Hello"}), chunk({}, "stop"), chunk(usage=usage), done=True
    )
    gateway = scripted(CHAT, script)
    client = await gateway.call(PATHS[MESSAGES], {**REQUEST, "max_tokens": 9, "stream": True})
    assert gateway.sent[0].body["stream_options"] == {"include_usage": True}
    reported = next(each["usage"] for each in events_in(client.body) if each["type"] == "message_delta")
    assert (reported["input_tokens"], reported["output_tokens"]) == (3, 4)


@pytest.mark.parametrize("requested", [True, False])
async def test_a_chat_client_gets_usage_only_if_it_requested_it(requested: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if requested else {}
    client = await scripted(MESSAGES, text_response("Hello")).call(
        PATHS[CHAT], {**REQUEST, "stream": True, **options}
    )
    assert any(each.get("usage") for each in events_in(client.body)) is requested


# Settings that a model refuses.


async def test_settings_that_the_model_refuses_are_left_out_and_recorded() -> None:
    gateway = scripted(CHAT, whole(chat_response({"content": "a"})), upstream={"refuses": ("temperature",)})
    body = {"model": "up/m", "input": "Hi", "temperature": 0.5, "top_p": 0.5}
    client = await gateway.call(PATHS[RESPONSES], body)
    assert "temperature" not in gateway.sent[0].body
    assert gateway.sent[0].body["top_p"] == 0.5
    assert client.headers["dragoman-loss"] == "1; dropped=/temperature"


@pytest.mark.parametrize(
    ("model", "effort"), [("m", "high"), ("gpt-5-mini", "minimal"), ("gpt-5.1", "none"), ("little", None)]
)
async def test_the_effort_is_one_that_the_model_accepts(model: str, effort: str | None) -> None:
    supported = {"efforts": ("high",)} if model == "m" else {"efforts": ()} if model == "little" else {}
    gateway = scripted(CHAT, whole(chat_response({"content": "a"})), upstream=supported)
    requested = {"m": "low", "gpt-5-mini": "none", "gpt-5.1": "minimal", "little": "high"}[model]
    body = {"model": f"up/{model}", "input": "Hi", "reasoning": {"effort": requested}}
    client = await gateway.call(PATHS[RESPONSES], body)
    assert gateway.sent[0].body.get("reasoning_effort") == effort
    assert "/reasoning/effort" in client.headers["dragoman-loss"]
