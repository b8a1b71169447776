"""Nothing that breaks real clients is in what they get, whatever the upstream.

For each client's own request, each upstream sends reasoning, text and calls, and the oracle checks the client's stream.
A client breaks when it gives up, retries without end, or hangs. All that was seen to break one, by running the clients
against a provider that sent such streams, is a change of a good stream here, which the oracle must notice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from agents.received import problems_of, received_by
from agents.requests import CASES, Case
from failures.responses import Call, Reasoning, Text, frames, stream
from failures.translate import Received, name_of
from laws.clients import spec_of
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s
from oracle.frames import lenient_frames

Json = dict[str, Any]
Events = list[Json]
Change = Callable[[Events], Events]

REQUEST = [case for case in CASES if case.name != "codex-compaction"]
CASES_BY_UPSTREAM = [
    (case, upstream) for case in REQUEST for upstream in PROTOCOL_NAMES if upstream != case.protocol
]


def tool_of(case: Case) -> str | None:
    """The name of one of the functions that the client offers."""
    for tool in case.body.get("tools", []):
        name = (tool.get("function") or tool).get("name")
        if isinstance(name, str):
            return name
    return None


@cache
def received(case: Case, upstream: str) -> Received:
    name = tool_of(case)
    calls = [] if name is None else [Call("call_a", name), Call("call_b", name, ("{}",))]
    response = stream(upstream, Reasoning("Hmm."), Text("Let me see."), *calls)
    return received_by(case.protocol, upstream, case.body, response)


# The reason of a response with calls, and of one without.
FINISHES = {
    CHAT: ("tool_calls", "stop"),
    MESSAGES: ("tool_use", "end_turn"),
    RESPONSES: ("completed", "completed"),
}


def test_every_client_gets_what_its_protocol_requires(subtests: pytest.Subtests) -> None:
    for case, upstream in CASES_BY_UPSTREAM:
        with subtests.test(case=case.name, client=case.protocol, upstream=upstream):
            got, (calls, no_calls) = received(case, upstream), FINISHES[case.protocol]
            assert got.finish == (no_calls if tool_of(case) is None else calls)
            if case.protocol == CHAT:  # the oracle does not require it
                assert any(event.get("usage") for event in got.events) is ("stream_options" in case.body)


# --- what breaks clients ------------------------------------------------------------------------------------------


def kind_of(event: Json) -> str:
    return str(event.get("type", "")).removeprefix("response.")


def without(kind: str) -> Change:
    """Events of this type are missing."""
    return lambda events: [event for event in events if kind_of(event) != kind]


def changed(kind: str, change: Callable[[Json], Any]) -> Change:
    """Every event of the type, changed in place; of a Chat stream every chunk."""

    def spoil(events: Events) -> Events:
        out = deepcopy(events)
        for event in out:
            if kind_of(event) == kind:
                change(event)
        return out

    return spoil


def each_choice(change: Callable[[Json], Any]) -> Change:
    return changed("", lambda event: [change(choice) for choice in event["choices"]])


def each_fragment(name: str) -> Change:
    """No fragment of a call has this member."""
    return each_choice(
        lambda choice: [each.pop(name, None) for each in choice["delta"].get("tool_calls", [])]
    )


def finish_as(reason: str | None) -> Change:
    return each_choice(lambda choice: choice["finish_reason"] and choice.update(finish_reason=reason))


def renumbered(events: Events) -> Events:
    return [event | ({"index": event["index"] + 1} if "index" in event else {}) for event in events]


# Each changes a good stream so that some client breaks.
FAILURES: dict[str, dict[str, Change]] = {
    CHAT: {
        "no role": each_choice(lambda choice: choice["delta"].pop("role", None)),
        "chunks that say not what they are": changed("", lambda event: event.pop("id")),
        "no choices": changed("", lambda event: event.pop("choices")),
        "a call without an index": each_fragment("index"),
        "a call without a type": each_fragment("type"),
        "a call without an id": each_fragment("id"),
        "no finish reason": finish_as(None),
        "an unknown finish reason": finish_as("odd"),
        "no delta": each_choice(lambda choice: choice.update(delta=None)),
        "no usage": changed("", lambda event: event.update(usage=None)),
    },
    MESSAGES: {
        "no usage at the end": changed("message_delta", lambda event: event.pop("usage")),
        "no usage at the start": changed("message_start", lambda event: event["message"].pop("usage")),
        "no index": changed("content_block_start", lambda event: event.pop("index")),
        "a block that does not stop": without("content_block_stop"),
        "a block that did not start": without("content_block_start"),
        "no message_stop": without("message_stop"),
        "no message_delta": without("message_delta"),
        "no message_start": without("message_start"),
        "an empty message_start": changed("message_start", lambda event: event.pop("message")),
        "no stop reason": changed("message_delta", lambda event: event["delta"].update(stop_reason=None)),
        "an unknown stop reason": changed(
            "message_delta", lambda event: event["delta"].update(stop_reason="odd")
        ),
        "another stop reason than the calls'": changed(
            "message_delta", lambda event: event["delta"].update(stop_reason="end_turn")
        ),
        "the input in the start of a call": changed(
            "content_block_start",
            lambda event: "input" in event["content_block"] and event["content_block"].update(input={"a": 1}),
        ),
        "a gap between the indexes": renumbered,
        "a call without an id": changed(
            "content_block_start", lambda event: event["content_block"].pop("id", None)
        ),
    },
    RESPONSES: {
        "no created": without("created"),
        "no item_id": changed("output_text.delta", lambda event: event.pop("item_id")),
        "no output_index": changed("output_item.added", lambda event: event.pop("output_index")),
        "text without its part": without("content_part.added"),
        "a summary without its part": without("reasoning_summary_part.added"),
        "only text that is there at the end": without("output_text.delta"),
        "arguments that are there at the end alone": without("function_call_arguments.delta"),
        "an item that is not done": without("output_item.done"),
        "an item that was not added": without("output_item.added"),
        "no completed": without("completed"),
        "incomplete": changed("completed", lambda event: event["response"].update(status="incomplete")),
        "an empty output at the end": changed("completed", lambda event: event["response"].update(output=[])),
        "no usage": changed("completed", lambda event: event["response"].pop("usage")),
        "little more than a status at the end": changed(
            "completed", lambda event: event.update(response={"status": "completed"})
        ),
        "items without an id": changed("output_item.done", lambda event: event["item"].pop("id")),
        "items without a status": changed("output_item.added", lambda event: event["item"].pop("status", None)),
        "an item whose id changes": changed("output_item.done", lambda event: event["item"].update(id="other")),
        "a call without its call_id": changed(
            "output_item.done", lambda event: event["item"].pop("call_id", None)
        ),
    },
}  # fmt: skip
# Clients that offer tools: a response without calls cannot lack what calls have.
WITH_TOOLS = {CHAT: "opencode", MESSAGES: "claude-code", RESPONSES: "codex"}


def events_of(data: bytes) -> Events:
    """The frames' documents; the end mark of a Chat stream left out."""
    return [json.loads(frame.data) for frame in lenient_frames(data) if frame.data != "[DONE]"]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES, ids=name_of)
def test_the_oracle_notices_all_that_breaks_clients(protocol: str) -> None:
    case = next(c for c in REQUEST if c.name == WITH_TOOLS[protocol] and c.protocol == protocol)
    events = events_of(received(case, MESSAGES if protocol == CHAT else CHAT).data)

    # A missing event must be noticed without a gap in the numbers.
    good = [{name: value for name, value in event.items() if name != "sequence_number"} for event in events]
    end = ["[DONE]"] if protocol == CHAT else []
    assert problems_of(protocol, s.render(protocol, [*good, *end])) == []
    unnoticed = [
        name
        for name, spoil in FAILURES[protocol].items()
        if not problems_of(protocol, s.render(protocol, [*deepcopy(spoil(good)), *end]))
    ]
    assert unnoticed == []


# --- the bytes ----------------------------------------------------------------------------------------------------


def test_frames_have_the_form_that_every_client_reads(subtests: pytest.Subtests) -> None:
    """Some fail on a byte order mark, on bare carriage returns, on a last event without its blank line."""
    for case, upstream in CASES_BY_UPSTREAM:
        with subtests.test(case=case.name, client=case.protocol, upstream=upstream):
            data = received(case, upstream).data
            assert not data.startswith(b"\xef\xbb\xbf")
            assert b"\r" not in data
            assert data.endswith(b"\n\n")
            names = [line for line in data.split(b"\n") if line.startswith(b"event: ")]
            if case.protocol == CHAT:
                assert names == []
                assert data.endswith(b"data: [DONE]\n\n")
            else:
                # SDKs skip what has no name, or another name than its type.
                types = [
                    json.loads(frame.split(b"data: ", 1)[1])["type"] for frame in data.split(b"\n\n")[:-1]
                ]
                assert names == [f"event: {kind}".encode() for kind in types]


def test_a_cut_response_never_looks_complete(subtests: pytest.Subtests) -> None:
    """opencode retries without a pause when a stream ends cleanly before its end; after an error it waits."""
    for case, upstream in CASES_BY_UPSTREAM:
        with subtests.test(case=case.name, client=case.protocol, upstream=upstream):
            found = frames(stream(upstream, Text("Let me see.")))
            text_at = next(number for number, frame in enumerate(found) if b"Let me see." in frame)
            cut = b"".join(found[: text_at + 1])
            got = received_by(case.protocol, upstream, case.body, cut)
            assert got.finish is None
            last = got.events[-1]
            assert "error" in last or last["type"] == "response.failed"


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES, ids=name_of)
def test_heartbeats_have_a_form_that_clients_accept(protocol: str) -> None:
    """All agents drop a stream that is silent for 300 s. Comments are ignored; Messages has a ping."""
    (endpoint,) = spec_of(protocol).endpoints
    beat = endpoint.heartbeat
    assert beat.endswith(b"\n\n")
    assert beat.startswith(b"event: ping\n" if protocol == MESSAGES else b":")
    assert protocol != MESSAGES or events_of(beat) == [{"type": "ping"}]
    assert protocol != RESPONSES or events_of(beat) == []
