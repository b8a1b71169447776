"""The responses of each simulated model, in all protocols, streamed and whole."""

# ruff: noqa: E501 -- the tables are read by row

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from oracle import (
    Block,
    Kind,
    Meaning,
    Stop,
    check_error,
    check_stream,
    check_whole,
    meaning_of_client_stream,
    meaning_of_whole,
    read_error,
)
from simulator_requests import (
    CHAT,
    IMAGE,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    SCHEMA,
    Body,
    encoded,
    follow,
    function,
    request_body,
)

from dragoman_server.simulator import MODELS, SimulatedReply, reply_to
from dragoman_server.simulator.scripts import CUSTOM_INPUT, REFUSAL_TEXT

protocols = pytest.mark.parametrize("protocol", PROTOCOL_NAMES)


def bytes_of(reply: SimulatedReply) -> bytes:
    return b"".join(chunk.data for chunk in reply.chunks)


def response(protocol: str, body: Body) -> Body:
    """Return a valid whole response of status 200."""
    reply = reply_to(protocol, encoded(body))
    data = bytes_of(reply)
    assert reply.status == 200, data
    assert check_whole(protocol, data) == []
    decoded: Body = json.loads(data)
    return decoded


def meaning(protocol: str, body: Body) -> Meaning:
    return meaning_of_whole(protocol, encoded(response(protocol, body)))


def plain(block: Block) -> tuple[object, ...]:
    """Return a block without the spelling of its JSON, which whole Messages responses have decoded."""
    text: object = block.text
    if block.kind == Kind.CALL and not block.custom:
        try:
            text = json.loads(block.text)
        except json.JSONDecodeError:
            text = {"_raw": block.text}  # arguments that were cut are no object, and have their place there
    return block.kind, text, block.name, block.id, block.custom


def refused(protocol: str, body: Body) -> tuple[int, str]:
    """Return status and message of an error in the protocol's own form."""
    reply = reply_to(protocol, encoded(body))
    data = bytes_of(reply)
    # Messages has neither 503 nor a type for it; a proxy in between would send the nearest type.
    assert check_error(protocol, 529 if reply.status == 503 else reply.status, data) == []
    return reply.status, read_error(protocol, reply.status, data).message


# model, other settings of the request, stop reason, text (None: see other tests)
CASES: list[tuple[str, dict[str, Any], Stop, str | None]] = [
    ("echo", {"text": "Hello  there,\n\tworld "}, Stop.END, "Hello  there,\n\tworld "),
    ("echo", {"text": "<reminder>\nBe brief.\n</reminder>\n \nWhat now?\nTell me.\n\n"}, Stop.END, "What now?\nTell me."),
    ("echo", {"text": " "}, Stop.END, "There is no user text to repeat."),
    ("tools", {}, Stop.END, "There is no tool to call: the request offers none, or forbids them."),
    ("tools", {"tools": ("one", "two", "three")}, Stop.TOOL, ""),
    ("custom", {"custom": ("patch",)}, Stop.TOOL, ""),
    ("custom", {"tools": ("one",)}, Stop.END, "There is no free-text tool to call."),
    ("shell", {"tools": ("Bash",), "text": "Please run `true`"}, Stop.TOOL, ""),
    ("shell", {"tools": ("one",), "text": "run `true`"}, Stop.END, "There is no command to run, or no shell tool that is known to the simulator."),
    ("reasoning", {"text": "Why?"}, Stop.END, "You said: Why?"),
    ("reasoning", {"tools": ("one",)}, Stop.TOOL, ""),
    ("long", {}, Stop.END, None),
    ("slow@1000", {}, Stop.END, None),
    ("silent@1", {}, Stop.END, None),
    ("pause@1", {}, Stop.END, None),
    ("length", {"max_tokens": 7}, Stop.LENGTH, None),
    ("length-tools", {"tools": ("one",)}, Stop.LENGTH, ""),
    ("length-tools", {}, Stop.LENGTH, None),
    ("json", {"text": "x"}, Stop.END, '{"answer": "x"}'),
    ("images", {}, Stop.END, "There is no image, file or sound in the conversation."),
    ("stop", {"text": "no sequence"}, Stop.END, "no sequence"),
    ("count", {"text": "Count to 12!"}, Stop.END, "1 2 3 4 5 6 7 8 9 10 11 12"),
    ("count", {"max_tokens": 3}, Stop.LENGTH, "1 2 3"),
    ("filter", {}, Stop.FILTER, None),
    ("empty", {}, Stop.END, ""),
]  # fmt: skip


@protocols
@pytest.mark.parametrize(
    ("model", "more", "stop", "text"), CASES, ids=[f"{case[0]} {case[1] or ''}".strip() for case in CASES]
)
@pytest.mark.each_choice
def test_a_model_gives_the_same_content_streamed_and_whole(
    protocol: str, model: str, more: dict[str, Any], stop: Stop, text: str | None
) -> None:
    reply = reply_to(protocol, encoded(request_body(protocol, model, stream=True, **more)))
    stream = bytes_of(reply)
    assert reply.status == 200, stream
    assert check_stream(protocol, stream, include_usage=True) == []
    streamed = meaning_of_client_stream(protocol, stream)
    whole = meaning(protocol, request_body(protocol, model, **more))
    assert streamed.stop == whole.stop == stop
    assert [plain(block) for block in streamed.blocks] == [plain(block) for block in whole.blocks]
    assert streamed.usages == whole.usages
    if text is not None:
        assert whole.text(Kind.TEXT) == text


def test_every_model_is_in_the_tables_here() -> None:
    shown = {case[0].partition("@")[0] for case in CASES}
    elsewhere = {"refusal", "error-mid", "cut", "cut-end", "error-context", *map("error-{}".format, STATUSES)}
    assert shown | elsewhere == set(MODELS)


@protocols
def test_the_same_request_gets_the_same_bytes_and_another_one_other_ids(protocol: str) -> None:
    body = encoded(request_body(protocol, "echo", stream=True))
    assert bytes_of(reply_to(protocol, body)) == bytes_of(reply_to(protocol, body))
    one, other = (response(protocol, request_body(protocol, "echo", text))["id"] for text in ("a", "b"))
    assert one != other
    assert one.removeprefix("chatcmpl-").encode() in bytes_of(
        reply_to(protocol, encoded(request_body(protocol, "echo", "a", stream=True)))
    )


@protocols
def test_text_streams_word_by_word(protocol: str) -> None:
    chunks = [
        chunk.data
        for chunk in reply_to(
            protocol, encoded(request_body(protocol, "echo", "alpha beta gamma", stream=True))
        ).chunks
    ]
    assert [
        sum(word in chunk for chunk in chunks) >= 1 for word in (b'"alpha"', b'" beta"', b'" gamma"')
    ] == [True] * 3
    assert not any(b"alpha" in chunk and b" beta" in chunk and b"delta" in chunk for chunk in chunks[:3])


@protocols
def test_a_word_is_a_token_and_history_is_cached(protocol: str) -> None:
    body = request_body(protocol, "echo", "one two three")
    assert usage(protocol, body) == (3, 3, 0, 0)
    key = "input" if protocol == RESPONSES else "messages"
    reply = {"role": "assistant", "content": "four five"}
    body[key] = [*body[key], reply, {"role": "user", "content": "six"}]
    assert usage(protocol, body) == (6, 1, 3, 0)


def usage(protocol: str, body: Body) -> tuple[int | None, int | None, int | None, int | None]:
    found = meaning(protocol, body).usages[0]
    return found.input, found.output, found.cached, found.cache_write


def test_messages_counts_what_a_breakpoint_writes() -> None:
    body = request_body(MESSAGES, "echo")
    text = {"type": "text", "text": "one two three", "cache_control": {"type": "ephemeral"}}
    body["messages"] = [{"role": "user", "content": [text, {"type": "text", "text": "four"}]}]
    usage = response(MESSAGES, body)["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (1, 3)


@protocols
def test_reasoning_is_counted(protocol: str) -> None:
    found = meaning(protocol, request_body(protocol, "reasoning", "one two")).usages[0]
    assert found.reasoning
    assert found.output == found.reasoning + 4  # You said: one two


# --- tools ------------------------------------------------------------------------------------------------------


@protocols
def test_two_tools_are_called_with_arguments_of_their_schema_and_the_results_are_quoted(
    protocol: str,
) -> None:
    body = request_body(protocol, "tools", tools=("get_weather", "get_time", "third"))
    first = response(protocol, body)
    calls = meaning_of_whole(protocol, encoded(first)).calls
    assert [call.name for call in calls] == ["get_weather", "get_time"]
    assert [json.loads(call.text) for call in calls] == [{"city": "some city", "days": 2}] * 2
    assert calls[0].id != calls[1].id
    second = meaning(protocol, follow(protocol, body, first, ["sunny", "noon"]))
    assert second.text(Kind.TEXT) == "get_weather returned: sunny\nget_time returned: noon"
    assert second.stop == Stop.END


@protocols
@pytest.mark.parametrize("between", [[{"role": "assistant", "content": "ok"}], []])
def test_a_new_question_after_the_results_calls_again(protocol: str, between: list[Body]) -> None:
    body = request_body(protocol, "tools", tools=("look",))
    body = follow(protocol, body, response(protocol, body), ["found"])
    key = "input" if protocol == RESPONSES else "messages"
    body[key] = [*body[key], *between, {"role": "user", "content": "Again"}]
    assert [call.name for call in meaning(protocol, body).calls] == ["look"]


def test_a_note_beside_the_results_is_no_new_question() -> None:
    body = request_body(MESSAGES, "tools", tools=("look",))
    body = follow(MESSAGES, body, response(MESSAGES, body), ["found"])
    body["messages"][-1]["content"].append({"type": "text", "text": "Be brief."})
    assert meaning(MESSAGES, body).text(Kind.TEXT) == "look returned: found"


CHOICES: list[tuple[str, dict[str, Body], list[str]]] = [
    (
        "one at a time",
        {
            CHAT: {"parallel_tool_calls": False},
            MESSAGES: {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            RESPONSES: {"parallel_tool_calls": False},
        },
        ["a"],
    ),
    ("none", {CHAT: {"tool_choice": "none"}, MESSAGES: {"tool_choice": {"type": "none"}}, RESPONSES: {"tool_choice": "none"}}, []),
    (
        "named",
        {
            CHAT: {"tool_choice": {"type": "function", "function": {"name": "b"}}},
            MESSAGES: {"tool_choice": {"type": "tool", "name": "b"}},
            RESPONSES: {"tool_choice": {"type": "function", "name": "b"}},
        },
        ["b"],
    ),
]  # fmt: skip


@protocols
@pytest.mark.parametrize(
    ("choice", "names"), [case[1:] for case in CHOICES], ids=[case[0] for case in CHOICES]
)
def test_the_tool_choice_holds(protocol: str, choice: dict[str, Body], names: list[str]) -> None:
    body = request_body(protocol, "tools", tools=("a", "b")) | choice[protocol]
    assert [call.name for call in meaning(protocol, body).calls] == names


TOOL_CHOICES: list[tuple[str, list[tuple[str, str]]]] = [
    ('call a {"x": [1, 2.50], "y": "\\u00e9"}', [("a", '{"x": [1, 2.50], "y": "\\u00e9"}')]),
    ('Please\ncall b {"n":\n {}}\ncall a {}', [("b", '{"n":\n {}}'), ("a", "{}")]),
    ("call a", [("a", '{"city":"some city","days":2}')]),
    ("call unheard_of", [("unheard_of", "{}")]),
]


def test_only_allowed_tools_are_called() -> None:
    tools: list[Body] = [{"type": "function", "function": {"name": "b"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
    body = request_body(CHAT, "tools", tools=("a", "b", "c")) | {"tool_choice": choice}
    assert [call.name for call in meaning(CHAT, body).calls] == ["b"]


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
@pytest.mark.parametrize(("text", "calls"), TOOL_CHOICES)
def test_a_line_of_the_user_names_the_tool_call(
    protocol: str, text: str, calls: list[tuple[str, str]]
) -> None:
    found = meaning(protocol, request_body(protocol, "tools", text, tools=("a", "b"))).calls
    assert [(call.name, call.text) for call in found] == calls


def test_messages_gets_requested_arguments_too() -> None:
    found = meaning(MESSAGES, request_body(MESSAGES, "tools", 'call a {"x": 1}', tools=("b", "a"))).calls
    assert [(call.name, json.loads(call.text)) for call in found] == [("a", {"x": 1})]


def test_broken_arguments_are_called_as_they_stand() -> None:
    reply = reply_to(CHAT, encoded(request_body(CHAT, "tools", 'call a {"x": oops', tools=("a",))))
    data = bytes_of(reply)
    (problem,) = check_whole(CHAT, data)
    assert "chat-arguments" in str(problem)
    found = meaning_of_whole(CHAT, data).calls
    assert found[0].text == '{"x": oops'


@protocols
@pytest.mark.parametrize(
    ("name", "parameter"),
    [("Bash", "command"), ("bash", "command"), ("exec_command", "cmd"), ("run_shell_command", "command")],
)
def test_the_shell_tool_of_an_agent_gets_the_users_command(protocol: str, name: str, parameter: str) -> None:
    properties = {
        parameter: {"type": "string"},
        "description": {"type": "string"},
        "timeout": {"type": "number"},
    }
    schema = {"type": "object", "properties": properties, "required": [parameter, "description"]}
    body = request_body(protocol, "shell", '"run `ls` and then run `echo "a" > b`, please"')
    body["tools"] = [function(protocol, "read"), function(protocol, name, schema)]
    first = response(protocol, body)
    (call,) = meaning_of_whole(protocol, encoded(first)).calls
    assert call.name == name
    assert json.loads(call.text) == {parameter: 'echo "a" > b', "description": "some description"}
    assert "done" in meaning(protocol, follow(protocol, body, first, ["done"])).text(Kind.TEXT)


@protocols
def test_a_custom_tool_gets_text_that_is_hard_to_carry(protocol: str) -> None:
    body = request_body(protocol, "custom", tools=("f",), custom=("patch",))
    first = response(protocol, body)
    (call,) = meaning_of_whole(protocol, encoded(first)).calls
    assert call.name == "patch"
    if protocol == MESSAGES:
        assert json.loads(call.text) == {"input": CUSTOM_INPUT}
    else:
        assert call.custom
        assert call.text == CUSTOM_INPUT
    second = meaning(protocol, follow(protocol, body, first, ["applied"]))
    assert second.text(Kind.TEXT) == "patch returned: applied"


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
def test_a_requested_custom_call_gets_all_of_the_text(protocol: str) -> None:
    (call,) = meaning(
        protocol, request_body(protocol, "custom", "call patch line 1\ncall me\n", custom=("patch",))
    ).calls
    assert call.text == "line 1\ncall me\n"


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
def test_a_fallback_function_counts_as_custom(protocol: str) -> None:
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    body = request_body(protocol, "custom") | {
        "tools": [function(protocol, "f"), function(protocol, "patch", schema)]
    }
    (call,) = meaning(protocol, body).calls
    assert json.loads(call.text) == {"input": CUSTOM_INPUT}


@protocols
def test_a_call_can_be_cut_by_the_limit(protocol: str) -> None:
    stream = bytes_of(
        reply_to(protocol, encoded(request_body(protocol, "length-tools", tools=("a",), stream=True)))
    )
    (call,) = meaning_of_client_stream(protocol, stream).calls
    assert call.text == '{"city":"some '
    assert meaning_of_client_stream(protocol, stream).stop == Stop.LENGTH


# --- reasoning --------------------------------------------------------------------------------------------------


@protocols
def test_reasoning_that_comes_back_unchanged_is_accepted(protocol: str) -> None:
    body = request_body(protocol, "reasoning", tools=("look",))
    first = response(protocol, body)
    assert meaning_of_whole(protocol, encoded(first)).text(Kind.REASONING)
    again = follow(protocol, body, first, ["42"])
    second = meaning(protocol, again)
    assert second.text(Kind.TEXT) == "look returned: 42"
    assert second.text(Kind.REASONING)


def _spoil_chat(message: Body) -> None:
    message.pop("reasoning_details", None)
    message["reasoning_content"] += "!"


def _spoil_thinking(block: Body) -> None:
    block["signature"] = "A" + block["signature"][1:]


def _spoil_item(item: Body) -> None:
    item["encrypted_content"] = item["encrypted_content"][:-4]


def holders(protocol: str, first: Body) -> list[Body]:
    """Return the objects that have a response's reasoning."""
    if protocol == CHAT:
        return [first["choices"][0]["message"]]
    kind = "thinking" if protocol == MESSAGES else "reasoning"
    return [
        entry for entry in first["content" if protocol == MESSAGES else "output"] if entry["type"] == kind
    ]


SPOILERS: dict[str, Callable[[Body], None]] = {
    CHAT: _spoil_chat,
    MESSAGES: _spoil_thinking,
    RESPONSES: _spoil_item,
}
PROOFS = {CHAT: "reasoning_content", MESSAGES: "signature", RESPONSES: "encrypted_content"}


@protocols
def test_changed_reasoning_is_an_error_that_names_it(protocol: str) -> None:
    body = request_body(protocol, "reasoning", tools=("look",))
    first = response(protocol, body)
    SPOILERS[protocol](holders(protocol, first)[0])
    status, message = refused(protocol, follow(protocol, body, first, ["42"]))
    assert status == 400
    assert f"the {PROOFS[protocol]} of this" in message
    assert "was not sent back unchanged" in message


@protocols
def test_missing_reasoning_is_an_error_until_the_next_question(protocol: str) -> None:
    body = request_body(protocol, "reasoning", tools=("look",))
    first = response(protocol, body)
    if protocol == CHAT:
        for key in ("reasoning_content", "reasoning_details"):
            first["choices"][0]["message"].pop(key, None)
    else:
        entries = first["content" if protocol == MESSAGES else "output"]
        entries.remove(holders(protocol, first)[0])
    again = follow(protocol, body, first, ["42"])
    status, message = refused(protocol, again)
    assert status == 400
    assert "was not sent back" in message
    key = "input" if protocol == RESPONSES else "messages"
    again[key] = [*again[key], {"role": "assistant", "content": "42"}, {"role": "user", "content": "Next"}]
    assert meaning(protocol, again).calls


@pytest.mark.parametrize(
    ("protocol", "carrier"), [(MESSAGES, "no base64!"), (MESSAGES, "AAAA"), (RESPONSES, None)]
)
def test_a_foreign_carrier_is_refused(protocol: str, carrier: str | None) -> None:
    body = request_body(protocol, "reasoning", tools=("look",))
    first = response(protocol, body)
    holders(protocol, first)[0][PROOFS[protocol]] = carrier
    assert refused(protocol, follow(protocol, body, first, ["42"]))[0] == 400


def test_reasoning_with_a_lone_surrogate_is_refused() -> None:
    body = request_body(CHAT, "reasoning", tools=("look",))
    first = response(CHAT, body)
    _spoil_chat(holders(CHAT, first)[0])
    sent = encoded(follow(CHAT, body, first, ["42"])).replace(b"**Reading", rb"\ud800").replace(b"]!", b"]")
    assert reply_to(CHAT, sent).status == 400


OFF = {
    CHAT: {"reasoning_effort": "none"},
    MESSAGES: {"thinking": {"type": "disabled"}},
    RESPONSES: {"reasoning": {"effort": "none"}},
}


@protocols
def test_reasoning_can_be_turned_off(protocol: str) -> None:
    found = meaning(protocol, request_body(protocol, "reasoning", "Why?") | OFF[protocol])
    assert found.text(Kind.REASONING) == ""
    assert found.text(Kind.TEXT) == "You said: Why?"


def test_messages_can_omit_the_text_and_keep_the_signature() -> None:
    thinking = {"thinking": {"type": "adaptive", "display": "omitted"}}
    body = request_body(MESSAGES, "reasoning", tools=("look",)) | thinking
    first = response(MESSAGES, body)
    assert first["content"][0]["thinking"] == ""
    assert first["content"][0]["signature"]
    assert meaning(MESSAGES, follow(MESSAGES, body, first, ["42"])).text(Kind.TEXT) == "look returned: 42"


# --- content ----------------------------------------------------------------------------------------------------

FORMATS = {
    CHAT: {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
}


@protocols
def test_structured_output_fits_the_schema(protocol: str) -> None:
    found = meaning(protocol, request_body(protocol, "json") | FORMATS[protocol])
    assert json.loads(found.text(Kind.TEXT)) == {"city": "some city", "days": 2}


FINGERPRINT = f"[image, image/png, {len(IMAGE)} bytes, sha256 {hashlib.sha256(IMAGE).hexdigest()[:8]}]"


@protocols
def test_an_image_is_described(protocol: str) -> None:
    found = meaning(protocol, request_body(protocol, "images", image=True))
    assert found.text(Kind.TEXT) == f"1. {FINGERPRINT}"


@pytest.mark.parametrize("protocol", [MESSAGES, RESPONSES])  # Chat has no images in tool results
def test_an_image_in_a_tool_result_is_described(protocol: str) -> None:
    body = request_body(protocol, "tools", tools=("shoot",), image=True)
    again = follow(protocol, body, response(protocol, body), ["done"], image=True)
    assert meaning(protocol, again).text(Kind.TEXT) == f"shoot returned: done\n{FINGERPRINT}"
    again["model"] = "images"
    assert meaning(protocol, again).text(Kind.TEXT) == f"1. {FINGERPRINT}\n2. {FINGERPRINT}"


def test_a_file_is_described_by_its_name_too() -> None:
    body = request_body(RESPONSES, "images")
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
    body["input"] = [{"role": "user", "content": [file]}]
    assert '1. [file, application/pdf, "a.pdf", 3 bytes, sha256 ' in meaning(RESPONSES, body).text(Kind.TEXT)


def test_a_result_without_text_is_named() -> None:
    body = request_body(MESSAGES, "tools", tools=("look",))
    body = follow(MESSAGES, body, response(MESSAGES, body), ["-"])
    result = body["messages"][-1]["content"][0]
    result |= {"is_error": True, "content": [{"type": "tool_reference", "tool_name": "other"}]}
    assert meaning(MESSAGES, body).text(Kind.TEXT) == "look failed: [tool_reference]"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "url", "url": "https://example.com/a.png"}, "url https://example.com/a.png"),
        ({"type": "base64", "media_type": "image/png", "data": "no*base64"}, "not valid base64"),
    ],
)
def test_an_image_without_bytes_is_reported(source: Body, expected: str) -> None:
    body = request_body(MESSAGES, "images")
    body["messages"] = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert expected in meaning(MESSAGES, body).text(Kind.TEXT)


@pytest.mark.parametrize(
    ("protocol", "more"),
    [(CHAT, {"stop": "STOP"}), (CHAT, {"stop": ["x", "STOP"]}), (MESSAGES, {"stop_sequences": ["STOP"]})],
)
def test_stop_sequences_hold(protocol: str, more: Body) -> None:
    found = meaning(protocol, request_body(protocol, "stop", "say this STOP not that") | more)
    assert found.text(Kind.TEXT) == "say this "
    if protocol == MESSAGES:
        assert (found.stop, found.stop_sequence) == (Stop.SEQUENCE, "STOP")


@protocols
def test_a_refusal_has_the_protocols_own_form(protocol: str) -> None:
    stream = bytes_of(reply_to(protocol, encoded(request_body(protocol, "refusal", stream=True))))
    assert check_stream(protocol, stream, include_usage=True) == []
    for found in (
        meaning_of_client_stream(protocol, stream),
        meaning(protocol, request_body(protocol, "refusal")),
    ):
        assert found.text(Kind.REFUSAL, Kind.TEXT) == REFUSAL_TEXT
        if protocol == MESSAGES:
            assert found.stop == Stop.FILTER
        else:
            assert found.text(Kind.REFUSAL) == REFUSAL_TEXT


@protocols
def test_long_is_long(protocol: str) -> None:
    text = meaning(protocol, request_body(protocol, "long")).text(Kind.TEXT)
    assert len(text.split()) == 2000
    assert text.endswith(".")


@pytest.mark.parametrize(("max_tokens", "word_count"), [(7, 7), (51, 50), (None, 50)])
def test_length_ends_at_the_limit_or_after_50_words(max_tokens: int | None, word_count: int) -> None:
    found = meaning(CHAT, request_body(CHAT, "length", max_tokens=max_tokens))
    assert (len(found.text(Kind.TEXT).split()), found.stop) == (word_count, Stop.LENGTH)


# --- errors -----------------------------------------------------------------------------------------------------

STATUSES = (400, 401, 403, 404, 429, 500, 503, 529)


@protocols
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.each_choice
def test_errors_come_with_their_status(protocol: str, status: int, stream: bool) -> None:
    body = request_body(protocol, f"error-{status}", stream=stream)
    assert refused(protocol, body)[0] == status
    headers = dict(reply_to(protocol, encoded(body)).headers)
    assert headers["content-type"] == "application/json"
    assert headers.get("retry-after") == ("1" if status == 429 else None)


def test_retry_after_can_be_set() -> None:
    assert ("retry-after", "7") in reply_to(CHAT, encoded(request_body(CHAT, "error-429@7"))).headers


@protocols
def test_a_prompt_can_be_too_long(protocol: str) -> None:
    reply = reply_to(protocol, encoded(request_body(protocol, "error-context")))
    assert read_error(protocol, reply.status, bytes_of(reply)).too_long


@protocols
def test_an_error_in_the_middle_is_in_the_stream_or_the_status(protocol: str) -> None:
    stream = bytes_of(reply_to(protocol, encoded(request_body(protocol, "error-mid", stream=True))))
    found = meaning_of_client_stream(protocol, stream)
    assert found.text(Kind.TEXT)
    assert found.failure is not None
    assert "failed in the middle" in found.failure.message
    status, message = refused(protocol, request_body(protocol, "error-mid"))
    assert status >= 500
    assert "failed in the middle" in message


@protocols
def test_a_cut_stream_ends_inside_a_frame(protocol: str) -> None:
    chunks = list(reply_to(protocol, encoded(request_body(protocol, "cut", stream=True))).chunks)
    assert chunks[-1].breaks
    assert not any(chunk.breaks for chunk in chunks[:-1])
    assert chunks[-2].data.endswith(b"\n\n")
    assert not chunks[-1].data.endswith(b"\n")


@protocols
def test_a_stream_can_end_without_its_end(protocol: str) -> None:
    chunks = list(reply_to(protocol, encoded(request_body(protocol, "cut-end", stream=True))).chunks)
    assert not any(chunk.breaks for chunk in chunks)
    found = meaning_of_client_stream(protocol, b"".join(chunk.data for chunk in chunks))
    assert found.text(Kind.TEXT)
    assert found.stop == Stop.CUT


@protocols
@pytest.mark.parametrize("model", ["cut", "cut-end"])
def test_a_whole_response_is_cut_inside_its_body(protocol: str, model: str) -> None:
    reply = reply_to(protocol, encoded(request_body(protocol, model)))
    (chunk,) = reply.chunks
    assert chunk.breaks is (model == "cut")
    with pytest.raises(json.JSONDecodeError):
        json.loads(chunk.data)
    assert ("content-length" in dict(reply.headers)) is (model == "cut")


NAMES: list[tuple[str, int, str]] = [
    ("ecko", 404, 'the simulator has no model "ecko"; did you mean "echo"?'),
    ("zzz", 404, 'the simulator has no model "zzz"'),
    ("error-418", 404, "did you mean"),
    ("echo@fast", 400, "events a second"),
    ("silent@999999", 400, "seconds of silence, a number from 0 to 86400"),
    ("empty@1", 400, "accepts no number after @"),
    ("sim/echo", 200, ""),
    ("echo@0", 200, ""),
    ("echo@0.5", 200, ""),
]


@protocols
def test_an_unknown_model_name_is_an_error_with_the_right_names(protocol: str) -> None:
    for name, status, expected in NAMES:
        if status == 200:
            assert response(protocol, request_body(protocol, name))["model"] == name, name
        else:
            found, message = refused(protocol, request_body(protocol, name))
            assert found == status, name
            assert expected in message, name


INVALID_BODIES: list[bytes] = [b"", b"[]", b"{", b'{"model": 1}', b'{"stream": true}']


@protocols
def test_an_invalid_body_is_an_error_of_the_protocol(protocol: str) -> None:
    for body in INVALID_BODIES:
        reply = reply_to(protocol, body)
        assert reply.status == 400, body
        assert check_error(protocol, reply.status, bytes_of(reply)) == [], body
