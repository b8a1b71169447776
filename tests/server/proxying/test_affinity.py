"""Which requests are one conversation: by the session that a client names, else by its beginning."""

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman import RequestHead, peek
from dragoman_server.proxying.affinity import conversation_key, reasoning_key, referred_ids

Json = dict[str, Any]


def key(body: Json | None = None, headers: dict[str, str] | None = None, owner: str = "") -> str | None:
    return conversation_key(owner, headers or {}, peek(json.dumps({"model": "m", **(body or {})}).encode()))


def turns(*texts: str) -> list[Json]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


# The headers in which clients name their session, each beside some that change from request to request.
CLIENTS = {
    "Claude Code": ("x-claude-code-session-id", {"x-app": "cli", "x-stainless-retry-count": "{}"}),
    "Codex": ("session-id", {"x-client-request-id": "{}", "x-codex-turn-metadata": "{}"}),
    "Codex before": ("session_id", {"x-client-request-id": "{}"}),
    "Codex's threads": ("thread-id", {"x-client-request-id": "{}"}),
    "opencode": ("x-session-id", {"user-agent": "opencode/{}"}),
    "opencode's other": ("x-session-affinity", {"user-agent": "opencode/{}"}),
    "pi": ("session_id", {"x-stainless-retry-count": "{}"}),
}


def test_a_session_that_a_client_names_is_a_conversation() -> None:
    for client, (name, others) in CLIENTS.items():
        first, again, another = (
            key(
                {"messages": turns(f"question {number}")},
                {name: session, **{other: value.format(number) for other, value in others.items()}},
            )
            for session, number in (("one", 1), ("one", 2), ("two", 1))
        )
        assert first is not None, client
        assert (first == again, first == another) == (True, False), client


def test_a_header_counts_more_than_the_body() -> None:
    named = {"x-session-id": "s"}
    metadata = {"user_id": "b"}
    bodies: list[Json] = [{}, {"prompt_cache_key": "a"}, {"metadata": metadata}, {"messages": turns("c")}]
    assert len({key(body, named) for body in bodies}) == 1


def test_an_empty_header_names_nothing() -> None:
    assert key({"messages": turns("a")}, {"x-session-id": ""}) == key({"messages": turns("a")})


def test_a_header_need_not_be_text() -> None:
    assert key(headers={"x-session-id": "\udcff"}) != key(headers={"x-session-id": "\udcfe"})


def test_a_name_in_the_body_is_a_conversation() -> None:
    one, two = {"prompt_cache_key": "one"}, {"prompt_cache_key": "two"}
    assert key({**one, "messages": turns("a")}) == key({**one, "messages": turns("b", "c", "d")})
    assert key({**one, "messages": turns("a")}) != key({**two, "messages": turns("a")})


def test_metadata_distinguish_users_but_are_no_conversation() -> None:
    """In OpenAI's protocols they may be the same for all that a client sends."""
    user, other = {"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "o"}}
    assert key({**user, "messages": turns("a")}) == key({**user, "messages": turns("a", "b", "c")})
    assert key({**user, "messages": turns("a")}) != key({**user, "messages": turns("b")})
    assert key({**user, "messages": turns("a")}) != key({**other, "messages": turns("a")})
    assert key({"prompt_cache_key": "k", **user}) == key({"prompt_cache_key": "k"})


MESSAGES = {"system": "Be brief.", "messages": turns("a")}
CHAT = {"messages": [{"role": "system", "content": "Be brief."}, *turns("a")]}
RESPONSES = {"instructions": "Be brief.", "input": turns("a")}
GEMINI = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": turns("a")}


@pytest.mark.parametrize("field", ["messages", "input", "contents"])
def test_a_conversation_goes_on_as_it_began(field: str) -> None:
    begun = key({field: turns("a")})
    assert begun == key({field: turns("a", "b", "c")}) is not None
    assert begun != key({field: turns("b")})


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("system", MESSAGES),
        ("instructions", RESPONSES),
        ("systemInstruction", GEMINI),
        ("system_instruction", {"system_instruction": {"parts": [{"text": "Be brief."}]}, "contents": []}),
    ],
)
def test_the_instructions_belong_to_the_beginning(field: str, body: Json) -> None:
    assert key(body) != key({**body, field: "Be long."})
    assert key(body) != key({name: value for name, value in body.items() if name != field})


def test_a_text_is_one_message() -> None:
    assert key({"input": "Hi"}) == key({"input": "Hi"}) is not None
    assert key({"input": "Hi"}) != key({"input": "Ho"})


def test_only_the_first_bytes_of_a_long_beginning_count() -> None:
    long = "x" * 9000
    assert key({"system": long + "a"}) == key({"system": long + "b"})
    assert key({"system": "a" + long}) != key({"system": "b" + long})
    assert key({"messages": turns(long + "a")}) == key({"messages": turns(long + "b")})


@pytest.mark.parametrize("body", [{}, {"tools": []}])
def test_without_a_beginning_there_is_no_conversation(body: Json) -> None:
    assert key(body) is None


def test_an_empty_list_begins_nothing_in_particular() -> None:
    assert key({"messages": []}) != key({"messages": turns("a")})


@pytest.mark.parametrize("body", [MESSAGES, CHAT, RESPONSES, {"prompt_cache_key": "k"}])
def test_the_key_belongs_to_its_owner(body: Json) -> None:
    assert key(body, owner="ann") != key(body, owner="bob")
    assert key(body, owner="ann") == key(body, owner="ann")


def test_a_session_name_is_not_readable_either() -> None:
    assert "session" not in (key(headers={"session-id": "session-7"}) or "")


def test_kept_state_is_found_by_the_first_content_also_without_its_role() -> None:
    def of(*contents: str) -> str:
        head = RequestHead("m", False, {"contents": Raw(f"[{','.join(contents)}]".encode())})
        return reasoning_key("", {}, head)

    hi, model = '{"parts":[{"text":"Hi"}]', '{"role":"model","parts":[]}'
    assert of(model, hi + "}") == of(hi + ',"role":"user"}', model) != of(model)


@pytest.mark.promise("R14")
def test_the_form_of_the_beginning_may_change() -> None:
    """Marks move with the newest message, the billing line is new, and a stored text is an item."""
    mark = {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}

    def claude(billing: str, **marks: Any) -> Json:
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={billing};"},
            {"type": "text", "text": "be"},
        ]
        content = [picture | marks, {"type": "text", "text": "hi", **marks}]
        return {"system": system, "messages": [{"role": "user", "content": content}]}

    assert key(claude("1", **mark)) == key(claude("2")) != key({"system": "be", "messages": turns("hi")})
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}],
    }
    assert key({"input": "hi"}) == key({"input": [item]}) != key({"input": "ho"})
    parts = [[{"text": "hi", **mark}] for mark in ({}, {"thoughtSignature": "s"})]
    one, other = (key({"contents": [{"role": "user", "parts": each}]}) for each in parts)
    assert one == other != key({"contents": [{"role": "user", "parts": [{"text": "ho"}]}]})


@pytest.mark.parametrize("first", ['"\\ud83d"', "[" * 5000 + "]" * 5000, '{"image":"\\ud83d"}', "3"])
def test_a_beginning_that_is_no_message(first: str) -> None:
    head = RequestHead("m", False, {"messages": Raw(f"[{first}]".encode())})
    assert conversation_key("", {}, head) == conversation_key("", {}, head) != key({"messages": turns("hi")})
    assert reasoning_key("", {}, head) == reasoning_key("", {}, head)


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"type": "file", "file": {"file_id": "file-abc123"}}, ["file-abc123"]),
        ({"type": "document", "source": {"type": "file", "file_id": "file_011CNha8"}}, ["file_011CNha8"]),
        ({"type": "file_search", "vector_store_ids": ["vs_1234", "vs_5678"]}, ["vs_1234", "vs_5678"]),
        ({"container": "cntr_68af", "conversation": {"id": "conv_68af"}}, ["cntr_68af", "conv_68af"]),
        ({"cachedContent": "cachedContents/4x7q-abc"}, ["cachedContents/4x7q-abc"]),
        # Ids without a digit: one of fifty random ones.
        ({"file_id": "file-abXYcd"}, ["file-abXYcd"]),
        ({"cachedContent": "cachedContents/qwerty"}, ["cachedContents/qwerty"]),
        ({"tools": [{"type": "file_search"}], "kind": "container_expired"}, []),
        # Calls and messages are no account's, and neither is what a text says.
        ({"id": "call_12345", "tool_use_id": "toolu_12345", "model": "file-reader/x"}, []),
        ({"content": 'open "file-abc123", then file-abc123'}, []),
        ([{"file_id": f"file-{number:04}"} for number in range(20)], [f"file-{number:04}" for number in range(16)]),
    ],
)  # fmt: skip
def test_what_a_request_refers_to(body: Any, ids: list[str]) -> None:
    assert referred_ids(json.dumps(body).encode()) == ids
