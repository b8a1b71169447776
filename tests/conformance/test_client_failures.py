"""Nothing that breaks real clients is in what they get, whatever the upstream.

For each client's own request, each upstream sends reasoning, text and calls, and the oracle checks the client's stream.
A client breaks when it gives up, retries without end, or hangs. All that was seen to break one, by running the clients
against a provider that sent such streams, is among the broken streams of `test_oracle.py`.
"""

import json
from functools import cache

import pytest
from agents.received import received_by
from agents.requests import CASES, Case
from failures.responses import Call, Reasoning, Text, begun, stream
from failures.translate import Received, name_of
from laws.clients import endpoint_of
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

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
            cut = b"".join(begun(stream(upstream, Text("Let me see.")), "Let me see."))
            got = received_by(case.protocol, upstream, case.body, cut)
            assert got.finish is None
            last = got.events[-1]
            assert "error" in last or last["type"] == "response.failed"


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES, ids=name_of)
def test_heartbeats_have_a_form_that_clients_accept(protocol: str) -> None:
    """All agents drop a stream that is silent for 300 s. Comments are ignored, but not by Gemini's SDKs, which take an
    empty chunk; Messages has a ping.
    """
    beat = endpoint_of(protocol).heartbeat
    assert beat.endswith(b"\r\n\r\n" if protocol == GEMINI else b"\n\n")
    assert beat.startswith({MESSAGES: b"event: ping\n", GEMINI: b"data: {}"}.get(protocol, b":"))
    assert protocol != MESSAGES or Received(protocol, beat, None).events == [{"type": "ping"}]
    assert protocol != RESPONSES or Received(protocol, beat, None).events == []
