"""A. Tool calls in streams: ways in which gateways have lost, glued and cut them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Cost, Reasoning, Text, frames, stream
from failures.rules import refused
from failures.translate import Received, each, every_pair, pairs, receive, receive_whole, translate_request
from failures.turns import Model, Result, User, all_blocks, calls_of, request
from oracle import CHAT, CLIENTS, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s
from oracle.meaning import Kind

from dragoman import Outcome

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)


def chat(
    *deltas: Json, finish: str | None = "tool_calls", tail: tuple[s.Payload, ...] = ("[DONE]",)
) -> bytes:
    """A Chat stream of these deltas."""
    ending = [s.chunk({}, finish)] if finish is not None else []
    start = s.chunk({"role": "assistant", "content": ""})
    return s.render(CHAT, [start, *map(s.chunk, deltas), *ending, *tail])


def skeleton(received: Received) -> list[str]:
    """The events of blocks or items in a stream: `start`, `delta` and `stop` with their index."""
    text_in = {
        "content_block_start": "start",
        "content_block_delta": "delta",
        "content_block_stop": "stop",
        "output_item.added": "start",
        "function_call_arguments.delta": "delta",
        "output_item.done": "stop",
    }
    found = [(text_in.get(kind), event) for kind, event in zip(received.kinds, received.events, strict=True)]
    return [f"{word} {event.get('index', event.get('output_index'))}" for word, event in found if word]


@each("client", OTHERS)
def test_A1_interleaved_calls_stay_apart(client: str) -> None:
    """Fragments of two calls come in turns; each block has one start, its own deltas, one stop."""
    data = chat(
        s.call(0, "call_a", "add", ""),
        s.call(1, "call_b", "now", ""),
        s.call(0, arguments='{"a":'),
        s.call(1, arguments='{"b":'),
        s.call(0, arguments="1}"),
        s.call(1, arguments="2}"),
    )
    received = receive(CHAT, client, data)
    assert received.gist == [("call", 'add({"a":1})'), ("call", 'now({"b":2})')]
    starts = skeleton(received)
    assert starts[0] == "start 0"
    assert starts.index("stop 0") < starts.index("start 1")
    assert [each.split()[1] for each in starts] == sorted(each.split()[1] for each in starts)
    assert [starts.count(f"{word} {n}") for word in ("start", "stop") for n in (0, 1)] == [1, 1, 1, 1]


@each("upstream", OTHERS)
def test_A2_parallel_calls_have_their_own_index(upstream: str) -> None:
    """The index counts calls from 0; it is not that of the content block."""
    calls = [Call("call_a", "add"), Call("call_b", "now"), Call("call_c", "add")]
    received = receive(upstream, CHAT, stream(upstream, Reasoning("Hm."), Text("Let me see."), *calls))
    deltas = [choice["delta"] for event in received.events for choice in event["choices"]]
    fragments = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert [(each["index"], each["id"]) for each in fragments if "id" in each] == [
        (0, "call_a"),
        (1, "call_b"),
        (2, "call_c"),
    ]
    for index in range(3):
        arguments = [each["function"].get("arguments", "") for each in fragments if each["index"] == index]
        assert "".join(arguments) == '{"a": 1}'


@each("client", OTHERS)
@pytest.mark.parametrize("index_too", [True, False], ids=["by-index", "only-by-id"])
def test_A3_consecutive_calls_are_two_blocks(client: str, index_too: bool) -> None:
    """No text is between the calls, and each is in one chunk."""
    first, second = s.call(0, "call_a", "add", '{"a":1}'), s.call(1, "call_b", "now", "{}")
    if not index_too:
        del first["tool_calls"][0]["index"], second["tool_calls"][0]["index"]
    received = receive(CHAT, client, chat(first, second))
    assert received.gist == [("call", 'add({"a":1})'), ("call", "now({})")]
    assert [each for each in skeleton(received) if "delta" not in each] == [
        "start 0",
        "stop 0",
        "start 1",
        "stop 1",
    ]


@pairs()
@pytest.mark.parametrize(
    "fragments", [(), ("",), ("", ""), ("{}",)], ids=["none", "empty", "two-empty", "object"]
)
def test_A4_no_arguments_are_an_empty_object(client: str, upstream: str, fragments: tuple[str, ...]) -> None:
    """However a tool without parameters is called, the sum of the argument deltas is `{}`."""
    received = receive(upstream, client, stream(upstream, Call("call_a", "now", fragments)))
    assert received.gist == [("call", "now({})")]
    if client == MESSAGES:
        deltas = [event["delta"]["partial_json"] for event in received.of("content_block_delta")]
        assert "".join(deltas) == "{}"
    elif client == RESPONSES:
        assert [event["arguments"] for event in received.of("function_call_arguments.done")] == ["{}"]


@pairs()
def test_A4_no_arguments_in_a_whole_response(client: str, upstream: str) -> None:
    whole = receive_whole(upstream, client, stream(upstream, Call("call_a", "now", ())), streams=True)
    if client == CHAT:
        (call,) = whole["choices"][0]["message"]["tool_calls"]
        assert call["function"]["arguments"] == "{}"
    elif client == MESSAGES:
        assert whole["content"][0]["input"] == {}
    else:
        assert whole["output"][0]["arguments"] == "{}"


@pairs((CHAT, RESPONSES), PROTOCOL_NAMES)
@pytest.mark.parametrize("arguments", ["", " \n", None], ids=["empty", "blank", "absent"])
def test_A5_empty_arguments_in_history_are_an_empty_object(
    client: str, upstream: str, arguments: str | None
) -> None:
    """An earlier turn holds `arguments: ""`, or nothing."""
    body = request(client, User("Hi"), Model((Call("call_a", "now", ("",)),)), Result("call_a"))
    holder = body["messages"][1]["tool_calls"][0]["function"] if client == CHAT else body["input"][1]
    holder["arguments"] = arguments
    if arguments is None:
        del holder["arguments"]
    sent = translate_request(client, upstream, body).body
    ((_, _, got),) = calls_of(upstream, sent)
    assert got == ({} if upstream == MESSAGES else "{}")
    assert refused(upstream, sent) == []


@every_pair((CHAT, MESSAGES, RESPONSES))
def test_A6_tool_use_always_has_input(client: str, upstream: str) -> None:
    """A call without arguments keeps its `input`, in requests and in responses."""
    call = Call("call_a", "now", ("{}",))
    sent = translate_request(
        client, upstream, request(client, User("Hi"), Model((call,)), Result("call_a"))
    ).body
    assert [each[2] for each in calls_of(upstream, sent)] == [{} if upstream == MESSAGES else "{}"]
    if upstream == MESSAGES:
        assert [block["input"] for block in all_blocks(sent) if block["type"] == "tool_use"] == [{}]
    received = receive(upstream, client, stream(upstream, call), translates=True)
    if client == MESSAGES:
        assert [event["content_block"]["input"] for event in received.of("content_block_start")] == [{}]


@each("client", (CHAT, MESSAGES))
@pytest.mark.parametrize(
    "fragments", [("", '{"a":1}'), ('{"a":', "", "1}"), ('{"a":1}', "")], ids=["first", "middle", "last"]
)
def test_A7_an_empty_arguments_delta_is_ignored(client: str, fragments: tuple[str, ...]) -> None:
    data = stream(RESPONSES, Call("call_a", "add", fragments))
    received = receive(RESPONSES, client, data)
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.gist == [("call", 'add({"a":1})')]


WAITS = {CHAT: "tool_calls", MESSAGES: "tool_use", RESPONSES: "completed"}


@pairs()
@pytest.mark.parametrize("stop", ["end", "tool"])
@pytest.mark.parametrize("with_text", [True, False], ids=["text-before", "only-calls"])
def test_A8_a_turn_that_ends_with_calls_stops_for_tool_use(
    client: str, upstream: str, stop: str, with_text: bool
) -> None:
    """Also where the upstream's reason is `stop`, and where text came before the calls."""
    blocks = [Text("Let me see."), Call("call_a")] if with_text else [Call("call_a")]
    data = stream(upstream, *blocks, stop=stop)
    received = receive(upstream, client, data)
    assert received.finish == WAITS[client]
    assert received.gist[-1] == ("call", 'add({"a": 1})')
    whole = receive_whole(upstream, client, data, streams=True)
    if client == MESSAGES:
        assert whole["stop_reason"] == "tool_use"
    elif client == CHAT:
        assert whole["choices"][0]["finish_reason"] == "tool_calls"


@each("client", OTHERS)
def test_A9_an_empty_finish_reason_is_ignored(client: str) -> None:
    """`finish_reason: ""` is in every chunk; the real one comes last."""
    data = [
        s.chunk({"role": "assistant", "content": ""}, ""),
        s.chunk({"content": "Let me see."}, ""),
        s.chunk(s.call(0, "call_a", "add", '{"a":1}'), ""),
        s.chunk({}, "tool_calls"),
        "[DONE]",
    ]
    received = receive(CHAT, client, s.render(CHAT, data))
    assert received.finish == WAITS[client]
    assert received.gist == [("text", "Let me see."), ("call", 'add({"a":1})')]


@each("client", OTHERS)
def test_A9_the_last_real_finish_reason_wins(client: str) -> None:
    data = [
        s.chunk({"role": "assistant", "content": "Let me"}, "stop"),
        s.chunk({"content": " see."}, ""),
        s.chunk({}, "length"),
        "[DONE]",
    ]
    received = receive(CHAT, client, s.render(CHAT, data))
    assert received.finish == ("max_tokens" if client == MESSAGES else "max_output_tokens")
    assert received.gist == [("text", "Let me see.")]


@each("client", OTHERS)
@pytest.mark.parametrize("content", ["", None], ids=["empty", "null"])
def test_A10_no_block_without_content(client: str, content: str | None) -> None:
    """Empty text before and beside the calls opens no text block."""
    fragment = s.call(0, "call_a", "add", '{"a":1}')
    data = chat({"content": content}, {"content": content, **fragment}, {"content": content})
    received = receive(CHAT, client, data)
    assert received.gist == [("call", 'add({"a":1})')]
    assert [each for each in skeleton(received) if "delta" not in each] == ["start 0", "stop 0"]
    whole = receive_whole(CHAT, client, data, streams=True)
    kinds = [block["type"] for block in whole["content" if client == MESSAGES else "output"]]
    assert kinds == ["tool_use" if client == MESSAGES else "function_call"]


@each("upstream", (CHAT, MESSAGES))
def test_A11_text_after_a_call_is_an_item_of_its_own(upstream: str) -> None:
    data = stream(upstream, Text("Before."), Call("call_a"), Text("After."), stop="tool")
    received = receive(upstream, RESPONSES, data)
    assert received.gist == [("text", "Before."), ("call", 'add({"a": 1})'), ("text", "After.")]
    added = [(event["output_index"], event["item"]["id"]) for event in received.of("output_item.added")]
    assert [index for index, _ in added] == [0, 1, 2]
    assert len({key for _, key in added}) == 3
    deltas = [(event["output_index"], event["item_id"]) for event in received.of("output_text.delta")]
    assert deltas == [added[0], added[2]]
    assert [event["part"]["text"] for event in received.of("content_part.done")] == ["Before.", "After."]
    done = [event["item"]["id"] for event in received.of("output_item.done")]
    assert done == [key for _, key in added]


CUT = {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}


@every_pair((CHAT, MESSAGES, RESPONSES))
def test_A12_a_cut_call_is_not_sent_as_complete(client: str, upstream: str) -> None:
    data = stream(upstream, Call("call_a", "add", ('{"a"', ": "), whole=False), stop="length")
    received = receive(upstream, client, data, translates=True)
    assert received.finish == CUT[client]
    assert received.gist == [("call", 'add({"a": )')]
    if client == RESPONSES:
        assert not received.of("function_call_arguments.done", "output_item.done", "completed")
        ((final,),) = [event["response"]["output"] for event in received.of("incomplete")]
        assert (final["status"], final["arguments"]) == ("incomplete", '{"a": ')


def reused() -> bytes:
    """Two calls whole under one index, as one server sends them."""
    first, second = s.call(0, "call_a", "add", '{"a":1}'), s.call(0, "call_b", "now", "{}")
    return chat(first, second)


@each("client")
def test_A13_a_new_id_under_the_same_index_is_a_new_call(client: str) -> None:
    received = receive(CHAT, client, reused(), translates=True)
    assert [(call.id, call.name, call.text) for call in received.meaning.calls] == [
        ("call_a", "add", '{"a":1}'),
        ("call_b", "now", "{}"),
    ]


@each("client", OTHERS)
@pytest.mark.parametrize("fragments", [2, 5])
def test_A13_a_new_id_in_fragments_is_a_new_call(client: str, fragments: int) -> None:
    """Later fragments only have the index and belong to its newest call."""
    text = '{"a": 1, "b": 2}'
    step = len(text) // fragments + 1
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    deltas = []
    for call_id in ("call_a", "call_b"):
        deltas += [s.call(0, call_id, "add"), *[s.call(0, arguments=part) for part in parts]]
    received = receive(CHAT, client, chat(*deltas))
    assert received.gist == [("call", f"add({text})")] * 2


def test_A13_a_relay_keeps_the_upstreams_bytes() -> None:
    """A client of the upstream's own protocol receives it unchanged."""
    assert receive(CHAT, CHAT, reused()).data == reused()


@each("client")
@pytest.mark.parametrize("at_once", [True, False], ids=["one-chunk", "a-chunk-each"])
def test_A14_calls_without_an_index_are_separated_by_position(client: str, at_once: bool) -> None:
    first, second = s.call(0, "call_a", "add", '{"a":1}'), s.call(0, "call_b", "now", "{}")
    for each_call in (first, second):
        del each_call["tool_calls"][0]["index"]
        del each_call["tool_calls"][0]["type"]
    both = {"content": None, "tool_calls": first["tool_calls"] + second["tool_calls"]}
    received = receive(CHAT, client, chat(*([both] if at_once else [first, second])), translates=True)
    assert [(call.id, call.name, call.text) for call in received.meaning.calls] == [
        ("call_a", "add", '{"a":1}'),
        ("call_b", "now", "{}"),
    ]
    if client == CHAT:
        deltas = [choice["delta"] for event in received.events for choice in event["choices"]]
        assert [
            part["index"] for delta in deltas for part in delta.get("tool_calls", []) if "id" in part
        ] == [0, 1]


USED = Cost(prompt=12, completion=5)


def with_usage(place: str) -> bytes:
    """A Chat response with its usage in the chunk of the finish reason, in a separate one, or in both."""
    finish = s.chunk({}, "stop")
    if place != "own":
        finish["usage"] = USED.chat
    usage_chunk = [{**s.chunk(), "usage": USED.chat}] if place != "finish" else []
    return s.render(CHAT, [s.chunk({"role": "assistant", "content": "Hi"}), finish, *usage_chunk, "[DONE]"])


@each("client")
@pytest.mark.parametrize("place", ["finish", "own", "both"])
def test_A15_usage_in_any_chunk_is_reported(client: str, place: str) -> None:
    received = receive(CHAT, client, with_usage(place), translates=True)
    names = ("prompt_tokens", "completion_tokens") if client == CHAT else ("input_tokens", "output_tokens")
    assert [received.usage[name] for name in names] == [12, 5]


@each("upstream")
def test_A15_a_chat_client_gets_usage_in_its_own_last_chunk(upstream: str) -> None:
    data = with_usage("finish") if upstream == CHAT else stream(upstream, Text("Hi"), cost=USED)
    received = receive(upstream, CHAT, data, translates=True)
    last = received.events[-1]
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 17)
    assert all(event.get("usage") is None for event in received.events[:-1])
    assert received.data.endswith(b"data: [DONE]\n\n")


@pairs()
def test_A16_reasoning_after_a_call_is_a_new_block(client: str, upstream: str) -> None:
    """Each segment is a block of its own; the open one is closed first."""
    blocks = [Reasoning("First."), Call("call_a"), Reasoning("Second."), Call("call_b", "now", ("{}",))]
    received = receive(upstream, client, stream(upstream, *blocks))
    call, other = ("call", 'add({"a": 1})'), ("call", "now({})")
    if client == CHAT:  # has no order between them
        assert [each for each in received.gist if each[0] == "call"] == [call, other]
        assert received.meaning.text(Kind.REASONING).split() == ["First.", "Second."]
        return
    assert received.gist == [("reasoning", "First."), call, ("reasoning", "Second."), other]
    assert [each for each in skeleton(received) if "delta" not in each] == [
        f"{word} {index}" for index in range(4) for word in ("start", "stop")
    ]


ENDINGS: dict[str, bytes] = {
    "no finish": s.render(CHAT, [s.chunk({"role": "assistant", "content": "Hi"}), "[DONE]"]),
    "no usage": s.render(
        CHAT, [s.chunk({"role": "assistant", "content": "Hi"}), s.chunk({}, "stop"), "[DONE]"]
    ),
    "no end mark": s.render(CHAT, [s.chunk({"role": "assistant", "content": "Hi"}), s.chunk({}, "stop")]),
    "one chunk": s.render(
        CHAT,
        [{**s.chunk({"role": "assistant", "content": "Hi"}, "stop"), "usage": USED.chat}, "[DONE]"],
    ),
    "usage first": s.render(
        CHAT,
        [
            {**s.chunk({"role": "assistant", "content": "Hi"}), "usage": USED.chat},
            s.chunk({}, "stop"),
            "[DONE]",
        ],
    ),
}


@each("client")
@pytest.mark.parametrize("ending", ENDINGS)
def test_A17_every_complete_response_has_one_message_stop(client: str, ending: str) -> None:
    received = receive(CHAT, client, ENDINGS[ending], translates=True)
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.gist == [("text", "Hi")]
    if client == MESSAGES:
        (delta,) = received.of("message_delta")
        assert delta["delta"]["stop_reason"] == "end_turn"
        assert received.kinds[-2:] == ["message_delta", "message_stop"]
    elif client == RESPONSES:
        assert received.kinds.count("completed") == 1
        assert received.kinds[-1] == "completed"
    else:
        assert received.finish == "stop"


@each("client", OTHERS)
def test_A18_a_change_of_field_starts_a_new_block(client: str) -> None:
    """Only the field that is not null distinguishes reasoning from text."""
    data = chat(
        {"content": None, "reasoning_content": "Hm"},
        {"content": None, "reasoning_content": "m."},
        {"content": "Yes", "reasoning_content": None},
        {"content": ".", "reasoning_content": None},
        {"content": None, "reasoning_content": "Or?"},
        {"content": "No.", "reasoning_content": None},
        finish="stop",
    )
    received = receive(CHAT, client, data)
    assert received.gist == [("reasoning", "Hmm."), ("text", "Yes."), ("reasoning", "Or?"), ("text", "No.")]
    starts = received.of("content_block_start", "output_item.added")
    stops = received.of("content_block_stop", "output_item.done")
    assert (len(starts), len(stops)) == (4, 4)


# What an upstream may send after its end event: more text, another call, another end.
LATE: dict[str, list[s.Payload]] = {
    CHAT: [s.chunk({"content": "late"}), s.chunk(s.call(0, "call_z", "late", "{}")), s.chunk({}, "length"), "[DONE]"],
    MESSAGES: [
        s.delta(0, "text_delta", text="late"),
        s.start(1, type="tool_use", id="call_z", name="late", input={}),
        s.delta(1, "input_json_delta", partial_json="{}"),
        s.stop(1),
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 99}},
        {"type": "message_stop"},
    ],
    RESPONSES: [
        s.at("output_text.delta", 0, "msg_0", content_index=0, delta="late", logprobs=[]),
        s.item("added", 1, type="function_call", id="fc_z", call_id="call_z", name="late", arguments=""),
        {"type": "response.incomplete", "response": s.response("incomplete")},
    ],
}  # fmt: skip


@pairs(CLIENTS)
def test_A19_nothing_is_sent_after_the_end(client: str, upstream: str) -> None:
    """Clients still read events after the end event, and they change the calls."""
    good = stream(upstream, Text("Hi"))
    received = receive(upstream, client, good + s.render(upstream, LATE[upstream]))
    assert received.data == receive(upstream, client, good).data
    assert received.machine.outcome is Outcome.COMPLETED


@pairs()
@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_A20_open_blocks_are_closed_before_the_end(client: str, upstream: str, kind: str) -> None:
    """The upstream ends by its limit in the middle of a block."""
    block = Text("Half a") if kind == "text" else Reasoning("Half a", signature="")
    whole = stream(upstream, block, stop="length")
    marks = (b"content_block_stop", b"_text.done", b"_part.done", b"output_item.done")
    data = b"".join(frame for frame in frames(whole) if not any(mark in frame for mark in marks))
    received = receive(upstream, client, data)
    assert received.gist == [(kind, "Half a")]
    assert received.finish == CUT[client]
    if client == MESSAGES:
        assert received.kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    elif client == RESPONSES:
        assert received.kinds[-2:] == ["output_item.done", "incomplete"]
    assert json.dumps(received.turn)
