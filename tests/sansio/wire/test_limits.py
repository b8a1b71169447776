"""How many things a peer may send: just below each limit and just above, with the error that names place and limit."""

import re
from collections.abc import Callable

import pytest

from dragoman import PROTOCOLS, Ledger, RequestTranslator, ResponseTranslator, TranslatedRequest
from dragoman._engine.request import MAX_ECHO
from dragoman._engine.response_machine import Outcome
from dragoman._wire import limits
from dragoman._wire.exceptions import MAX_PATH, RemoteProtocolError, child
from dragoman._wire.json import JSON, JSONObject, decode, decode_object, encode
from dragoman._wire.limits import (
    ANNOTATIONS,
    BLOCKS,
    CHOICES,
    DIGITS,
    ELEMENTS,
    LIMITS,
    MEMBERS,
    MODEL_CHARACTERS,
    OPAQUE_VALUES,
    REASONING_ENTRIES,
    STOP_CHARACTERS,
    STOP_SEQUENCES,
    VALUES,
    marks,
    search,
)
from dragoman._wire.splice import peek

pytestmark = pytest.mark.promise("S7")


def array(size: int) -> bytes:
    return b"[" + b",".join([b"0"] * size) + b"]"


def members(size: int) -> bytes:
    return b"{" + b",".join(b'"k%d":0' % number for number in range(size)) + b"}"


# A text with so many things -> the place and the status of its error
CONTAINERS: list[tuple[str, Callable[[int], bytes], int, str]] = [
    ("elements", lambda size: b'{"a":{"b/c":' + array(size) + b"}}", ELEMENTS.most, "/a/b~1c"),
    ("members", lambda size: b'{"a":[0,' + members(size) + b"]}", MEMBERS.most, "/a/1"),
    ("members at the top", members, MEMBERS.most, ""),
]


@pytest.mark.parametrize(
    ("text", "most", "path"), [row[1:] for row in CONTAINERS], ids=[row[0] for row in CONTAINERS]
)
def test_containers(text: Callable[[int], bytes], most: int, path: str) -> None:
    decode_object(text(most), "the body")
    match = f"has {most + 1} .*; at most {most} are accepted"
    with pytest.raises(RemoteProtocolError, match=match) as refused:
        decode_object(text(most + 1), "the body")
    assert (refused.value.status, refused.value.path, refused.value.code) == (400, path, "limit_exceeded")


def test_values_are_counted_before_the_text_is_decoded() -> None:
    """A name and its value are two, and what looks like them in a string is none."""
    row = b"[" + b'{"a":0},' * 24_999 + b"0]"
    head = b'{"text":"%b","a":[' + b",".join([row] * 6)
    left = VALUES.most - sum(map(head.count, (b",", b":", b"[", b"{")))
    assert left > 0
    head = head.replace(b"%b", b",:[{" * VALUES.most)
    for read in (decode, peek):
        read(head + b",0" * left + b"]}")
        with pytest.raises(RemoteProtocolError, match="has more than 500000 values and names") as refused:
            read(head + b",0" * (left + 1) + b"]}")
        assert (refused.value.status, refused.value.code) == (413, "limit_exceeded")


@pytest.mark.parametrize("end", [b"", b"\\", b'\\"' * 1_000_000])
def test_a_string_without_an_end_is_read_once(end: bytes) -> None:
    """A search that began again at each of its quotes would not end within hours."""
    with pytest.raises(RemoteProtocolError):
        decode(b'{"a":[' + b"0," * VALUES.most + b'"' + b",:" * 10 + end)


@pytest.mark.parametrize("part", [2, 3, 5, 11, 1000])
def test_a_long_text_is_searched_in_parts(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one call no other thread would run. A string, and an escape in it, may be cut anywhere."""
    monkeypatch.setattr(limits, "_PART", part)
    text = rb'{"a\\\",[":"\\",:["x","\\\\",{"":"\\'
    outside = [mark.start() for mark in marks(text)]
    assert bytes(text[place] for place in outside) == b"{:,:[,,{:"
    monkeypatch.setattr(limits, "_LONGEST_MATCH", 2)
    found = [match.span() for match in search(re.compile(b"(?<![xz])xy"), b"xy zxy xxy xyxy")]
    assert found == [(0, 2), (11, 13), (13, 15)]
    assert [match.span() for match in search(re.compile(b"aa"), b"baaaab")] == [(1, 3), (3, 5)]


def test_digits() -> None:
    assert decode(b"9" * DIGITS.most) == 10**DIGITS.most - 1
    assert decode(b"1e308") == 1e308
    for text in (b"9" * (DIGITS.most + 1), b"1e309", rb'["\ud800",' + b"9" * 5000 + b"]"):
        with pytest.raises(RemoteProtocolError) as refused:
            decode(text)
        assert refused.value.status == 400
    with pytest.raises(RemoteProtocolError, match="a number is out of range: at most 4300 digits"):
        decode(b"9" * (DIGITS.most + 1))


def test_a_chunk_with_too_many_elements_fails_its_response() -> None:
    translated = RequestTranslator(client="openai_responses", upstream="openai_chat").translate(
        encode({**BODIES["openai_responses"], "stream": True})
    )
    context = translated.response_context(id="a", now=0)
    machine = ResponseTranslator(client="openai_responses", upstream="openai_chat", context=context)
    machine.receive_data(b'data: {"id":"c","x":' + array(ELEMENTS.most + 1) + b"}\n\n")
    assert machine.error is not None
    expected = "the upstream's response cannot be read: x has 100001 elements; at most 100000 are accepted"
    assert machine.error.message == expected


def test_every_limit_has_a_reason() -> None:
    assert all(limit.reason and limit.where and limit.most > 0 for limit in LIMITS)
    assert len({limit.things for limit in LIMITS}) == len(LIMITS)


# Requests

BODIES = {
    "anthropic_messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "openai_responses": {"model": "m", "input": "Hi"},
}


@pytest.mark.parametrize("client", BODIES)
def test_requests_are_refused_with_the_place(client: str) -> None:
    body = encode({**BODIES[client], "metadata": {str(number): "" for number in range(MEMBERS.most + 1)}})
    upstream = next(name for name in BODIES if name != client)
    with pytest.raises(RemoteProtocolError, match="metadata has 50001 members") as refused:
        RequestTranslator(client=client, upstream=upstream).translate(body)
    assert (refused.value.status, refused.value.path) == (400, "/metadata")
    assert (
        b"metadata has 50001 members" in PROTOCOLS[client].write_error(refused.value.as_wire_error(), "r")[1]
    )


def test_members_of_a_relayed_request() -> None:
    translator = RequestTranslator(client="openai_chat", upstream="openai_chat")
    with pytest.raises(RemoteProtocolError, match="the request body has 50001 members"):
        translator.translate(members(MEMBERS.most + 1))


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic_messages"])
def test_the_name_of_a_model(upstream: str) -> None:
    translator = RequestTranslator(client="openai_chat", upstream=upstream)
    longest = "m" * MODEL_CHARACTERS.most
    translator.translate(encode({**BODIES["openai_chat"], "model": longest}))
    with pytest.raises(RemoteProtocolError, match="model has 2001 characters; at most 2000") as refused:
        translator.translate(encode({**BODIES["openai_chat"], "model": longest + "m"}))
    assert (refused.value.status, refused.value.path) == (400, "/model")
    assert peek(b"{}", longest).model == longest
    with pytest.raises(RemoteProtocolError, match="model has 2001 characters"):
        peek(b"{}", longest + "m")


def test_a_place_behind_long_names_is_cut() -> None:
    """Also where something in it is named, of which there may be many."""
    name = "u" * 10 * MAX_PATH
    cut = child("/a", name)
    assert cut == "/a/" + "u" * (MAX_PATH - 3) + "..."
    assert len(child(cut, name)) == len(child("", "/" * MAX_PATH)) == MAX_PATH + 3
    assert child("", "u" * (MAX_PATH - 1)) == "/" + "u" * (MAX_PATH - 1)


@pytest.mark.parametrize(
    ("stops", "is_taken"),
    [
        (["x"] * STOP_SEQUENCES.most, True),
        (["x"] * (STOP_SEQUENCES.most + 1), False),
        (["x" * (STOP_CHARACTERS.most // 16)] * 16, True),
        (["x" * (STOP_CHARACTERS.most // 16)] * 16 + ["x"], False),
    ],
)
def test_stop_sequences(stops: list[str], is_taken: bool) -> None:
    body = encode({**BODIES["anthropic_messages"], "stop_sequences": stops})
    translator = RequestTranslator(client="anthropic_messages", upstream="openai_chat")
    if is_taken:
        translator.translate(body)
        return
    with pytest.raises(RemoteProtocolError, match="stop_sequences has ") as refused:
        translator.translate(body)
    assert (refused.value.status, refused.value.path) == (400, "/stop_sequences")


def test_choices() -> None:
    translator = RequestTranslator(client="openai_chat", upstream="anthropic_messages", max_fan_out=1_000)
    translator.translate(encode({**BODIES["openai_chat"], "n": CHOICES.most}))
    with pytest.raises(RemoteProtocolError, match="the request has 129 choices; at most 128") as refused:
        translator.translate(encode({**BODIES["openai_chat"], "n": CHOICES.most + 1}))
    assert (refused.value.status, refused.value.path) == (400, "/n")


_REPEATED = "i" * (MAX_ECHO - len('""'))
_LONG = _REPEATED + "i"
_FUNCTION = {"type": "function", "name": "f", "strict": False, "parameters": {"description": _LONG}}
_CHOICE = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}] * 10_000}
_JSON_SCHEMA = {"type": "json_schema", "name": "n", "schema": {"description": _LONG}}
_HELLO = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'


def responded(
    client: str, translated: TranslatedRequest, whole: bytes = _HELLO, upstream: str = "openai_chat"
) -> tuple[JSONObject, Ledger]:
    """Return what the client gets for a whole response of the upstream, and its losses."""
    context = translated.response_context(id="a", now=0)
    machine = ResponseTranslator(client=client, upstream=upstream, context=context, upstream_streams=False)
    machine.receive_data(whole)
    machine.receive_eof()
    return decode_object(machine.data_to_send(), "the response"), machine.losses


@pytest.mark.parametrize(
    ("member", "value", "repeated"),
    [
        ("instructions", _REPEATED, _REPEATED),
        ("instructions", _LONG, None),
        ("metadata", {"a": _LONG}, {}),
        ("reasoning", {"effort": "low", "new": _LONG}, {"effort": None, "summary": None}),
        ("text", {"format": _JSON_SCHEMA}, {"format": {"type": "text"}}),
        ("tool_choice", _CHOICE, "auto"),
        ("tools", [_FUNCTION], []),
        ("truncation", _LONG, "disabled"),
    ],
)
def test_what_a_response_repeats_of_its_request(member: str, value: JSON, repeated: JSON) -> None:
    """In the place of a larger value is what the response has if the request has none, so that clients can read it."""
    body = encode({**BODIES["openai_responses"], "user": "u", member: value})
    translated = RequestTranslator(client="openai_responses", upstream="openai_chat").translate(body)
    whole, losses = responded("openai_responses", translated)
    assert (whole[member], whole["user"]) == (repeated, "u")
    detail = "the request's value is too large to be repeated"
    assert [loss.path for loss in losses if loss.detail == detail] == [f"/{member}"] * (value != repeated)


def test_large_functions_are_called_in_their_own_form() -> None:
    functions = [{"name": "f", "description": _LONG}]
    body = encode({**BODIES["openai_chat"], "functions": functions})
    translated = RequestTranslator(client="openai_chat", upstream="openai_responses").translate(body)
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    sent = encode({"status": "completed", "output": [call]})
    whole, _ = responded("openai_chat", translated, sent, upstream="openai_responses")
    assert whole["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": "{}"}


# Responses


def event(**members: object) -> bytes:
    return b"data: " + encode(members) + b"\n\n"


def delta(number: int, **members: object) -> bytes:
    return event(id="c", choices=[{"index": number, "delta": members}])


def calls(first: int, size: int) -> list[object]:
    return [
        {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        for number in range(first, first + size)
    ]


CITATION = {"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}
ENTRY = {"type": "reasoning.encrypted", "data": "d"}
_HALF = BLOCKS.most // 2
# What a Chat upstream sends, just within a limit, and one more.
STREAMS: list[tuple[str, list[bytes], bytes, str]] = [
    (
        "choices",
        [delta(number, content="x") for number in range(CHOICES.most)],
        delta(CHOICES.most),
        CHOICES.things,
    ),
    (
        "tool calls",
        [delta(0, tool_calls=calls(0, _HALF)), delta(0, tool_calls=calls(_HALF, _HALF))],
        delta(0, tool_calls=calls(BLOCKS.most, 1)),
        BLOCKS.things,
    ),
    (
        "annotations",
        [delta(0, content="x"), *[delta(0, annotations=[CITATION] * _HALF)] * 2],
        delta(0, annotations=[CITATION]),
        ANNOTATIONS.things,
    ),
    (
        "reasoning entries",
        [
            delta(0, reasoning_details=[{**ENTRY, "index": number} for number in range(first, first + _HALF)])
            for first in (0, _HALF)
        ],
        delta(0, reasoning_details=[{**ENTRY, "index": BLOCKS.most}]),
        REASONING_ENTRIES.things,
    ),
    (
        "values without an equivalent",
        [event(id="c", choices=[{"delta": {"content": [{"type": "x"}] * _HALF}}])] * 2,
        event(id="c", choices=[{"delta": {"content": [{"type": "x"}]}}]),
        OPAQUE_VALUES.things,
    ),
]


@pytest.mark.parametrize("client", ["anthropic_messages", "openai_responses"])
@pytest.mark.parametrize(
    ("within", "beyond", "things"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS]
)
def test_a_response_beyond_a_limit_fails(
    client: str, within: list[bytes], beyond: bytes, things: str
) -> None:
    """It is an error of the upstream (502), before content as in a stream: nothing of it is a success."""
    request = encode({**BODIES[client], "stream": True})
    translated = RequestTranslator(client=client, upstream="openai_chat").translate(request)
    context = translated.response_context(id="a", now=0)
    machine = ResponseTranslator(client=client, upstream="openai_chat", context=context)
    for data in within:
        machine.receive_data(data)
    assert machine.outcome is Outcome.OPEN, machine.error
    machine.receive_data(beyond)
    assert machine.outcome is Outcome.FAILED
    assert f"{things}; at most" in machine.error.message
    assert b"at most" in machine.data_to_send()
