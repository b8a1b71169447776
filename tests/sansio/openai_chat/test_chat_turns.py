"""Assistant turns: reasoning in its place, what calls carry, the legacy forms, and marks."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import Checker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    CacheMark,
    Citation,
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Text,
    Thought,
    ToolCall,
    ToolResult,
)
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame, SSEParser
from dragoman.codec import Exchange, Target
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
AT = "/messages/0"


def read(message: Any) -> tuple[Part, ...]:
    request = SPEC.read_request({"model": "m", "messages": [message]}, Sealer())
    return request.messages[0].parts


def write(*messages: Message, target: Target = Target()) -> tuple[list[Any], list[Any]]:
    """The wire messages for a conversation of another protocol, and the losses as (code, path)."""
    ledger = Ledger()
    body = SPEC.write_request(Request("other", "m", messages, {}), target, ledger)
    return body["messages"], [(loss.code.value, loss.path) for loss in ledger]


def own(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A Chat request read and printed again."""
    ledger = Ledger()
    request = SPEC.read_request({"model": "m", **body}, Sealer())
    return SPEC.write_request(request, Target(mid_system=True), ledger), [loss.path for loss in ledger]


def said(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


def call(call_id: str, arguments: str = "{}", **fields: Any) -> ToolCall:
    return ToolCall(call_id, "f", arguments, **fields)


def answer(call_id: str) -> Message:
    return Message("user", (ToolResult(call_id, (Text("r"),)),), "/r")


def wire_call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        **fields,
    }


# -- the place of reasoning --------------------------------------------------------------------------------


def seal(n: int) -> Seal:
    return Seal(MESSAGES, {"type": "thinking", "thinking": f"t{n}", "signature": f"s{n}"}, "claude")


def thinking(block: int, n: int) -> list[Event]:
    return [
        BlockStarted(block, BlockKind.REASONING),
        ReasoningDelta(block, f"t{n}"),
        SealDelta(block, seal(n)),
        BlockEnded(block),
    ]


def text(block: int, *pieces: str) -> list[Event]:
    return [
        BlockStarted(block, BlockKind.TEXT),
        *[TextDelta(block, piece) for piece in pieces],
        BlockEnded(block),
    ]


def tool(block: int, call_id: str) -> list[Event]:
    head = ToolHead(call_id, "f")
    return [
        BlockStarted(block, BlockKind.TOOL_CALL, tool=head),
        ArgumentsDelta(block, "{}"),
        BlockEnded(block),
    ]


INTERLEAVED: list[list[Event]] = [
    [*thinking(0, 1), *text(1, "a")],
    [*text(0, "one"), *thinking(1, 1), *text(2, "t", "wo"), *thinking(3, 2)],
    [*thinking(0, 1), *text(1, "one"), *tool(2, "c1"), *thinking(3, 2), *tool(4, "c2")],
    [*tool(0, "c1"), *thinking(1, 1), *tool(2, "c2"), *thinking(3, 2)],
]


def shape(parts: Any) -> list[str]:
    """What the parts of a turn say, in their order."""
    return [
        part.seal.native["signature"]
        if isinstance(part, Thought)
        else part.call_id
        if isinstance(part, ToolCall)
        else part.text
        for part in parts
    ]


def shown(events: list[Event]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a whole answer, and the one that a client makes of the stream."""
    asked = Exchange(Request(CHAT, "m", (), {}, stream=True), "x1", 1, "alias")
    writer, fold = SPEC.stream_writer(asked, Ledger()), Fold()
    stream = b""
    for event in [Started("i", "m"), *events, Stopped(StopReason.END)]:
        stream += writer.send(event)
        fold.send(event)
    whole = SPEC.write_whole(fold.answer(), asked, Ledger())["choices"][0]["message"]
    built: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [], "reasoning_details": []}
    for frame in SSEParser().receive_data(stream):
        delta = decode(frame.data)["choices"][0]["delta"]
        built["content"] += delta.get("content") or ""
        built["reasoning_details"] += delta.get("reasoning_details") or []
        for piece in delta.get("tool_calls") or []:
            if "id" in piece:
                built["tool_calls"].append({key: piece[key] for key in ("id", "type", "function")})
            else:
                built["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return whole, {**built, "content": built["content"] or None}


@pytest.mark.parametrize("events", INTERLEAVED)
def test_b12_blocks_of_reasoning_come_back_in_their_place(events: list[Event]) -> None:
    expected = []
    for event in events:
        if isinstance(event, SealDelta):
            expected.append(event.seal.native["signature"])
        elif isinstance(event, BlockStarted) and event.tool is not None:
            expected.append(event.tool.call_id)
        elif isinstance(event, BlockStarted) and event.kind is BlockKind.TEXT:
            pieces = [e.text for e in events if isinstance(e, TextDelta) and e.block == event.block]
            expected.append("".join(pieces))
    for message in shown(events):
        assert shape(read(message)) == expected


def test_the_first_place_needs_no_name() -> None:
    whole, _ = shown(INTERLEAVED[0])
    assert whole["reasoning_details"][0].keys() == {"type", "data", "format", "index"}
    whole, _ = shown(INTERLEAVED[1])
    assert [entry["id"] for entry in whole["reasoning_details"]] == ["drg-3-0", "drg-6-0"]


def entry(place: Any, n: int = 1) -> dict[str, Any]:
    return {"type": "reasoning.encrypted", "data": Sealer().wrap(seal(n)), "index": n, "id": place}


@pytest.mark.parametrize(
    ("content", "place", "expected"),
    [
        ("abc", "drg-9-9", ["abc", "c1", "s1"]),
        ("abc", "rs_1", ["s1", "abc", "c1"]),
        ("abc", 5, ["s1", "abc", "c1"]),
        (None, "drg-2-1", ["c1", "s1"]),
        ([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}], "drg-2-0", ["ab", "s1", "c", "c1"]),
        # Other parts have no place that could be counted.
        ([{"type": "refusal", "refusal": "no"}], "drg-2-0", ["s1", "no", "c1"]),
    ],
)
def test_places_that_do_not_fit_are_taken_as_well_as_they_go(content: Any, place: Any, expected: Any) -> None:
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [wire_call("c1")],
        "reasoning_details": [entry(place)],
    }
    assert shape(read(message)) == expected


def test_a_text_that_is_cut_keeps_its_marks_and_sources_at_its_end() -> None:
    cites = [{"type": "url_citation", "url_citation": {"url": "https://a", "start_index": 0, "end_index": 1}}]
    message = {
        "role": "assistant",
        "content": "abcd",
        "annotations": cites,
        "cache_control": {"type": "ephemeral"},
        "reasoning_details": [entry("drg-2-0")],
    }
    path = f"{AT}/content"
    assert read(message) == (
        Text("ab", path=path),
        Thought("", seal(1), path=f"{AT}/reasoning_details/0/data"),
        Text("cd", CacheMark(f"{AT}/cache_control"), cites, None, path, (Citation("https://a"),)),
    )
    body, losses = own({"messages": [message]})
    message.pop("reasoning_details")
    assert (body["messages"], losses) == ([message], [f"{AT}/reasoning_details/0/data"])


def test_text_after_a_call_is_told_to_stand_before_it() -> None:
    asked = Exchange(Request(CHAT, "m", (), {}), "x1", 1, "alias")
    events = [Started("i", "m"), *tool(0, "c1"), *text(1, "late"), Stopped(StopReason.TOOL_USE), ENDED]
    ledger, fold = Ledger(), Fold()
    writer = SPEC.stream_writer(asked, ledger)
    for event in events:
        writer.send(event)
        fold.send(event)
    assert [loss.path for loss in ledger] == ["/choices/0/message/content"]
    whole = Ledger()
    SPEC.write_whole(fold.answer(), asked, whole)
    assert list(whole) == list(ledger)


# -- what a server wants back with a call ------------------------------------------------------------------

SIGNED = {"extra_content": {"google": {"thought_signature": "G1"}}}
EXCHANGE = Exchange(Request("other", "m", (), {}), "X1", 1, "alias")


def answered(*deltas: Any, whole: bool = False) -> list[Event]:
    """The events of an answer of the upstream's, checked for their order."""
    ledger = Ledger()
    if whole:
        body = {
            "id": "c",
            "model": "gem",
            "choices": [{"index": 0, "message": deltas[0], "finish_reason": "stop"}],
        }
        out = list(SPEC.read_whole(body, EXCHANGE, ledger))
    else:
        reader = SPEC.stream_reader(EXCHANGE, ledger)
        out = []
        for delta in deltas:
            frame = {"id": "c", "model": "gem", "choices": [{"index": 0, "delta": delta}]}
            out += reader.read(Frame(b"", encode(frame)))
        out += reader.read(Frame(b"", b"[DONE]"))
    checker = Checker()
    for event in out:
        checker.check(event)
    assert len(ledger) == 0
    return out


def sealed(block: int, **native: Any) -> list[Event]:
    return [
        BlockStarted(block, BlockKind.REASONING),
        SealDelta(block, Seal(CHAT, native, "gem")),
        BlockEnded(block),
    ]


def signed(block: int, extra: Any, call_id: str = "c1") -> list[Event]:
    return sealed(block, tool_calls_extra={call_id: extra})


def inner(events: list[Event]) -> list[Event]:
    return [event for event in events[1:] if not isinstance(event, Stopped) and event is not ENDED]


CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "p", "input": "x", "odd": 1}}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        # With the call, as Google sends it.
        ([{"tool_calls": [{"index": 0, **wire_call("c1"), **SIGNED}]}], [*signed(0, SIGNED), *tool(1, "c1")]),
        # Of parallel calls the first one has it.
        (
            [{"tool_calls": [{"index": 0, **wire_call("c1"), **SIGNED}, {"index": 1, **wire_call("c2")}]}],
            [*signed(0, SIGNED), *tool(1, "c1"), *tool(2, "c2")],
        ),
        # Before the call's name, and later on; the same said again is no news.
        (
            [
                {"tool_calls": [{"index": 0, "id": "c1", "odd": 1}]},
                {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{", "within": 2}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": "}"}, "odd": 1, "late": 3, "no": None}]},
            ],
            [
                *signed(0, {"odd": 1, "function": {"within": 2}}),
                BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("c1", "f")),
                ArgumentsDelta(1, "{"),
                ArgumentsDelta(1, "}"),
                BlockEnded(1),
                *signed(2, {"late": 3}),
            ],
        ),
        # After the call was complete.
        (
            [
                {"tool_calls": [{"index": 0, **wire_call("c1")}]},
                {"tool_calls": [{"index": 1, **wire_call("c2")}]},
                {"tool_calls": [{"index": 0, **SIGNED}]},
            ],
            [*tool(0, "c1"), *tool(1, "c2")[:2], *signed(2, SIGNED), BlockEnded(1)],
        ),
        (
            [{"tool_calls": [{"index": 0, **CUSTOM}]}],
            [
                *signed(0, {"custom": {"odd": 1}}),
                BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("c1", "p", ToolKind.CUSTOM)),
                ArgumentsDelta(1, "x"),
                BlockEnded(1),
            ],
        ),
        # The legacy form.
        (
            [{"function_call": {"name": "f", "arguments": "{}", "odd": 1}}],
            [*signed(0, {"function": {"odd": 1}}, "call_X1_0"), *tool(1, "call_X1_0")],
        ),
    ],
)  # fmt: skip
def test_c14_what_a_call_carries_goes_to_the_client_sealed(deltas: Any, expected: Any) -> None:
    assert inner(answered(*deltas)) == expected


CARRY = {"extra_content": {"google": {"thought_signature": "M"}}}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{"content": "a", **CARRY}], [*sealed(0, **CARRY), *text(1, "a")]),
        ([{"content": "a"}, {"content": "", **CARRY}], [*text(0, "a"), *sealed(1, **CARRY)]),
        (
            [{"content": "a"}, CARRY, {"tool_calls": [{"index": 0, **wire_call("c1")}]}],
            [*text(0, "a"), *sealed(1, **CARRY), *tool(2, "c1")],
        ),
        (
            [CARRY, {"extra_content": {"more": 1}}, {"extra_content": "odd"}],
            sealed(0, extra_content={**CARRY["extra_content"], "more": 1}),
        ),
    ],
)
def test_c14_what_a_message_carries_does_too(deltas: Any, expected: Any) -> None:
    assert inner(answered(*deltas)) == expected


def test_c14_a_whole_answer_carries_the_same() -> None:
    message = {"content": "a", "tool_calls": [{**wire_call("c1"), **SIGNED}], **CARRY}
    assert inner(answered(message, whole=True)) == [
        *sealed(0, **CARRY),
        *text(1, "a"),
        *signed(2, SIGNED),
        *tool(3, "c1"),
    ]


def thought(**native: Any) -> Thought:
    return Thought("", Seal(CHAT, native), path="/t")


@pytest.mark.parametrize("field", ["reasoning_content", None])
@pytest.mark.parametrize(
    ("parts", "calls", "losses"),
    [
        (
            [thought(tool_calls_extra={"c1": SIGNED}), call("c1"), call("c2")],
            [wire_call("c1", **SIGNED), wire_call("c2")],
            [],
        ),
        # By its id wherever it stands; by its place when the id has changed on the way.
        (
            [call("c1"), call("c2"), thought(tool_calls_extra={"c2": SIGNED})],
            [wire_call("c1"), wire_call("c2", **SIGNED)],
            [],
        ),
        (
            [call("c1"), thought(tool_calls_extra={"old": SIGNED}), call("new")],
            [wire_call("c1"), wire_call("new", **SIGNED)],
            [],
        ),
        (
            [call("c1"), thought(tool_calls_extra={"gone": SIGNED})],
            [wire_call("c1")],
            [("dropped", "/t")],
        ),
        # Nothing that the call says itself is overwritten.
        (
            [thought(tool_calls_extra={"c1": {"id": "evil", "function": {"name": "evil", "x": 1}}}), call("c1")],
            [{**wire_call("c1"), "function": {"name": "f", "arguments": "{}", "x": 1}}],
            [],
        ),
        ([thought(tool_calls_extra={"c1": 5}), call("c1")], [wire_call("c1")], []),
        ([thought(tool_calls_extra=5), call("c1")], [wire_call("c1")], []),
    ],
)  # fmt: skip
def test_c14_what_a_call_carried_goes_back_with_it(parts: Any, calls: Any, losses: Any, field: Any) -> None:
    [message], found = write(said(*parts), target=Target(reasoning_field=field))
    assert message == {"role": "assistant", "content": None, "tool_calls": calls}
    assert found == losses


def test_c14_what_a_message_carried_goes_back_with_it() -> None:
    more = {"extra_content": {"more": 1}}
    [message], losses = write(said(thought(**CARRY), Text("a"), thought(**more), thought(extra_content=5)))
    assert message == {
        "role": "assistant",
        "content": "a",
        "extra_content": {**CARRY["extra_content"], "more": 1},
    }
    assert losses == []
    [message], _ = write(said(thought(**CARRY)))
    assert message == {"role": "assistant", "content": "", **CARRY}


# -- where reasoning goes back -----------------------------------------------------------------------------

DETAIL = {"type": "reasoning.text", "text": "own", "signature": "S", "index": 0}


@pytest.mark.parametrize(
    ("field", "parts", "expected", "losses"),
    [
        ("reasoning", [Thought("a"), Thought("b")], {"reasoning": "a\n\nb"}, []),
        (
            "reasoning_details",
            [Thought("a"), Thought("b")],
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "a", "format": "unknown", "index": 0},
                    {"type": "reasoning.text", "text": "b", "format": "unknown", "index": 1},
                ]
            },
            [],
        ),
        (
            "reasoning_details",
            [Thought("own", Seal(CHAT, {"reasoning_details": [DETAIL]})), Thought("b")],
            {
                "reasoning_details": [
                    DETAIL,
                    {"type": "reasoning.text", "text": "b", "format": "unknown", "index": 1},
                ]
            },
            [],
        ),
        # Signatures are not forged.
        ("thinking_blocks", [Thought("a", path="/t")], {}, [("dropped", "/t")]),
        ("reasoning", [Thought("", Seal(CHAT, "odd"), path="/t")], {}, [("foreign_seal", "/t")]),
    ],
)
def test_c4_earlier_reasoning_goes_where_the_upstream_reads_it(
    field: Any, parts: Any, expected: Any, losses: Any
) -> None:
    [message], found = write(said(*parts, Text("x")), target=Target(reasoning_field=field))
    assert message == {"role": "assistant", "content": "x", **expected}
    assert found == losses


def test_a_seal_of_mistrals_goes_into_a_list() -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    wrapped = Sealer().wrap(Seal(CHAT, {"content": [part]}))
    details = [{"type": "reasoning.encrypted", "data": wrapped, "id": "drg-1-0", "index": 0}]
    body, losses = own({"messages": [{"role": "assistant", "content": "ab", "reasoning_details": details}]})
    assert body["messages"] == [
        {
            "role": "assistant",
            "content": [part, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        }
    ]
    assert losses == []


def test_a_recalled_thought_stands_in_no_member_of_its_message() -> None:
    raw = {"model": "m", "messages": [{"role": "assistant", "content": "a"}]}
    request = SPEC.read_request(raw, Sealer())
    kept = Thought("", Seal(CHAT, {"reasoning_content": "hm"}), path=AT)
    turn = Message("assistant", (kept, *request.messages[0].parts), AT)
    body = SPEC.write_request(Request(CHAT, "m", (turn,), raw), Target(), Ledger())
    assert body["messages"] == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]


# -- the legacy forms --------------------------------------------------------------------------------------


def test_functions_are_printed_again_as_they_came() -> None:
    body = {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}", "x": 1},
            },
            {"role": "function", "name": "f", "content": "4"},
            {"role": "function", "name": "stranger", "content": "5"},
        ],
        "functions": [{"name": "f", "parameters": {"type": "object"}, "x": 1}, {"name": "g"}],
        "function_call": {"name": "f"},
    }
    assert own(body) == (body, [])


def test_the_name_of_a_function_message_is_that_of_its_call() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "5"},
        {"role": "function", "name": "f", "content": "4"},
    ]
    request = SPEC.read_request({"model": "m", "messages": messages}, Sealer())
    results = [message.parts[0] for message in request.messages]
    assert [part.call_id for part in results] == ["call_0_f", "call_1_g", "call_0_f"]  # type: ignore[union-attr]
    assert [message.name for message in request.messages] == [None, None, None]


def test_a_choice_without_tools_is_printed_again() -> None:
    body = {"model": "m", "messages": [], "tool_choice": "none", "parallel_tool_calls": False}
    assert own(body) == (body, [])


# -- marks and images --------------------------------------------------------------------------------------

MARKS = Target(cache_marks="breakpoint")
POINT = {"mode": "explicit"}


def mark(n: int) -> CacheMark:
    return CacheMark(f"/mark/{n}")


def test_a_mark_on_a_call_moves_to_the_text_before_it() -> None:
    [message], losses = write(said(Text("a"), call("c1", cache=mark(1))), target=MARKS)
    assert message["content"] == [{"type": "text", "text": "a", "prompt_cache_breakpoint": POINT}]
    assert losses == [("altered", "/mark/1")]
    [message], losses = write(said(call("c1", cache=mark(1))), target=MARKS)
    assert message["content"] is None
    assert losses == [("dropped", "/mark/1")]


def test_two_marks_at_one_place_are_one() -> None:
    [message], losses = write(said(Text("a", mark(0)), call("c1", cache=mark(1))), target=MARKS)
    assert message["content"] == [{"type": "text", "text": "a", "prompt_cache_breakpoint": POINT}]
    assert losses == [("altered", "/mark/1")]


def test_the_last_four_marks_are_kept() -> None:
    texts = [Text(str(n), mark(n)) for n in range(6)]
    [message], losses = write(Message("user", tuple(texts), "/u"), target=MARKS)
    marked = [part["text"] for part in message["content"] if "prompt_cache_breakpoint" in part]
    assert marked == ["2", "3", "4", "5"]
    assert losses == [("dropped", "/mark/0"), ("dropped", "/mark/1")]


IMAGE = Media("image", "base64", "QUJD", "image/png", path="/i")
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def results(*parts: Any) -> tuple[Message, Message]:
    return (
        said(call("c1"), call("c2")),
        Message("user", (ToolResult("c1", parts, path="/r"), ToolResult("c2", (Text("b"),)), Text("go on")), "/u"),
    )  # fmt: skip


def test_i1_images_of_results_come_after_all_results() -> None:
    out, losses = write(*results(Text("a"), IMAGE))
    assert out[1:] == [
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a\n\n[image: see the next message]",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "b"},
        {"role": "user", "content": [SHOWN, {"type": "text", "text": "go on"}]},
    ]
    assert losses == [("altered", "/i")]


def test_i1_images_stay_in_results_where_the_upstream_takes_them() -> None:
    file = Media("file", "base64", "QQ==", "application/pdf", "a.pdf", path="/f")
    out, losses = write(*results(IMAGE, file), target=Target(tool_images=True))
    assert out[1]["content"] == [SHOWN, {"type": "text", "text": "[file: see the next message]"}]
    assert [part["type"] for part in out[3]["content"]] == ["file", "text"]
    assert losses == [("altered", "/f")]


def test_b4_results_come_before_the_text_of_their_turn() -> None:
    turn = Message("user", (Text("so"), ToolResult("c1", (Text("a"),)), Text("far")), "/u")
    out, losses = write(said(call("c1")), turn)
    assert [message["role"] for message in out] == ["assistant", "tool", "user"]
    assert losses == []


def test_a_file_by_url_keeps_its_name() -> None:
    file = Media("file", "url", "https://d", filename="a.pdf", path="/f")
    [message], losses = write(Message("user", (file,), "/u"))
    assert message["content"] == "[document: a.pdf, https://d]"
    assert losses == [("altered", "/f")]


# -- system text -------------------------------------------------------------------------------------------


def system(*parts: Part, **fields: Any) -> Message:
    return Message("system", parts, "/s", **fields)


@pytest.mark.parametrize(
    ("messages", "target", "expected"),
    [
        ([system(Text("a")), system(Text("b"))], Target(), ["a\n\nb"]),
        (
            [system(Text("a", mark(0))), system(Text("b"))],
            MARKS,
            [
                [
                    {"type": "text", "text": "a", "prompt_cache_breakpoint": POINT},
                    {"type": "text", "text": "b"},
                ]
            ],
        ),
        ([system(Text("a")), system(Text("b"))], Target(mid_system=True), ["a", "b"]),
        ([system(Text("a"), name="x"), system(Text("b"))], Target(), ["a", "b"]),
        ([system(Text("a")), system(Text("b"), name="x")], Target(), ["a", "b"]),
        ([system(Text("a")), Message("developer", (Text("b"),))], Target(developer_role=True), ["a\n\nb"]),
    ],
)
def test_h13_system_messages_at_the_head_are_one(messages: Any, target: Target, expected: Any) -> None:
    out, _ = write(*messages, target=target)
    assert [message["content"] for message in out] == expected


def test_a_developers_words_behind_the_systems_are_in_its_message() -> None:
    # "invalid chat setting (2013)": hosts of many models hand the messages on as they are.
    developer = Message("developer", (Text("b"),), "/messages/1")
    out, losses = write(system(Text("a")), developer, target=Target(developer_role=True))
    assert out == [{"role": "system", "content": "a\n\nb"}]
    assert losses == [("altered", "/messages/1/role")]
    out, losses = write(developer, system(Text("a")), target=Target(developer_role=True))
    assert out == [{"role": "developer", "content": "b\n\na"}]
    assert losses == [("altered", "/s/role")]


def test_a_refusal_of_the_history_is_a_member_of_its_message() -> None:
    [message], losses = write(said(Text("a"), Refusal("no")))
    assert message == {"role": "assistant", "content": "a", "refusal": "no"}
    assert losses == []


# -- what some hosts demand of earlier turns ---------------------------------------------------------------

ASKED = Message("user", (Text("go"),), "/u")
WITH_THOUGHT = Message("assistant", (Thought("hm", path="/t"), call("c1")), "/a0")
WITHOUT = Message("assistant", (call("c2"),), "/a1")
ANSWERED = Message("assistant", (Text("done"),), "/a2")
LOOP = (ASKED, WITHOUT, answer("c2"), ANSWERED, ASKED, WITH_THOUGHT, answer("c1"), WITHOUT, answer("c2"))
SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}


@pytest.mark.parametrize(
    ("target", "thoughts", "lost"),
    [
        (Target(), [None, None, "hm", None], []),
        # "The `reasoning_content` in the thinking mode must be passed back to the API."
        (Target(reasoning_back="always"), [" ", " ", "hm", " "], ["/a1", "/a2"]),
        (Target(reasoning_back="tool_loop"), [None, None, "hm", " "], ["/a1"]),
        (Target(reasoning_back="always", reasoning_field=None), [None] * 4, ["/t"]),
    ],
)
def test_reasoning_that_is_demanded_and_lost(
    target: Target, thoughts: list[str | None], lost: list[str]
) -> None:
    out, losses = write(*LOOP, target=target)
    turns = [message for message in out if message["role"] == "assistant"]
    assert [turn.get("reasoning_content") for turn in turns] == thoughts
    code = "dropped" if lost == ["/t"] else "repaired"
    assert losses == [(code, path) for path in lost]


def test_a_loop_without_a_user() -> None:
    [message], losses = write(WITHOUT, target=Target(reasoning_back="tool_loop"))
    assert message["reasoning_content"] == " "
    assert losses == [("repaired", "/a1")]


def test_the_first_call_of_a_turn_has_a_signature_where_it_is_demanded() -> None:
    # "Function call is missing a thought_signature in functionCall parts."
    target = Target(thought_signatures=True)
    [message, _], losses = write(said(Text("a"), call("c1"), call("c2")), answer("c1"), target=target)
    assert [each.get("extra_content") for each in message["tool_calls"]] == [SIGNATURE, None]
    assert losses == []
    assert "tool_calls" not in write(said(Text("a")), target=target)[0][0]


def test_a_signature_of_its_own_is_given_back() -> None:
    own_signature = {"google": {"thought_signature": "c2ln"}}
    seal = Seal(CHAT, {"tool_calls_extra": {"c1": {"extra_content": own_signature}}})
    [message], _ = write(
        said(Thought("", seal, path="/t"), call("c1"), call("c2")), target=Target(thought_signatures=True)
    )
    assert [each.get("extra_content") for each in message["tool_calls"]] == [own_signature, None]


def test_a_mended_relay_adds_what_is_demanded() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [wire_call("c1")]}
    body = {"model": "m", "messages": [{"role": "user", "content": "go"}, turn]}
    request = SPEC.read_request(body, Sealer())
    ledger = Ledger()
    target = Target(relay="mend", reasoning_back="always", thought_signatures=True)
    [_, out] = SPEC.write_request(request, target, ledger)["messages"]
    assert out["reasoning_content"] == " "
    assert out["tool_calls"] == [{**wire_call("c1"), "extra_content": SIGNATURE}]
    assert [(loss.code.value, loss.path) for loss in ledger] == [("repaired", "/messages/1")]
    # The bytes of any other relay stay as they are.
    assert SPEC.write_request(request, Target(reasoning_back="always"), Ledger())["messages"][1] == turn
