"""I. Requests: pictures, documents, system text and cache marks, each at the place where the upstream takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from failures.gateway import UpstreamResponse, gateway, request_for
from failures.responses import Call, Reasoning, Text
from failures.rules import refused
from failures.translate import each, every_pair, pairs, translate_request
from failures.turns import PIXEL, Result, User, all_blocks, model, outline, request, results_of, text_in
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s

from dragoman import UPSTREAMS

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
DATA_URL = f"data:image/png;base64,{PIXEL}"
WEB_URL = "https://pictures.example/cat.png"
MARK = {"type": "ephemeral"}


# --- pictures -----------------------------------------------------------------------------------------------------


def image(protocol: str, url: str = DATA_URL) -> Json:
    if protocol == CHAT:
        return {"type": "image_url", "image_url": {"url": url}}
    if protocol == RESPONSES:
        return {"type": "input_image", "detail": "auto", "image_url": url}
    if url == DATA_URL:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def text(protocol: str, value: str) -> Json:
    return {"type": "input_text" if protocol == RESPONSES else "text", "text": value}


def history(protocol: str, body: Json) -> list[Json]:
    found: list[Json] = body["input" if protocol == RESPONSES else "messages"]
    return found


def with_result(client: str, *parts: Json) -> Json:
    """Two calls; the first one's result has these parts."""
    calls = model(Call("call_a"), Call("call_b"))
    body = request(client, User("Look"), calls, Result("call_a"), Result("call_b", "fine"), User("And?"))
    if client == MESSAGES:
        body["messages"][2]["content"][0]["content"] = list(parts)
    elif client == RESPONSES:
        next(item for item in body["input"] if "output" in item)["output"] = list(parts)
    else:
        body["messages"][2]["content"] = list(parts)
    return body


def urls_of(upstream: str, value: Any) -> Iterator[str]:
    """The pictures in a part of a request, in order."""
    if isinstance(value, list):
        for each_value in value:
            yield from urls_of(upstream, each_value)
    elif isinstance(value, dict):
        source = value.get("source")
        if value.get("type") == "image" and isinstance(source, dict):
            yield source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
        elif value.get("type") == "image_url":
            yield value["image_url"]["url"]
        elif value.get("type") == "input_image":
            yield value["image_url"]
        else:
            yield from urls_of(upstream, list(value.values()))


each_url = pytest.mark.parametrize("url", [DATA_URL, WEB_URL], ids=["data", "web"])


@pairs((MESSAGES, RESPONSES), [CHAT])
@each_url
@pytest.mark.parametrize("with_text", [True, False], ids=["with-text", "only-image"])
def test_I1_images_of_results_reach_the_model(client: str, upstream: str, url: str, with_text: bool) -> None:
    """A tool message only has text: the images follow all results in a user message."""
    parts = [text(client, "A cat:"), image(client, url)] if with_text else [image(client, url)]
    sent = translate_request(client, upstream, with_result(client, *parts))
    assert refused(upstream, sent.body) == []
    assert outline(upstream, sent.body)[:5] == ["user", "assistant", "tool", "tool", "user"]
    tools, after = sent.body["messages"][2:4], sent.body["messages"][4:]
    assert list(urls_of(upstream, tools)) == []
    assert list(urls_of(upstream, after)) == [url]
    first, second = (result for _, result in results_of(upstream, sent.body))
    assert first.startswith("A cat:") is with_text
    assert "[image" in first, "the model is told where it is"
    assert second == "fine"
    assert "altered" in sent.losses.values()
    assert text_in(after[-1]["content"]).endswith("And?")


@pairs()
@each_url
def test_I1_images_stay_in_results_where_the_upstream_accepts_them_there(
    client: str, upstream: str, url: str
) -> None:
    body = with_result(client, text(client, "A cat:"), image(client, url))
    sent = translate_request(
        client,
        upstream,
        body,
        capabilities=msgspec.convert({"tool_images": True}, UPSTREAMS[upstream].capabilities),
    )
    assert refused(upstream, sent.body) == []
    if upstream == MESSAGES:
        holder = next(block for block in all_blocks(sent.body) if block["type"] == "tool_result")
    elif upstream == CHAT:
        assert outline(upstream, sent.body) == ["user", "assistant", "tool", "tool", "user"]
        assert sent.losses == {}
        holder = sent.body["messages"][2]
    else:
        holder = next(item for item in sent.body["input"] if item.get("type") == "function_call_output")
    assert list(urls_of(upstream, holder)) == [url] == list(urls_of(upstream, sent.body))
    assert results_of(upstream, sent.body) == [("call_a", "A cat:"), ("call_b", "fine")]


@each("upstream", (CHAT,))
def test_I1_documents_of_results_reach_the_model(upstream: str) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    document = {"type": "document", "source": source, "title": "a.pdf"}
    sent = translate_request(MESSAGES, upstream, with_result(MESSAGES, text(MESSAGES, "See"), document)).body
    files = [
        part
        for message in sent["messages"][4:]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "file"
    ]
    assert [part["file"]["file_data"] for part in files] == ["data:application/pdf;base64,JVBERi0="]


@every_pair(PROTOCOL_NAMES)
@each_url
def test_I2_images_of_the_user_are_sent(client: str, upstream: str, url: str) -> None:
    """In their place between the texts."""
    body = request(client, User("Hi"), tools=())
    content = [text(client, "before"), image(client, url), text(client, "after")]
    history(client, body)[0]["content"] = content
    sent = translate_request(client, upstream, body)
    (message,) = history(upstream, sent.body)
    assert list(urls_of(upstream, message)) == [url]
    kinds = [part.get("text", "picture") for part in message["content"]]
    assert kinds == ["before", "picture", "after"]
    assert sent.losses == {}


@pairs((CHAT,), [MESSAGES])
@pytest.mark.parametrize("parts", [True, False], ids=["parts", "text"])
def test_I2_tool_messages_are_results(client: str, upstream: str, parts: bool) -> None:
    """There is no role `tool` there."""
    body = request(client, User("Hi"), model(Text("So."), Call("call_a")), Result("call_a", "done"))
    if parts:
        body["messages"][2]["content"] = [text(client, "do"), text(client, "ne")]
    sent = translate_request(client, upstream, body).body
    assert outline(upstream, sent) == ["user text", "assistant text tool_use", "user tool_result"]
    assert results_of(upstream, sent) == [("call_a", "done")]
    assert refused(upstream, sent) == []


# --- system text in mid-conversation ------------------------------------------------------------------------------


def with_system(client: str) -> Json:
    body = request(client, User("Hi"), model(Text("Hello.")), User("Go on"), tools=())
    history(client, body).insert(2, {"role": "system", "content": "Be brief."})
    return body


# The client, the upstream, whether its model takes system messages -> the roles of the upstream's messages.
PLACES = [
    (CHAT, MESSAGES, True, ["user", "assistant", "system", "user"]),
    (RESPONSES, MESSAGES, True, ["user", "assistant", "system", "user"]),
    (CHAT, MESSAGES, False, ["user", "assistant", "user"]),
    (RESPONSES, MESSAGES, False, ["user", "assistant", "user"]),
    (MESSAGES, CHAT, True, ["user", "assistant", "system", "user"]),
    (MESSAGES, CHAT, False, ["user", "assistant", "user"]),
    (MESSAGES, RESPONSES, True, ["user", "assistant", "system", "user"]),
    (MESSAGES, RESPONSES, False, ["user", "assistant", "system", "user"]),  # every Responses server takes it
]


@pytest.mark.parametrize(("client", "upstream", "takes", "roles"), PLACES)
@pytest.mark.all_combinations
def test_I3_a_system_message_stays_in_place(
    client: str, upstream: str, takes: bool, roles: list[str]
) -> None:
    """Where the model refuses it, it is marked text of the user: it does not move to the top."""
    capabilities = msgspec.convert({"mid_system": takes}, UPSTREAMS[upstream].capabilities)
    sent = translate_request(client, upstream, with_system(client), capabilities=capabilities)
    messages = history(upstream, sent.body)
    assert [message["role"] for message in messages] == roles
    assert "system" not in sent.body
    if "system" in roles:
        assert text_in(messages[2]["content"]) == "Be brief."
    else:
        after = text_in(messages[2]["content"])
        assert after.index("<system>\nBe brief.\n</system>") < after.index("Go on")
        assert "altered" in sent.losses.values()


def test_I3_a_relay_keeps_a_system_message_in_place() -> None:
    body = with_system(MESSAGES)
    assert translate_request(MESSAGES, MESSAGES, body).body == body


# --- beta features and cache marks --------------------------------------------------------------------------------


def with_betas() -> Json:
    """Fields that Claude Code sends, each enabled by a beta header."""
    body = request(MESSAGES, User("Hi"))
    body["system"] = [
        {"type": "text", "text": "S", "cache_control": {**MARK, "scope": "global", "ttl": "1h"}}
    ]
    body["tools"][0] |= {"input_examples": [{"a": 1}], "cache_control": MARK, "defer_loading": False}
    return body | {
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "output_config": {"effort": "low"},
    }


BETAS = "context-management-2025-06-27,extended-cache-ttl-2025-04-11,some-new-one-2027-01-01"


@pytest.mark.anyio
async def test_I4_betas_and_their_fields_are_relayed() -> None:
    play = UpstreamResponse([json.dumps(s.WHOLE[MESSAGES]).encode()])
    body = request_for(MESSAGES, MESSAGES, stream=False) | with_betas() | {"model": "up/m"}
    async with gateway(MESSAGES, play) as up:
        received = await up.call("/v1/messages?beta=true", body, headers={"anthropic-beta": BETAS})
        assert received.status == 200
        assert up.sent == {**body, "model": "m"}
        sent = up.network.requests[-1]
    assert sent.headers["anthropic-beta"] == BETAS
    assert sent.url.query == b"beta=true"


@pytest.mark.anyio
@each("upstream", (CHAT, RESPONSES))
async def test_I4_other_upstreams_get_neither_betas_nor_their_fields(upstream: str) -> None:
    """Fields of a beta that the upstream lacks are mapped or dropped, and the ledger has them."""
    play = UpstreamResponse([json.dumps(s.WHOLE[upstream]).encode()])
    body = request_for(MESSAGES, upstream, stream=False) | with_betas() | {"model": "up/m"}
    async with gateway(upstream, play) as up:
        received = await up.call("/v1/messages?beta=true", body, headers={"anthropic-beta": BETAS})
        assert received.status == 200, received.body
        sent = json.dumps(up.sent)
        assert not {"anthropic-beta", "anthropic-version"} & set(up.network.requests[-1].headers)
    for name in ("context_management", "cache_control", "input_examples", "output_config", "defer_loading"):
        assert name not in sent
    assert '"low"' in sent, "the effort has a counterpart"
    reported = received.headers["dragoman-loss"]
    for path in ("/context_management", "/system/0/cache_control", "/tools/0/input_examples"):
        assert path in reported


SIGNED: Json = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
# Fields of Chat that hold thinking.
FORMS: dict[str, list[Json]] = {
    "thinking_blocks": [SIGNED, {"type": "redacted_thinking", "data": "eA=="}],
    "reasoning_details": [
        {
            "type": "reasoning.text",
            "text": "Hm",
            "signature": "c2ln",
            "format": "anthropic-claude-v1",
            "index": 0,
        }
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_I5_thinking_has_no_cache_mark(form: str) -> None:
    """Clients that mark the last block of a turn mark its thinking, too; the vendor refuses it there."""
    body = request(CHAT, User("Hi"), model(Call("call_a")), Result("call_a"))
    body["messages"][1] |= {
        form: [{**block, "cache_control": MARK} for block in FORMS[form]],
        "cache_control": MARK,
    }
    sent = translate_request(CHAT, MESSAGES, body)
    thinking = [block for block in all_blocks(sent.body) if "thinking" in block["type"]]
    assert len(thinking) == len(FORMS[form])
    assert not [block for block in thinking if "cache_control" in block]
    (call,) = [block for block in all_blocks(sent.body) if block["type"] == "tool_use"]
    assert call["cache_control"] == MARK, "the turn's own mark has a place"
    assert [path for path in sent.losses if path.endswith(f"/{form}/0/cache_control")]


def test_I5_a_turn_of_only_thinking_has_no_cache_mark() -> None:
    body = request(CHAT, User("Hi"), model(Text("So.")), User("And?"))
    body["messages"][1] |= {"content": None, "thinking_blocks": [SIGNED], "cache_control": MARK}
    blocks = all_blocks(translate_request(CHAT, MESSAGES, body).body)
    assert not [block for block in blocks if "thinking" in block["type"] and "cache_control" in block]


def marked(client: str) -> tuple[Json, int]:
    """A request with a mark on everything that can have one, and their number."""
    body = request(client, User("Hi"), model(Call("call_a")), Result("call_a"))
    if client == MESSAGES:
        body["system"] = [{**text(client, "S"), "cache_control": MARK}]
        body["messages"][0]["content"] = [
            {**text(client, "Hi"), "cache_control": MARK},
            {**image(client), "cache_control": MARK},
        ]
        body["messages"][1]["content"][0]["cache_control"] = MARK
        body["messages"][2]["content"][0] |= {
            "cache_control": MARK,
            "content": [{**text(client, "in"), "cache_control": MARK}],
        }
        body["tools"][0]["cache_control"] = MARK
        return body, 7
    body["messages"][0]["content"] = [
        {**text(client, "Hi"), "cache_control": MARK},
        {**image(client), "cache_control": MARK},
    ]
    body["messages"][2]["content"] = [{**text(client, "in"), "cache_control": MARK}]
    body["tools"][0]["cache_control"] = MARK
    return body, 4


@pairs((CHAT, MESSAGES), [RESPONSES, CHAT])
def test_I6_cache_marks_without_a_field_are_losses(client: str, upstream: str) -> None:
    """Never kept, for that is refused, and never a reason to refuse."""
    body, count = marked(client)
    sent = translate_request(client, upstream, body)
    assert "cache_control" not in json.dumps(sent.body)
    assert "breakpoint" not in json.dumps(sent.body)
    reported = [
        path for path, code in sent.losses.items() if path.endswith("cache_control") and code == "dropped"
    ]
    assert len(reported) == count
    # A marked system text is its own item, a plain one may be `instructions`: both mean the same.
    assert client == CHAT or json.dumps(sent.body).count('"S"') == 1
    body.pop("system", None)
    plain = json.loads(json.dumps(body).replace(f', "cache_control": {json.dumps(MARK)}', ""))
    assert "cache_control" not in json.dumps(plain)
    assert (
        translate_request(client, upstream, plain).body == translate_request(client, upstream, body).body
    ), "nothing else is lost"


@pairs((CHAT, MESSAGES), [RESPONSES, CHAT])
def test_I6_cache_marks_are_sent_where_the_upstream_has_them(client: str, upstream: str) -> None:
    sent = translate_request(
        client,
        upstream,
        marked(client)[0],
        capabilities=UPSTREAMS[upstream].capabilities(cache_marks="breakpoint"),
    )
    assert "cache_control" not in json.dumps(sent.body)
    assert json.dumps(sent.body).count("prompt_cache_breakpoint") >= 2


@pairs((MESSAGES, RESPONSES), [MESSAGES, CHAT, RESPONSES])
def test_I1_no_image_is_lost_beside_thinking(client: str, upstream: str) -> None:
    """The turn of the calls has more in it than calls."""
    body = with_result(client, image(client))
    turn = request(client, model(Reasoning("Hm."), Text("Let me look.")), tools=())
    if client == MESSAGES:
        body["messages"][1]["content"][:0] = turn["messages"][0]["content"]
    else:
        body["input"][1:1] = turn["input"]
    sent = translate_request(client, upstream, body).body
    assert list(urls_of(upstream, sent)) == [DATA_URL]
    assert refused(upstream, sent) == []
