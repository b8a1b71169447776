"""Every recorded answer to every client protocol, judged by an oracle that shares no code with the product.

A stream that crosses protocols must be typed and ordered as the client's own vendor would send it, and
must mean what the upstream said. Where both sides speak one protocol, the bytes are the upstream's own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from crossing import translate_error, translate_stream, translate_whole
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    PROTOCOLS,
    RESPONSES,
    Stop,
    check_error,
    check_stream,
    check_whole,
    compare,
    compare_error,
    corpus,
    meaning_of_client_stream,
    meaning_of_upstream,
    meaning_of_whole,
    read_error,
)
from oracle import samples as s

SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}
STREAMS = [
    pytest.param(recording, client, id=f"{recording.name}-to-{client}")
    for recording in corpus.recordings()
    for client in CLIENTS
    if recording.protocol != client
]
RELAYED = [pytest.param(recording, id=recording.name) for recording in corpus.recordings()]
WHOLE = [
    pytest.param(answer, client, id=f"{answer.name}-to-{client}")
    for answer in corpus.equivalents()
    for client in CLIENTS
    if answer.status == 200
]
ERRORS = [
    pytest.param(answer, client, id=f"{answer.name}-to-{client}")
    for answer in corpus.errors()
    for client in CLIENTS
]


@pytest.mark.parametrize("upstream", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_sample_streams_cross(upstream: str, client: str) -> None:
    """Hand-written streams of each protocol, so that this runs where no recordings are at hand."""
    stream = s.render(upstream, SAMPLES[upstream]())
    sent = translate_stream(upstream, client, stream)
    assert check_stream(client, sent, include_usage=True) == []
    assert (
        compare(meaning_of_upstream(upstream, stream), meaning_of_client_stream(client, sent), client) == []
    )


@pytest.mark.parametrize("upstream", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_sample_streams_cut_at_every_frame(upstream: str, client: str) -> None:
    """An upstream that ends early, after any frame, ends in the client's own error and never in a success."""
    frames = s.render(upstream, SAMPLES[upstream]()).split(b"\n\n")[:-1]
    for count in range(len(frames)):
        stream = b"".join(frame + b"\n\n" for frame in frames[:count])
        said = meaning_of_upstream(upstream, stream)
        if said.stop is not Stop.CUT:
            break  # the terminal event has come; what may be missing is not owed
        sent = translate_stream(upstream, client, stream)
        heard = meaning_of_client_stream(client, sent)
        if upstream != client:
            assert check_stream(client, sent, include_usage=True) == [], count
        assert compare(said, heard, client) == [], count


@pytest.mark.parametrize(("recording", "client"), STREAMS)
def test_recorded_streams_cross(recording: corpus.Recording, client: str) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, client, stream, recording.request)
    assert check_stream(client, sent, include_usage=True) == []
    said = meaning_of_upstream(recording.protocol, stream)
    assert compare(said, meaning_of_client_stream(client, sent), client) == []


@pytest.mark.parametrize("recording", [row for row in RELAYED if row.values[0].protocol != CHAT])
def test_chat_clients_get_usage_only_when_they_ask(recording: corpus.Recording) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, CHAT, stream, recording.request, include_usage=False)
    assert check_stream(CHAT, sent, include_usage=False) == []
    said, heard = meaning_of_upstream(recording.protocol, stream), meaning_of_client_stream(CHAT, sent)
    assert compare(said, heard, CHAT, include_usage=False) == []


@pytest.mark.parametrize("recording", RELAYED)
def test_same_protocol_is_byte_exact(recording: corpus.Recording) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, recording.protocol, stream, recording.request)
    said = meaning_of_upstream(recording.protocol, stream)
    if said.stop is Stop.CUT:
        # Whole frames as they came, then the protocol's own error.
        heard = meaning_of_client_stream(recording.protocol, sent)
        assert compare(said, heard, recording.protocol) == []
        assert stream.startswith(sent[: stream.rindex(b"\n\n") + 2])
    else:
        assert sent == stream


@pytest.mark.parametrize(("answer", "client"), WHOLE)
def test_recorded_whole_answers_cross(answer: corpus.WholeAnswer, client: str) -> None:
    sent = translate_whole(answer.protocol, client, answer.body, answer.request)
    if answer.protocol == client:
        assert sent == answer.body
        return
    assert check_whole(client, sent) == []
    said = meaning_of_whole(answer.protocol, answer.body)
    assert compare(said, meaning_of_whole(client, sent), client) == []


@pytest.mark.parametrize(("answer", "client"), ERRORS)
def test_recorded_errors_cross(answer: corpus.WholeAnswer, client: str) -> None:
    status, sent = translate_error(answer.protocol, client, answer.status, answer.body)
    if answer.protocol == client and sent == answer.body:
        return  # a vendor's own words pass as they are to its own clients
    assert check_error(client, status, sent) == []
    said = read_error(answer.protocol, answer.status, answer.body)
    assert compare_error(said, read_error(client, status, sent)) == []


PATCH = '*** Begin Patch\n+say("hi") \\ \u00e9 \U0001f600\n*** End Patch'


def _patch_calls(protocol: str) -> list[Any]:
    """A stream whose only call is a function called with {"input": PATCH}, in pieces that cut its escapes."""
    text = json.dumps({"input": PATCH})
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    if protocol == CHAT:
        return [
            s.chunk({"role": "assistant", "content": ""}),
            s.chunk(s.call(0, "call_p", "patch")),
            *[s.chunk(s.call(0, arguments=piece)) for piece in pieces],
            s.chunk({}, "tool_calls"),
            "[DONE]",
        ]
    events = s.messages()
    start = s.start(0, type="tool_use", id="call_p", name="patch", input={}, caller=None)
    deltas = [s.delta(0, "input_json_delta", partial_json=piece) for piece in pieces]
    return [events[0], start, *deltas, s.stop(0), *events[17:]]


@pytest.mark.parametrize(("upstream", "client"), [(CHAT, RESPONSES), (MESSAGES, RESPONSES), (MESSAGES, CHAT)])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_free_form_tools_come_back_as_free_text(upstream: str, client: str, step: int) -> None:
    """A client that declared a custom tool gets its raw text, though the upstream knows only functions."""
    declared = frozenset({"patch"})
    stream = s.render(upstream, _patch_calls(upstream))
    sent = translate_stream(upstream, client, stream, custom_tools=declared, step=step)
    assert check_stream(client, sent, include_usage=True) == []
    heard = meaning_of_client_stream(client, sent)
    assert compare(meaning_of_upstream(upstream, stream), heard, client, custom_tools=declared) == []
    assert [call.text for call in heard.calls] == [PATCH]
