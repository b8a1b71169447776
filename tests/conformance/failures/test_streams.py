"""A, D. Blocks, ends and usage of streams: tool calls that were lost, glued or cut, and tokens counted twice or not.

A row of a table is one stream of an upstream, and what each client receives for it, in chunks of any size.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Block, Call, Cost, Reasoning, Text, frames, payloads, stream
from failures.rules import refused
from failures.translate import Received, each, pairs, receive, receive_whole, translate_request
from failures.turns import Model, Result, User, all_blocks, calls_of, request
from failures.whole import whole
from oracle import CHAT, CLIENTS, MESSAGES, PROTOCOL_NAMES, RESPONSES, meaning_of_whole
from oracle import samples as s

from dragoman import Outcome

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
Gist = list[tuple[str, str]]
OTHERS = (MESSAGES, RESPONSES)

# A prompt of 1000 tokens, of which 600 came from a cache and 100 were written to one.
CACHED = Cost(prompt=1000, completion=50, cached=600, written=100, reasoning=20)
# The stop reasons in each client's protocol.
ENDS = {
    "end": {CHAT: "stop", MESSAGES: "end_turn", RESPONSES: "completed"},
    "tool": {CHAT: "tool_calls", MESSAGES: "tool_use", RESPONSES: "completed"},
    "length": {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"},
    "filter": {CHAT: "content_filter", MESSAGES: "refusal", RESPONSES: "content_filter"},
}


def for_client(client: str, gist: Gist) -> Gist:
    """Chat has one string of reasoning, in which a blank line separates two."""
    first = next((number for number, (kind, _) in enumerate(gist) if kind == "reasoning"), 0)
    return [
        (kind, f"\n\n{text}" if (client, kind) == (CHAT, "reasoning") and number > first else text)
        for number, (kind, text) in enumerate(gist)
    ]


def check(received: Received, gist: Gist, end: str, cost: Cost | None = CACHED) -> None:
    """The client has these blocks, each begun and ended once, then this end, and this usage."""
    client = received.client
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.gist == for_client(client, gist)
    assert received.finish == ENDS[end][client]
    numbers = list(range(len(gist)))
    if client == CHAT:
        deltas = [choice["delta"] for event in received.events for choice in event["choices"]]
        begun = [part["index"] for delta in deltas for part in delta.get("tool_calls", []) if "id" in part]
        assert begun == list(range(len([kind for kind, _ in gist if kind == "call"])))
    else:
        key, word = ("index", "content_block") if client == MESSAGES else ("output_index", "output_item")
        assert [event[key] for event in received.of(f"{word}_start", f"{word}.added")] == numbers
        assert [event[key] for event in received.of(f"{word}_stop", f"{word}.done")] == numbers
    if client == MESSAGES:
        assert received.kinds[-2:] == ["message_delta", "message_stop"]
    if cost is not None:
        check_usage(client, received.usage, cost)
        counted = received.machine.usage
        assert (counted.input, counted.cached, counted.output) == (cost.prompt, cost.cached, cost.completion)


def check_usage(client: str, usage: Json, cost: Cost) -> None:
    """The figures in the client's own fields, each counted once: `input_tokens` of Messages excludes cached tokens."""
    expected = {CHAT: cost.chat, MESSAGES: cost.messages, RESPONSES: cost.responses}[client]
    for name, figure in expected.items():
        if isinstance(figure, dict) and client != MESSAGES:
            assert {key: usage.get(name, {}).get(key, 0) for key in figure} == figure
        elif not isinstance(figure, dict):
            assert usage[name] == figure, name


# --- content of every upstream, and for every client --------------------------------------------------------------

ARGUMENTS = '{"z": 1.10,  "a":12345678901234567890123, "\\u00e9":"\\/\\u2028", "b":1E2,"list":[ ]}'
CALL, NOW = ("call", 'add({"a": 1})'), ("call", "now({})")
BEFORE, AFTER, THOUGHT = ("text", "Before."), ("text", "After."), ("reasoning", "Hm.")
# The upstream's blocks and its stop reason -> the client's blocks and its stop reason.
BLOCKS: dict[str, tuple[list[Block], str, Gist, str]] = {
    "A4 no fragment of arguments": ([Call("call_a", "now", ())], "tool", [NOW], "tool"),
    "A4 an empty fragment": ([Call("call_a", "now", ("",))], "tool", [NOW], "tool"),
    "A4 two empty fragments": ([Call("call_a", "now", ("", ""))], "tool", [NOW], "tool"),
    "A4 an empty object": ([Call("call_a", "now", ("{}",))], "tool", [NOW], "tool"),
    "A7 an empty fragment first": ([Call("call_a", "add", ("", '{"a": 1}'))], "tool", [CALL], "tool"),
    "A7 an empty fragment between": ([Call("call_a", "add", ('{"a": ', "", "1}"))], "tool", [CALL], "tool"),
    "A7 an empty fragment last": ([Call("call_a", "add", ('{"a": 1}', ""))], "tool", [CALL], "tool"),
    "A8 a call, and the reason of a text": ([Call("call_a")], "end", [CALL], "tool"),
    "A8 text, a call, and the reason of a text": ([Text("Before."), Call("call_a")], "end", [BEFORE, CALL], "tool"),
    "A2 parallel calls behind text": (
        [Reasoning("Hm."), Text("Before."), Call("call_a"), Call("call_b", "now", ("{}",)), Call("call_c")], "tool",
        [THOUGHT, BEFORE, CALL, NOW, CALL], "tool"),
    "A11 B13 text after a call": (
        [Text("Before."), Call("call_a"), Text("After.")], "tool", [BEFORE, CALL, AFTER], "tool"),
    "A16 reasoning after a call": (
        [Reasoning("Hm."), Call("call_a"), Reasoning("Ah."), Call("call_b", "now", ("{}",))], "tool",
        [THOUGHT, CALL, ("reasoning", "Ah."), NOW], "tool"),
    "C6 reasoning, text and a call": (
        [Reasoning("Hm."), Text("Before."), Call("call_a")], "tool", [THOUGHT, BEFORE, CALL], "tool"),
    "C15 tags in reasoning and text": (
        [Reasoning("a</think>b"), Text("<think>c</think>d")], "end",
        [("reasoning", "a</think>b"), ("text", "<think>c</think>d")], "end"),
    "D8 text that the limit cut": ([Text("Before.")], "length", [BEFORE], "length"),
    "D8 text that the filter cut": ([Text("Before.")], "filter", [BEFORE], "filter"),
    "D8 E10 reasoning that uses up the limit": ([Reasoning("Hm.")], "length", [THOUGHT], "length"),
    "D8 reasoning that the filter cut": ([Reasoning("Hm.")], "filter", [THOUGHT], "filter"),
    "D8 nothing before the limit": ([], "length", [], "length"),
    "D8 nothing before the filter": ([], "filter", [], "filter"),
    "D8 text after reasoning that the limit cut": (
        [Reasoning("Hm."), Text("Before.")], "length", [THOUGHT, BEFORE], "length"),
    "G8 arguments in an odd spelling": (
        [Call("call_a", "add", (ARGUMENTS,))], "tool", [("call", f"add({ARGUMENTS})")], "tool"),
    "G8 such arguments, character by character": (
        [Call("call_a", "add", tuple(ARGUMENTS))], "tool", [("call", f"add({ARGUMENTS})")], "tool"),
}  # fmt: skip


@pytest.mark.parametrize("row", BLOCKS)
def test_streams_and_whole_responses_keep_their_blocks_end_and_usage(
    row: str, subtests: pytest.Subtests
) -> None:
    """A reader and a writer only share events, so that three pairs have all of both."""
    blocks, stop, gist, end = BLOCKS[row]
    for upstream, client in ((CHAT, MESSAGES), (MESSAGES, RESPONSES), (RESPONSES, CHAT)):
        data = stream(upstream, *blocks, stop=stop, cost=CACHED)
        with subtests.test(client=client, upstream=upstream):
            check(receive(upstream, client, data), gist, end)
            for document in (
                receive_whole(upstream, client, data, streams=True),
                receive_whole(upstream, client, whole(upstream, *blocks, stop=stop, cost=CACHED)),
            ):
                found = meaning_of_whole(client, json.dumps(document).encode())
                assert all(call.text for call in found.calls), "no arguments are an empty object"
                assert end_of(client, document) == ENDS[end][client]
                check_usage(client, document["usage"], CACHED)


def end_of(client: str, document: Json) -> Any:
    """The stop reason of a whole response."""
    if client == CHAT:
        return document["choices"][0]["finish_reason"]
    if client == MESSAGES:
        return document["stop_reason"]
    return (document["incomplete_details"] or {"reason": document["status"]})["reason"]


# --- streams as servers of the Chat protocol send them ------------------------------------------------------------

HI = s.chunk({"role": "assistant", "content": "Hi"})
STOP = s.chunk({}, "stop")
USED: Json = {**s.chunk(), "usage": CACHED.chat}
FIRST, SECOND = s.call(0, "call_a", "add", '{"a": 1}'), s.call(1, "call_b", "now", "{}")
TWO = [CALL, NOW]


def calls(*deltas: Json) -> list[s.Payload]:
    return [
        s.chunk({"role": "assistant", "content": ""}),
        *map(s.chunk, deltas),
        s.chunk({}, "tool_calls"),
        USED,
    ]


def fragment(**fields: Any) -> Json:
    """The only fragment of a delta without its index and type."""
    (found,) = s.call(0, **fields)["tool_calls"]
    return {"tool_calls": [{key: value for key, value in found.items() if key not in ("index", "type")}]}


def with_usage(**figures: Any) -> list[s.Payload]:
    return [HI, STOP, {**s.chunk(), "usage": {"prompt_tokens": 1000, "completion_tokens": 50, **figures}}]


A = fragment(call_id="call_a", name="add", arguments='{"a": 1}')
B = fragment(call_id="call_b", name="now", arguments="{}")
TEXT: Gist = [("text", "Hi")]
IN_SPLIT_TEXT = [*(s.call(0, arguments=part) for part in ('{"a"', ": ", "1", "}"))]
# The chunks before `[DONE]`, which may be missing -> the blocks, the end and the usage.
CHUNKS: dict[str, tuple[list[s.Payload], Gist, str, Cost | None]] = {
    "A1 interleaved fragments of two calls": (
        calls(s.call(0, "call_a", "add"), s.call(1, "call_b", "now"), s.call(0, arguments='{"a": '),
              s.call(1, arguments="{"), s.call(0, arguments="1}"), s.call(1, arguments="}")), TWO, "tool", CACHED),
    "A3 two calls, a chunk each": (calls(FIRST, SECOND), TWO, "tool", CACHED),
    "A9 an empty reason in every chunk": (
        [s.chunk({"role": "assistant", "content": ""}, ""), s.chunk({"content": "Hi"}, ""), s.chunk(FIRST, ""),
         s.chunk({}, "tool_calls"), USED], [*TEXT, CALL], "tool", CACHED),
    "A9 the last real reason counts": (
        [s.chunk({"content": "H"}, "stop"), s.chunk({"content": "i"}, ""), s.chunk({}, "length"), USED],
        TEXT, "length", CACHED),
    "A10 empty text around and beside a call": (
        calls({"content": ""}, {"content": "", **FIRST}, {"content": ""}), [CALL], "tool", CACHED),
    "A10 null around and beside a call": (
        calls({"content": None}, {"content": None, **FIRST}, {"content": None}), [CALL], "tool", CACHED),
    "A13 a new id under the same index": (
        calls(FIRST, s.call(0, "call_b", "now", "{}")), TWO, "tool", CACHED),
    "A13 a new id under the same index, in fragments": (
        calls(s.call(0, "call_a", "add"), *IN_SPLIT_TEXT, s.call(0, "call_b", "add"), *IN_SPLIT_TEXT),
        [CALL, CALL], "tool", CACHED),
    "A3 A14 calls without an index, a chunk each": (calls(A, B), TWO, "tool", CACHED),
    "A14 calls without an index in one chunk": (
        calls({"tool_calls": A["tool_calls"] + B["tool_calls"]}), TWO, "tool", CACHED),
    "A15 usage with the reason": ([HI, {**STOP, "usage": CACHED.chat}], TEXT, "end", CACHED),
    "A15 A17 D5 usage behind the reason": ([HI, STOP, USED], TEXT, "end", CACHED),
    "A15 usage at both places": ([HI, {**STOP, "usage": CACHED.chat}, USED], TEXT, "end", CACHED),
    "A17 no usage": ([HI, STOP], TEXT, "end", None),
    "A17 all in one chunk": ([{**s.chunk({"content": "Hi"}, "stop"), "usage": CACHED.chat}], TEXT, "end", CACHED),
    "A17 usage first": ([{**HI, "usage": CACHED.chat}, STOP], TEXT, "end", CACHED),
    "A18 reasoning and text in turns, the other field null": (
        [*(s.chunk({"content": None, "reasoning_content": text}) for text in ("Hm", "m.")),
         *(s.chunk({"content": text, "reasoning_content": None}) for text in ("H", "i")),
         s.chunk({"content": None, "reasoning_content": "Or?"}), s.chunk({"content": "No."}), STOP, USED],
        [("reasoning", "Hmm."), *TEXT, ("reasoning", "Or?"), ("text", "No.")], "end", CACHED),
    "D1 the cache's tokens as DeepSeek names them": (
        with_usage(prompt_cache_hit_tokens=600, prompt_cache_miss_tokens=400), TEXT, "end", Cost(1000, 50, 600)),
    "D1 the cache's tokens as Moonshot names them": (
        with_usage(cached_tokens=600), TEXT, "end", Cost(1000, 50, 600)),
    "D1 the cache's tokens as OpenAI names them": (
        with_usage(prompt_tokens_details={"cached_tokens": 600}), TEXT, "end", Cost(1000, 50, 600)),
    "D5 usage before the reason": ([HI, USED, STOP], TEXT, "end", CACHED),
    "D5 a first chunk without choices": (
        [{**s.chunk(), "prompt_filter_results": []}, HI, STOP, USED], TEXT, "end", CACHED),
    "D5 usage twice": ([HI, STOP, USED, USED], TEXT, "end", CACHED),
    "D5 usage beside a null": ([HI, STOP, {**USED, "choices": None}], TEXT, "end", CACHED),
    "D5 usage without choices": (
        [HI, STOP, {key: USED[key] for key in USED if key != "choices"}], TEXT, "end", CACHED),
    "D6 usage without a reason": ([HI, USED], TEXT, "end", CACHED),
    "D6 usage without a reason after a call": ([s.chunk(FIRST), USED], [CALL], "tool", CACHED),
}  # fmt: skip


@pytest.mark.parametrize("row", CHUNKS)
def test_streams_of_chat_servers_give_every_client_the_same(row: str, subtests: pytest.Subtests) -> None:
    chunks, gist, end, cost = CHUNKS[row]
    for client, marks in ((CHAT, ["[DONE]"]), (MESSAGES, ["[DONE]"]), (RESPONSES, [])):
        with subtests.test(client=client):
            received = receive(CHAT, client, s.render(CHAT, [*chunks, *marks]), translates=True)
            check(received, gist, end, cost)
            ids = ["call_a", "call_b"][: len(received.meaning.calls)]
            assert [call.id for call in received.meaning.calls] == ids


def test_A17_an_end_mark_without_a_reason_is_an_end() -> None:
    for client in PROTOCOL_NAMES:
        check(receive(CHAT, client, s.render(CHAT, [HI, "[DONE]"]), translates=True), TEXT, "end", None)


def test_A13_a_relay_keeps_the_upstreams_bytes() -> None:
    data = s.render(CHAT, [*calls(FIRST, s.call(0, "call_b", "now", "{}")), "[DONE]"])
    assert receive(CHAT, CHAT, data).data == data


# --- calls --------------------------------------------------------------------------------------------------------


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


def test_A6_tool_use_always_has_its_input(subtests: pytest.Subtests) -> None:
    """A call without arguments keeps its `input`, in requests and in responses."""
    call = Call("call_a", "now", ("{}",))
    for other in PROTOCOL_NAMES:
        with subtests.test(other=other):
            body = request(other, User("Hi"), Model((call,)), Result("call_a"))
            sent = translate_request(other, MESSAGES, body).body
            assert [block["input"] for block in all_blocks(sent) if block["type"] == "tool_use"] == [{}]
            received = receive(other, MESSAGES, stream(other, call), translates=True)
            assert [event["content_block"]["input"] for event in received.of("content_block_start")] == [{}]


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_A12_a_cut_call_is_not_sent_as_complete(client: str) -> None:
    for upstream in PROTOCOL_NAMES:
        half = Call("call_a", "add", ('{"a"', ": "), whole=False)
        received = receive(
            upstream, client, stream(upstream, half, stop="length", cost=CACHED), translates=True
        )
        assert (received.finish, received.gist) == (ENDS["length"][client], [("call", 'add({"a": )')])
        check_usage(client, received.usage, CACHED)
        if client == RESPONSES:
            assert not received.of("function_call_arguments.done", "output_item.done", "completed")
            ((final,),) = [event["response"]["output"] for event in received.of("incomplete")]
            assert (final["status"], final["arguments"]) == ("incomplete", '{"a": ')


@pairs()
def test_B16_two_calls_of_one_response_get_distinct_ids(client: str, upstream: str) -> None:
    data = stream(upstream, Call("call_0", "add"), Call("call_0", "now", ("{}",)))
    assert data.count(b'"call_0"') >= 2
    first, second = receive(upstream, client, data).meaning.calls
    assert [(call.name, call.text) for call in (first, second)] == [("add", '{"a": 1}'), ("now", "{}")]
    assert first.id == "call_0"
    assert second.id not in ("", "call_0")


# --- the end ------------------------------------------------------------------------------------------------------

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
    parts = frames(stream(upstream, block, stop="length"))
    marks = (b"content_block_stop", b"_text.done", b"_part.done", b"output_item.done")
    data = b"".join(frame for frame in parts if not any(mark in frame for mark in marks))
    check(receive(upstream, client, data), [(kind, "Half a")], "length", None)


# --- usage --------------------------------------------------------------------------------------------------------


@each("upstream")
def test_A15_a_chat_client_gets_usage_in_its_own_last_chunk(upstream: str) -> None:
    received = receive(upstream, CHAT, stream(upstream, Text("Hi"), cost=CACHED), translates=True)
    last = received.events[-1]
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 1050)
    assert all(event.get("usage") is None for event in received.events[:-1])
    assert received.data.endswith(b"data: [DONE]\n\n")


@pairs((MESSAGES,), (CHAT, RESPONSES))
def test_D1_more_cached_than_input_tokens_give_no_negative_count(client: str, upstream: str) -> None:
    """Servers that count the cache beside the prompt."""
    received = receive(upstream, client, stream(upstream, Text("Hi"), cost=Cost(prompt=10, cached=50)))
    assert (received.usage["input_tokens"], received.usage["cache_read_input_tokens"]) == (0, 10)


def figures(at_start: Json, at_end: Json) -> bytes:
    """A Messages answer with these usage objects at its start and its end."""
    return s.render(
        MESSAGES,
        [
            {"type": "message_start", "message": s.message(usage=at_start)},
            s.start(0, type="text", text=""),
            s.delta(0, "text_delta", text="Hi"),
            s.stop(0),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": at_end},
            {"type": "message_stop"},
        ],
    )


ALL: Json = {
    "input_tokens": 300,
    "cache_read_input_tokens": 600,
    "cache_creation_input_tokens": 100,
    "output_tokens": 1,
}
END: Json = {**ALL, "output_tokens": 50}
EARLY = s.render(MESSAGES, [{"type": "message_delta", "delta": {}, "usage": {**ALL, "output_tokens": 20}}])
START, *REST = frames(figures(ALL, {"output_tokens": 50}))
# All of these streams have the same right result: cumulative figures, of which the last ones count as one set.
CUMULATIVE: dict[str, bytes] = {
    "D2 only output at the end": figures(ALL, {"output_tokens": 50}),
    "D2 all again": figures(ALL, END),
    "D2 nulls at the end": figures(ALL, {**dict.fromkeys(ALL), "output_tokens": 50}),
    "D2 some again": figures(ALL, {"input_tokens": 300, "output_tokens": 50}),
    "D2 zeros first": figures(dict.fromkeys(ALL, 0), END),
    "D2 nothing first": figures({}, END),
    "D2 reports in the middle, and the start twice": b"".join([START, START, EARLY, *REST[:2], EARLY, *REST[2:]]),
    "D3 the whole prompt first, the cache's share of it last": figures({"input_tokens": 1000, "output_tokens": 0}, END),
}  # fmt: skip


@pytest.mark.parametrize("row", CUMULATIVE)
def test_later_figures_of_messages_replace_earlier_ones(row: str) -> None:
    """Nothing is added up, and the larger of two would be more than there was."""
    data, cost = CUMULATIVE[row], Cost(1000, 50, 600, 100)
    for client in PROTOCOL_NAMES:
        check(receive(MESSAGES, client, data, translates=True), TEXT, "end", cost)
    relayed = receive(MESSAGES, MESSAGES, data)
    usage = relayed.machine.usage
    assert relayed.data == data
    assert (usage.input, usage.cached, usage.cache_write, usage.output) == (1000, 600, 100, 50)


@pairs((MESSAGES,), (CHAT, RESPONSES))
def test_D4_the_start_has_an_estimate_and_the_end_the_reported_usage(client: str, upstream: str) -> None:
    """A display of the context size has an estimate at once, and the reported usage at the end."""
    estimates = []
    for text in ("Hi", "word " * 2000):
        body = request(client, User(text), stream=True)
        received = receive(upstream, client, stream(upstream, Text("Hi"), cost=CACHED), body)
        (start,) = received.of("message_start")
        estimates.append(start["message"]["usage"]["input_tokens"])
        check_usage(client, received.usage, CACHED)
    assert 0 < estimates[0] < 1000
    assert 1000 < estimates[1] < 5000, "2000 words are some 2000 tokens"


@pairs((MESSAGES,), (CHAT, RESPONSES))
def test_D4_missing_usage_is_estimated(client: str, upstream: str) -> None:
    """Missing usage is not zero usage."""
    reported = payloads(upstream, Text("Hi there, and more."))
    if upstream == CHAT:
        reported = [payload for payload in reported if "usage" not in payload]
    else:
        assert isinstance(reported[-1], dict)
        del reported[-1]["response"]["usage"]
    received = receive(upstream, client, s.render(upstream, reported))
    assert received.usage["input_tokens"] > 0
    assert received.usage["output_tokens"] > 0
    assert [loss.code.value for loss in received.machine.losses] == ["estimated"]


@each("client", OTHERS)
def test_D7_usage_is_always_requested(client: str) -> None:
    """ "If set, an additional chunk will be streamed": only then. Without a stream the setting is refused."""
    streams = translate_request(client, CHAT, request(client, User("Hi"), stream=True)).body
    assert streams["stream_options"] == {"include_usage": True}
    assert "stream_options" not in translate_request(client, CHAT, request(client, User("Hi"))).body


@each("upstream", OTHERS)
def test_D7_a_chat_client_that_did_not_request_usage_gets_no_usage_chunk(upstream: str) -> None:
    """The gateway's own record of the response has the usage nevertheless."""
    received = receive(upstream, CHAT, stream(upstream, Text("Hi"), cost=CACHED), include_usage=False)
    assert received.usage == {}
    assert all(event["choices"] for event in received.events)
    assert received.machine.usage.input == 1000
