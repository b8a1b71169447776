"""Streams of every upstream protocol to every client protocol, checked by an oracle without code of the product.

A translated stream must be typed and ordered as the client's own vendor would send it, and must have the
meaning of the upstream's. Where both sides have one protocol, the bytes are the upstream's own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle import (
    CHAT,
    CLIENTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    UPSTREAM_NAMES,
    Stop,
    check_stream,
    compare,
    meaning_of_client_stream,
    meaning_of_upstream,
)
from oracle import samples as s
from translation import translate_stream

SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses, GEMINI: s.gemini}


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES)
@pytest.mark.parametrize("client", CLIENTS)
def test_sample_streams_cross(upstream: str, client: str) -> None:
    stream = s.render(upstream, SAMPLES[upstream]())
    sent = translate_stream(upstream, client, stream)
    assert check_stream(client, sent, include_usage=True) == []
    assert (
        compare(meaning_of_upstream(upstream, stream), meaning_of_client_stream(client, sent), client) == []
    )


@pytest.mark.parametrize("upstream", UPSTREAM_NAMES)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.promise("R3")
def test_sample_streams_cut_at_every_frame(upstream: str, client: str) -> None:
    """An upstream that ends early, after any frame, ends in the client's own error and never in a success."""
    frames = s.render(upstream, SAMPLES[upstream]()).split(b"\n\n")[:-1]
    for count in range(len(frames)):
        stream = b"".join(frame + b"\n\n" for frame in frames[:count])
        expected = meaning_of_upstream(upstream, stream)
        if expected.stop is not Stop.CUT:
            break  # the terminal event has come; what may be missing is not owed
        sent = translate_stream(upstream, client, stream)
        received = meaning_of_client_stream(client, sent)
        if upstream != client:
            assert check_stream(client, sent, include_usage=True) == [], count
        assert compare(expected, received, client) == [], count


PATCH = '*** Begin Patch\n+say("hi") \\ \u00e9 \U0001f600\n*** End Patch'


def _patch_calls(protocol: str) -> list[Any]:
    """A stream whose only call is a function called with {"input": PATCH}, in fragments that cut its escapes."""
    text = json.dumps({"input": PATCH})
    fragments = [text[at : at + 3] for at in range(0, len(text), 3)]
    if protocol == CHAT:
        return [
            s.chunk({"role": "assistant", "content": ""}),
            s.chunk(s.call(0, "call_p", "patch")),
            *[s.chunk(s.call(0, arguments=fragment)) for fragment in fragments],
            s.chunk({}, "tool_calls"),
            "[DONE]",
        ]
    events = s.messages()
    start = s.start(0, type="tool_use", id="call_p", name="patch", input={}, caller=None)
    deltas = [s.delta(0, "input_json_delta", partial_json=fragment) for fragment in fragments]
    return [events[0], start, *deltas, s.stop(0), *events[17:]]


@pytest.mark.parametrize(("upstream", "client"), [(CHAT, RESPONSES), (MESSAGES, RESPONSES), (MESSAGES, CHAT)])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_free_form_tools_come_back_as_free_text(upstream: str, client: str, step: int) -> None:
    """A client that declared a custom tool gets its raw text, although the upstream only has functions."""
    declared = frozenset({"patch"})
    stream = s.render(upstream, _patch_calls(upstream))
    sent = translate_stream(upstream, client, stream, custom_tools=declared, step=step)
    assert check_stream(client, sent, include_usage=True) == []
    received = meaning_of_client_stream(client, sent)
    assert compare(meaning_of_upstream(upstream, stream), received, client, custom_tools=declared) == []
    assert [call.text for call in received.calls] == [PATCH]
