"""D. Usage and cost figures: counted twice, lost, at zero, or in a chunk that breaks the reader."""

from __future__ import annotations

from typing import Any

import pytest
from failures.responses import Block, Call, Cost, Reasoning, Text, payloads, stream
from failures.translate import Received, each, pairs, receive, receive_whole, translate_request
from failures.turns import User, request
from failures.whole import whole
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s
from oracle.meaning import Usage

from dragoman import Outcome

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)

# A prompt of 1000 tokens, of which 600 came from a cache and 100 were written to one.
CACHED = Cost(prompt=1000, completion=50, cached=600, written=100, reasoning=20)


def check_cached(client: str, usage: Json) -> None:
    """The counts of CACHED in the client's own fields, each counted once."""
    if client == MESSAGES:
        assert usage["input_tokens"] == 300
        assert usage["cache_read_input_tokens"] == 600
        assert usage["cache_creation_input_tokens"] == 100
        assert usage["output_tokens"] == 50
        return
    before, after = ("prompt", "completion") if client == CHAT else ("input", "output")
    assert usage[f"{before}_tokens"] == 1000
    assert usage[f"{before}_tokens_details"]["cached_tokens"] == 600
    assert usage[f"{before}_tokens_details"]["cache_write_tokens"] == 100
    assert usage[f"{after}_tokens"] == 50
    assert usage[f"{after}_tokens_details"]["reasoning_tokens"] == 20
    assert usage["total_tokens"] == 1050


@pairs()
def test_D1_cached_tokens_are_counted_once(client: str, upstream: str) -> None:
    """`input_tokens` of Messages excludes cached tokens; the other protocols include them."""
    received = receive(upstream, client, stream(upstream, Text("Hi"), cost=CACHED))
    check_cached(client, received.usage)
    assert received.machine.usage.input == 1000


@pairs()
def test_D1_cached_tokens_of_whole_responses_are_counted_once(client: str, upstream: str) -> None:
    check_cached(client, receive_whole(upstream, client, whole(upstream, Text("Hi"), cost=CACHED))["usage"])


@pairs((MESSAGES,), (CHAT, RESPONSES))
def test_D1_more_cached_than_input_tokens_give_no_negative_count(client: str, upstream: str) -> None:
    """Servers that count the cache beside the prompt."""
    received = receive(upstream, client, stream(upstream, Text("Hi"), cost=Cost(prompt=10, cached=50)))
    assert (received.usage["input_tokens"], received.usage["cache_read_input_tokens"]) == (0, 10)


@each("client", OTHERS)
@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_cache_hit_tokens": 600, "prompt_cache_miss_tokens": 400},
        {"cached_tokens": 600},
        {"prompt_tokens_details": {"cached_tokens": 600}},
    ],
    ids=["deepseek", "moonshot", "openai"],
)
def test_D1_cached_tokens_under_every_upstreams_field_name(client: str, fields: Json) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050, **fields}
    chunks = [s.chunk({"content": "Hi"}), s.chunk({}, "stop"), {**s.chunk(), "usage": usage}, "[DONE]"]
    received = receive(CHAT, client, s.render(CHAT, chunks))
    if client == MESSAGES:
        assert (received.usage["input_tokens"], received.usage["cache_read_input_tokens"]) == (400, 600)
    else:
        assert received.usage["input_tokens"] == 1000
        assert received.usage["input_tokens_details"]["cached_tokens"] == 600


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
# Usage at the start and at the end; the right result is always CACHED.
CUMULATIVE: dict[str, tuple[Json, Json]] = {
    "only output": (ALL, {"output_tokens": 50}),
    "all again": (ALL, {**ALL, "output_tokens": 50}),
    "nulls": (ALL, {**dict.fromkeys(ALL), "output_tokens": 50}),
    "some again": (ALL, {"input_tokens": 300, "output_tokens": 50}),
    "zeros first": ({**dict.fromkeys(ALL, 0)}, {**ALL, "output_tokens": 50}),
    "nothing first": ({}, {**ALL, "output_tokens": 50}),
}


def totals(received: Received) -> Usage:
    (found,) = received.meaning.usages
    return found


def check_totals(received: Received) -> None:
    reported = totals(received)
    assert (reported.input, reported.cached, reported.cache_write, reported.output) == (1000, 600, 100, 50)
    usage = received.machine.usage
    assert (usage.input, usage.cached, usage.cache_write, usage.output) == (1000, 600, 100, 50)


@each("client")
@pytest.mark.parametrize("case", CUMULATIVE)
def test_D2_later_figures_replace_earlier_ones(client: str, case: str) -> None:
    """They are cumulative, and each field that is there replaces the one before: nothing is added up."""
    check_totals(receive(MESSAGES, client, figures(*CUMULATIVE[case]), translates=True))


@pytest.mark.parametrize("case", CUMULATIVE)
def test_D2_a_relay_counts_the_same(case: str) -> None:
    """The client gets the upstream's own bytes, and the gateway's own count is right."""
    data = figures(*CUMULATIVE[case])
    received = receive(MESSAGES, MESSAGES, data)
    assert received.data == data
    usage = received.machine.usage
    assert (usage.input, usage.cached, usage.cache_write, usage.output) == (1000, 600, 100, 50)


@each("client")
def test_D2_several_usage_reports_in_the_middle(client: str) -> None:
    """Some servers report with every event, or repeat message_delta."""
    first, *others = [frame + b"\n\n" for frame in figures(ALL, {"output_tokens": 50}).split(b"\n\n")[:-1]]
    early = {"type": "message_delta", "delta": {}, "usage": {**ALL, "output_tokens": 20}}
    report = s.render(MESSAGES, [early])
    data = b"".join([first, first, report, *others[:2], report, *others[2:]])
    check_totals(receive(MESSAGES, client, data, translates=True))


# The whole prompt at the start, without the cache; the split at the end.
LATE_SPLIT = ({"input_tokens": 1000, "output_tokens": 0}, {**ALL, "output_tokens": 50})


@each("client")
def test_D3_the_last_figures_replace_the_whole_set(client: str) -> None:
    """The last figures are one set: the larger of each would be more than there was."""
    received = receive(MESSAGES, client, figures(*LATE_SPLIT), translates=True)
    check_totals(received)
    check_cached_but_reasoning(client, received.usage)


def check_cached_but_reasoning(client: str, usage: Json) -> None:
    if client == MESSAGES:
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (300, 600)
    else:
        name = "prompt_tokens" if client == CHAT else "input_tokens"
        assert (usage[name], usage["total_tokens"]) == (1000, 1050)


def test_D3_a_relay_counts_the_last_figures() -> None:
    received = receive(MESSAGES, MESSAGES, figures(*LATE_SPLIT))
    assert (received.machine.usage.input, received.machine.usage.cached) == (1000, 600)


@pairs((MESSAGES,), (CHAT, RESPONSES))
def test_D4_the_start_has_an_estimate_and_the_end_the_reported_usage(client: str, upstream: str) -> None:
    """A display of the context size has an estimate at once, and the reported usage at the end."""
    estimates = []
    for text in ("Hi", "word " * 2000):
        body = request(client, User(text), stream=True)
        received = receive(upstream, client, stream(upstream, Text("Hi"), cost=CACHED), body)
        (start,) = received.of("message_start")
        estimates.append(start["message"]["usage"]["input_tokens"])
        check_cached(client, received.usage)
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


USAGE_CHUNK: Json = {**s.chunk(), "usage": CACHED.chat}
# Chunks without choices, at every place where servers put them.
NO_CHOICES: dict[str, list[s.Payload]] = {
    "last": [s.chunk({"content": "Hi"}), s.chunk({}, "stop"), USAGE_CHUNK, "[DONE]"],
    "last, no end mark": [s.chunk({"content": "Hi"}), s.chunk({}, "stop"), USAGE_CHUNK],
    "before the finish": [s.chunk({"content": "Hi"}), USAGE_CHUNK, s.chunk({}, "stop"), "[DONE]"],
    "first": [
        {**s.chunk(), "prompt_filter_results": []},
        s.chunk({"content": "Hi"}),
        s.chunk({}, "stop"),
        USAGE_CHUNK,
        "[DONE]",
    ],
    "twice": [s.chunk({"content": "Hi"}), s.chunk({}, "stop"), USAGE_CHUNK, USAGE_CHUNK, "[DONE]"],
    "null": [s.chunk({"content": "Hi"}), s.chunk({}, "stop"), {**USAGE_CHUNK, "choices": None}, "[DONE]"],
    "absent": [
        s.chunk({"content": "Hi"}),
        s.chunk({}, "stop"),
        {key: value for key, value in USAGE_CHUNK.items() if key != "choices"},
        "[DONE]",
    ],
}


@each("client")
@pytest.mark.parametrize("place", NO_CHOICES)
def test_D5_a_chunk_without_choices_does_not_end_the_stream(client: str, place: str) -> None:
    received = receive(CHAT, client, s.render(CHAT, NO_CHOICES[place]), translates=True)
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.gist == [("text", "Hi")]
    check_cached(client, received.usage)
    if client == MESSAGES:
        assert received.kinds[-2:] == ["message_delta", "message_stop"]


@each("client")
@pytest.mark.parametrize("done", [True, False], ids=["end-mark", "no-end-mark"])
@pytest.mark.parametrize("calls", [True, False], ids=["calls", "text"])
def test_D6_usage_without_a_finish_reason_is_an_end(client: str, done: bool, calls: bool) -> None:
    """Open blocks are closed, and the response ends once; with calls it stops for them."""
    content = s.call(0, "call_a", "add", '{"a":1}') if calls else {"content": "Hi"}
    chunks = [s.chunk({"role": "assistant", "content": ""}), s.chunk(content), USAGE_CHUNK]
    received = receive(
        CHAT, client, s.render(CHAT, [*chunks, *(["[DONE]"] if done else [])]), translates=True
    )
    assert received.machine.outcome is Outcome.COMPLETED
    ends = {
        CHAT: ("tool_calls", "stop"),
        MESSAGES: ("tool_use", "end_turn"),
        RESPONSES: ("completed", "completed"),
    }
    assert received.finish == ends[client][0 if calls else 1]
    assert received.gist == [("call", 'add({"a":1})') if calls else ("text", "Hi")]
    check_cached(client, received.usage)
    if client == MESSAGES:
        assert received.kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    elif client == RESPONSES:
        assert received.kinds[-2:] == ["output_item.done", "completed"]


@each("client", OTHERS)
def test_D7_usage_is_always_requested(client: str) -> None:
    """ "If set, an additional chunk will be streamed": only then. Without a stream the setting is refused."""
    streams = translate_request(client, CHAT, request(client, User("Hi"), stream=True)).body
    assert streams["stream_options"] == {"include_usage": True}
    whole_one = translate_request(client, CHAT, request(client, User("Hi"))).body
    assert "stream_options" not in whole_one


@each("upstream", OTHERS)
def test_D7_a_chat_client_that_did_not_request_usage_gets_no_usage_chunk(upstream: str) -> None:
    """The gateway's own record of the response has the usage nevertheless."""
    data = stream(upstream, Text("Hi"), cost=CACHED)
    received = receive(upstream, CHAT, data, include_usage=False)
    assert received.usage == {}
    assert all(event["choices"] for event in received.events)
    assert received.machine.usage.input == 1000
    check_cached(CHAT, receive(upstream, CHAT, data).usage)


STOP_VALUES = {
    "length": {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"},
    "filter": {CHAT: "content_filter", MESSAGES: "refusal", RESPONSES: "content_filter"},
}
CUT: dict[str, tuple[Block, ...]] = {
    "text": (Text("Half a"),),
    "reasoning": (Reasoning("Hm."),),
    "nothing": (),
    "text and reasoning": (Reasoning("Hm."), Text("Half a")),
}


def word_of(client: str, document: Json) -> Any:
    """Return the stop reason of a whole response."""
    if client == CHAT:
        return document["choices"][0]["finish_reason"]
    return document["stop_reason"] if client == MESSAGES else document["incomplete_details"]["reason"]


@pairs()
@pytest.mark.parametrize("stop", STOP_VALUES)
@pytest.mark.parametrize("content", CUT)
def test_D8_an_incomplete_response_has_its_reason_and_usage(
    client: str, upstream: str, stop: str, content: str
) -> None:
    """A response that was cut is a response: with its reason, with its figures, and no error."""
    received = receive(upstream, client, stream(upstream, *CUT[content], stop=stop, cost=CACHED))
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.finish == STOP_VALUES[stop][client]
    check_cached(client, received.usage)
    document = receive_whole(upstream, client, whole(upstream, *CUT[content], stop=stop, cost=CACHED))
    assert word_of(client, document) == STOP_VALUES[stop][client]
    check_cached(client, document["usage"])


@pairs()
def test_D8_a_response_cut_inside_a_call_has_its_reason_and_usage(client: str, upstream: str) -> None:
    half = Call("call_a", fragments=('{"a"',), whole=False)
    received = receive(upstream, client, stream(upstream, half, stop="length", cost=CACHED))
    assert received.finish == STOP_VALUES["length"][client]
    check_cached(client, received.usage)
