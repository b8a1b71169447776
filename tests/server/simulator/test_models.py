"""The responses of each simulated model, in all protocols, streamed and whole. Most are rows of models.txt."""

import hashlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rows
from oracle import (
    Block,
    Kind,
    Meaning,
    Stop,
    check_error,
    check_stream,
    check_whole,
    meaning_of_stream,
    meaning_of_whole,
    read_error,
)
from simulator_requests import (
    CHAT,
    GEMINI,
    IMAGE,
    MESSAGES,
    MESSAGES_MEMBER,
    PROTOCOL_NAMES,
    RESPONSES,
    Body,
    encoded,
    follow,
    function,
    request_body,
    response_to,
    said,
)

from dragoman_server.simulator import MODELS, SimulatedReply, reply_to

protocols = pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
SHORT = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}
ROWS = Path(__file__).with_name("models.txt")


def bytes_of(reply: SimulatedReply) -> bytes:
    return b"".join(chunk.data for chunk in reply.chunks)


def response(protocol: str, body: Body) -> Body:
    """Return a valid whole response of status 200."""
    reply = response_to(protocol, body)
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
            text = json.loads(block.text or "{}")
        except json.JSONDecodeError:
            text = {"_raw": block.text}  # arguments that were cut are no object, and have their place there
    return block.kind, text, block.name, block.id, block.custom


def refused(protocol: str, body: Body) -> tuple[int, str]:
    """Return status and message of an error in the protocol's own form."""
    reply = response_to(protocol, body)
    data = bytes_of(reply)
    # Messages has neither 503 nor a type for it, Gemini no 529; a proxy in between would send the nearest type.
    nearest = {(MESSAGES, 503): 529, (GEMINI, 529): 503}.get((protocol, reply.status), reply.status)
    assert check_error(protocol, nearest, data) == []
    return reply.status, read_error(protocol, reply.status, data).message


def shown(protocol: str, body: Body) -> list[str]:
    """Return what a stream and a whole response have in common: blocks, usage and the end; or an error of both."""
    stream = response_to(protocol, body | {"stream": True} | STREAM_OPTIONS.get(protocol, {}))
    reply = response_to(protocol, body)
    if reply.status != 200:
        status, message = refused(protocol, body)
        headers = dict(reply.headers)
        assert headers["content-type"] == "application/json"
        found = meaning_of_stream(protocol, bytes_of(stream)) if stream.status == 200 else None
        later = ["in the stream, after text"] if found and found.failure and found.text(Kind.TEXT) else []
        assert later or stream.status == status
        wait = [f"retry-after {headers['retry-after']}"] if "retry-after" in headers else []
        return [f"error {status}: {message}", *wait, *later]
    data, sent = bytes_of(reply), bytes_of(stream)
    problems = [*check_stream(protocol, sent, include_usage=True), *check_whole(protocol, data)]
    whole, streamed = meaning_of_whole(protocol, data), meaning_of_stream(protocol, sent)
    assert [plain(block) for block in streamed.blocks] == [plain(block) for block in whole.blocks]
    assert (streamed.stop, streamed.usage) == (whole.stop, whole.usage)
    lines = sorted({str(problem).partition(": ")[2] for problem in problems})
    assert len({call.id for call in whole.calls}) == len(whole.calls)
    assert json.loads(data)["modelVersion" if protocol == GEMINI else "model"] == body["model"]
    for block in streamed.blocks:
        text = (
            block.text if len(block.text) < 400 else f"{block.text[:20]}... {len(block.text.split())} words"
        )
        kind = f"{'custom ' * block.custom}call {block.name}" if block.kind == Kind.CALL else block.kind
        lines.append(f"{kind}: {text!r}")
    usage = whole.usage
    parts = {"in": usage.input, "cached": usage.cached, "out": usage.output, "reasoning": usage.reasoning}
    counted = " ".join(f"{name} {count}" for name, count in parts.items() if count)
    return [*lines, f"{whole.stop} {whole.stop_sequence or ''}".rstrip() + f", {counted}"]


STREAM_OPTIONS: dict[str, Body] = {CHAT: {"stream_options": {"include_usage": True}}}


def conversation(protocol: str, lines: list[str]) -> list[str]:
    """Send a request and those that follow it, and return what is shown of each response."""
    (name, *options), texts = shlex.split(lines[0]), [line for line in lines[1:] if line.startswith('"')]
    arguments: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        arguments[key] = int(value) if value.isdigit() else tuple(value.split(",")) if value else True
    body = request_body(protocol, name, json.loads(texts[0]) if texts else "Tell me something", **arguments)
    key = MESSAGES_MEMBER[protocol]
    out: list[str] = []
    for line in lines[1:]:
        word, _, rest = line.partition(" ")
        if SHORT.get(word, "") == protocol:
            body |= json.loads(rest)
        elif word == "say":
            body = body | {key: [*body[key], *said(protocol, json.loads(rest))]}
        elif word == "note":  # beside the results
            body[key][-1]["content"].append({"type": "text", "text": json.loads(rest)})
        elif word == "results":
            out += shown(protocol, body)
            body = follow(protocol, body, response(protocol, body), json.loads(rest))
    return out + shown(protocol, body)


def test_what_the_models_return() -> None:
    """A model and settings; the user's text; members for one protocol; further messages; results of its calls."""

    def output_of(lines: list[str]) -> list[str]:
        wanted = [SHORT[name] for name in SHORT if f"only {name}" in lines] or PROTOCOL_NAMES
        out = {protocol: conversation(protocol, lines) for protocol in wanted}
        first = out[wanted[0]]
        if all(found == first for found in out.values()):
            return first
        return [f"{name} {line}" for name in SHORT if SHORT[name] in out for line in out[SHORT[name]]]

    rows.check(ROWS, output_of)


def test_every_model_has_a_row_or_breaks_off() -> None:
    lines = [line for line in ROWS.read_text().splitlines() if not line.startswith("  ")]
    assert {line.split(" ")[0].partition("@")[0] for line in lines} >= set(MODELS) - {"cut", "cut-end"}


@protocols
def test_the_same_request_gets_the_same_bytes_and_another_one_other_ids(protocol: str) -> None:
    body = request_body(protocol, "echo", stream=True)
    assert bytes_of(response_to(protocol, body)) == bytes_of(response_to(protocol, body))
    name = "responseId" if protocol == GEMINI else "id"
    one, other = (response(protocol, request_body(protocol, "echo", text))[name] for text in ("a", "b"))
    assert one != other
    assert one.removeprefix("chatcmpl-").encode() in bytes_of(
        response_to(protocol, request_body(protocol, "echo", "a", stream=True))
    )


@protocols
def test_text_streams_word_by_word(protocol: str) -> None:
    chunks = [
        chunk.data
        for chunk in response_to(
            protocol, request_body(protocol, "echo", "alpha beta gamma", stream=True)
        ).chunks
    ]
    found = [sum(word in chunk for chunk in chunks) >= 1 for word in (b'"alpha"', b'" beta"', b'" gamma"')]
    assert found == [True] * 3
    assert not any(b"alpha" in chunk and b" beta" in chunk and b"delta" in chunk for chunk in chunks[:3])


def test_messages_counts_what_a_breakpoint_writes() -> None:
    body = request_body(MESSAGES, "echo")
    text = {"type": "text", "text": "one two three", "cache_control": {"type": "ephemeral"}}
    body["messages"] = [{"role": "user", "content": [text, {"type": "text", "text": "four"}]}]
    usage = response(MESSAGES, body)["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (1, 3)


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


def _spoil_chat(message: Body) -> None:
    message.pop("reasoning_details", None)
    message["reasoning_content"] += "!"


def _spoil_thinking(block: Body) -> None:
    block["signature"] = "A" + block["signature"][1:]


def _spoil_item(item: Body) -> None:
    item["encrypted_content"] = item["encrypted_content"][:-4]


def _spoil_part(part: Body) -> None:
    part["thoughtSignature"] = "A" + part["thoughtSignature"][1:]


def holders(protocol: str, first: Body) -> list[Body]:
    """Return the objects that have a response's reasoning."""
    if protocol == CHAT:
        return [first["choices"][0]["message"]]
    if protocol == GEMINI:
        return [part for part in first["candidates"][0]["content"]["parts"] if "thoughtSignature" in part]
    kind = "thinking" if protocol == MESSAGES else "reasoning"
    return [
        entry for entry in first["content" if protocol == MESSAGES else "output"] if entry["type"] == kind
    ]


SPOILERS: dict[str, Callable[[Body], None]] = {
    CHAT: _spoil_chat,
    MESSAGES: _spoil_thinking,
    RESPONSES: _spoil_item,
    GEMINI: _spoil_part,
}


PROOFS = {
    CHAT: "reasoning_content",
    MESSAGES: "signature",
    RESPONSES: "encrypted_content",
    GEMINI: "thoughtSignature",
}


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
    elif protocol == GEMINI:
        del holders(protocol, first)[0]["thoughtSignature"]
    else:
        first["content" if protocol == MESSAGES else "output"].remove(holders(protocol, first)[0])
    again = follow(protocol, body, first, ["42"])
    status, message = refused(protocol, again)
    assert status == 400
    assert "was not sent back" in message
    next_turn = [{"role": "assistant", "content": "42"}, {"role": "user", "content": "Next"}]
    again[MESSAGES_MEMBER[protocol]] += said(protocol, next_turn)
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


def test_messages_can_omit_the_text_and_keep_the_signature() -> None:
    thinking = {"thinking": {"type": "adaptive", "display": "omitted"}}
    body = request_body(MESSAGES, "reasoning", tools=("look",)) | thinking
    first = response(MESSAGES, body)
    assert first["content"][0]["thinking"] == ""
    assert first["content"][0]["signature"]
    assert meaning(MESSAGES, follow(MESSAGES, body, first, ["42"])).text(Kind.TEXT) == "look returned: 42"


FINGERPRINT = f"[image, image/png, {len(IMAGE)} bytes, sha256 {hashlib.sha256(IMAGE).hexdigest()[:8]}]"


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


@protocols
def test_a_prompt_can_be_too_long(protocol: str) -> None:
    reply = response_to(protocol, request_body(protocol, "error-context"))
    assert read_error(protocol, reply.status, bytes_of(reply)).too_long


@protocols
def test_a_cut_stream_ends_inside_a_frame(protocol: str) -> None:
    chunks = list(response_to(protocol, request_body(protocol, "cut", stream=True)).chunks)
    assert chunks[-1].breaks
    assert not any(chunk.breaks for chunk in chunks[:-1])
    assert chunks[-2].data.endswith((b"\n\n", b"\r\n\r\n"))
    assert not chunks[-1].data.endswith(b"\n")


@protocols
def test_a_stream_can_end_without_its_end(protocol: str) -> None:
    chunks = list(response_to(protocol, request_body(protocol, "cut-end", stream=True)).chunks)
    assert not any(chunk.breaks for chunk in chunks)
    found = meaning_of_stream(protocol, b"".join(chunk.data for chunk in chunks))
    assert found.text(Kind.TEXT)
    assert found.stop == Stop.CUT


@protocols
@pytest.mark.parametrize("model", ["cut", "cut-end"])
def test_a_whole_response_is_cut_inside_its_body(protocol: str, model: str) -> None:
    reply = response_to(protocol, request_body(protocol, model))
    (chunk,) = reply.chunks
    assert chunk.breaks is (model == "cut")
    with pytest.raises(json.JSONDecodeError):
        json.loads(chunk.data)
    assert ("content-length" in dict(reply.headers)) is (model == "cut")


INVALID_BODIES: list[bytes] = [b"", b"[]", b"{", b'{"model": 1}', b'{"stream": true}']


@protocols
def test_an_invalid_body_is_an_error_of_the_protocol(protocol: str) -> None:
    for body in INVALID_BODIES:
        reply = reply_to(protocol, body)
        assert reply.status == 400, body
        assert check_error(protocol, reply.status, bytes_of(reply)) == [], body
