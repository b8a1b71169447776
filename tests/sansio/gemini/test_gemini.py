"""What rows do not say: endpoints, arrays, and the ends of failed streams."""

import msgspec
import pytest
from core.fast_path import both_ways
from core.toy_protocol import context_of
from hypothesis import given
from hypothesis import strategies as st

from dragoman._engine.relay import Relay
from dragoman._engine.response import ResponseTranslator
from dragoman._ir.assembly import Fold
from dragoman._ir.events import Annotation, StopReason
from dragoman._ir.fast_path import FastPath
from dragoman._ir.losses import Ledger
from dragoman._wire import json_schema as _json_schema
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode, encode
from dragoman.codec import Endpoint
from dragoman.protocols.gemini import SPEC, schemas
from dragoman.protocols.gemini.offsets import Offsets
from dragoman.protocols.gemini.response_in import read_whole
from dragoman.protocols.gemini.response_out import write_whole
from dragoman.testing import Pair

GEMINI = "gemini"
MODEL = "gemini-x"
EVENTS, ARRAY = [each for each in SPEC.endpoints if each.streams == "always"][:2]


def test_a_response_to_a_blocked_prompt_is_relayed() -> None:
    machine = Relay(protocol=GEMINI, context=context_of(protocol=GEMINI), streams=False)
    machine.receive_data(b'{"promptFeedback":{"blockReason":"SAFETY"}}')
    machine.receive_eof()
    assert (machine.error, machine.stop_reason) == (None, StopReason.CONTENT_FILTER)


# Endpoints.


# Which endpoint of a path each is for: 1 sends events, 2 JSON, 0 is none. The vertexai SDK sends the sixth.
QUERIES = [
    *(("alt=sse", 1), ("key=alt&alt=json", 2), ("altitude=1", 2), ("alt=foo", 0), ("alt=", 0)),
    *(("%24alt=json%3Benum-encoding%3Dint", 2), ("$alt=sse;enum-encoding=int", 1), ("$alt=proto", 0)),
]


@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha", "v1beta1"])
def test_each_version_has_both_methods(version: str) -> None:
    own = [each for each in SPEC.endpoints if each.path.startswith(f"/{version}/")]
    assert [(each.path.partition(":")[2], each.query, each.streams) for each in own] == [
        ("generateContent", "alt=json", "never"),
        ("streamGenerateContent", "alt=sse", "always"),
        ("streamGenerateContent", "alt=json", "always"),
    ]
    for prefix in ("", "models/", "publishers/google/models/"):
        path = f"/{version}/{prefix}local/kite:streamGenerateContent"
        for query, at in QUERIES:
            found = [each.match(path, query) for each in own[1:]]
            assert found == ["local/kite" if at == n else None for n in (1, 2)], query
            whole = own[0].match(path.replace("streamGenerate", "generate"), query)
            assert whole == (None if at != 2 else "local/kite"), query


@pytest.mark.parametrize(
    ("named", "model"),
    [
        ("models/gemini-x", MODEL),
        ("publishers/google/models/gemini-x", MODEL),
        ("projects/p/locations/l/publishers/google/models/gemini-x", MODEL),
        ("v1beta/models/gemini-x", MODEL),
        ("publishers/acme/models/kite/7b", "acme/kite/7b"),
        ("projects/p/locations/l/publishers/acme/models/kite", "acme/kite"),
        ("models/acme/kite", "acme/kite"),
        ("models/models/gemini-x", MODEL),
        ("v1/models/gemini-x", MODEL),
        ("models/projects/p/locations/l/publishers/google/models/gemini-x", MODEL),
        ("tunedModels/kite", "tunedModels/kite"),
        ("acme/models/kite:7b", "acme/models/kite:7b"),
    ],
)
def test_clients_of_both_hosts_name_the_model(named: str, model: str) -> None:
    assert EVENTS.match(f"/v1beta/{named}:streamGenerateContent", "alt=sse") == model
    assert SPEC.token_count.endpoints[0].match(f"/v1beta/{named}:countTokens") == model


# Schemas.


def test_definitions_are_not_measured_when_no_space_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(_json_schema, "encode", lambda value: measured.append(value) or encode(value))
    references = {"anyOf": [{"$ref": "#/$defs/a"}] * 99, "$defs": {"a": {"description": "x" * 999}}}
    schemas.openapi_schema(references, "", Ledger())
    assert sum(value is not None for value in measured) < 20


# Streams as the elements of one array, and their failures.

STREAM = (
    b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"a\xe2\x80\xa8\xc2\x85b"}}]}\n\n'
    b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def pair_of(endpoint: Endpoint) -> Pair:
    pair = Pair(client=GEMINI, upstream="openai_chat", endpoint=endpoint)
    pair.translate_request({"model": "models/alias", "contents": [{"parts": [{"text": "Hi"}]}]})
    return pair


def test_an_array_has_the_chunks_of_the_stream() -> None:
    events = pair_of(EVENTS).translate_response(STREAM)
    chunks = [decode(each.removeprefix(b"data: ")) for each in events.split(b"\r\n\r\n") if each]
    assert decode(pair_of(ARRAY).translate_response(STREAM)) == chunks
    assert chunks[0]["candidates"][0]["content"]["parts"] == [{"text": "a\u2028\u0085b"}]


def test_no_character_ends_a_line_too_early() -> None:
    events = pair_of(EVENTS).translate_response(STREAM)
    assert len(events.decode().splitlines()) == len(events.split(b"\r\n")) - 1


def test_a_stream_that_was_cut_off_has_an_error_in_both_forms() -> None:
    pair = pair_of(EVENTS)
    event, bare = pair.translate_response(STREAM[:100]).rsplit(b"\r\n\r\n", 1)
    assert decode(bare) == decode(event.rpartition(b"data: ")[2])
    assert decode(bare)["error"]["code"] == 502


def test_an_array_that_was_cut_off_is_an_array() -> None:
    chunks = decode(pair_of(ARRAY).translate_response(STREAM[:120]))
    assert ["error" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize(("endpoint", "times"), [(EVENTS, 2), (ARRAY, 1)])
def test_an_observer_fails_in_the_form_of_its_endpoint(endpoint: Endpoint, times: int) -> None:
    context = msgspec.structs.replace(context_of(protocol=GEMINI), endpoint=endpoint)
    frames = SPEC.observer(context).fail(WireError(ErrorKind.TIMEOUT, "too late"))
    assert frames.count(b'"message":"too late"') == times
    assert frames.startswith(b"data: {")


def test_an_error_without_a_request_id_has_no_details() -> None:
    status, body = SPEC.write_error(WireError(ErrorKind.NOT_FOUND, "no"), None)
    assert (status, decode(body)["error"]["details"]) == (404, [])


# Citations, whose places are bytes of UTF-8.


@given(st.text(st.sampled_from("ab\u00e9\u20ac\U0001f600\udc80"), max_size=9), st.integers(0, 700), st.data())
def test_a_place_in_bytes_and_in_characters(some: str, times: int, data: st.DataObject) -> None:
    text = some * times
    at = data.draw(st.integers(0, len(text)))
    before = text[:at].encode("utf-8", "surrogatepass")
    offsets = Offsets(text)
    assert offsets.to_bytes(at) == len(before)
    assert offsets.to_characters(len(before)) == at
    assert offsets.to_bytes(len(text)) == offsets.size


def test_each_source_is_cited_once_and_long_texts_are_not_repeated() -> None:
    """Or a small response would become a large one: texts with signatures end one after the other."""
    texts = [{"text": "abc" * 1000, "thoughtSignature": "AAAA"} for _ in range(3)]
    supports = [{"segment": {"endIndex": end}, "groundingChunkIndices": [0]} for end in (3, 3000)]
    grounding = {"groundingChunks": [{"web": {"uri": "http://h/"}}], "groundingSupports": supports}
    candidate = {"content": {"parts": texts}, "finishReason": "STOP", "groundingMetadata": grounding}
    events = read_whole({"candidates": [candidate]}, context_of(), Ledger())
    cited = [event for event in events if isinstance(event, Annotation)]
    assert [(each.start, each.end) for each in cited] == [(0, 3), (0, 3000)]
    fold = Fold()
    for event in events:
        fold.send(event)
    [written] = write_whole(fold.response(), context_of(), Ledger())["candidates"]
    segments = [each["segment"] for each in written["groundingMetadata"]["groundingSupports"]]
    assert [(each["endIndex"], each.get("text")) for each in segments] == [(3, "abc"), (3000, None)]


def test_the_fast_path_collects_texts_for_citations(monkeypatch: pytest.MonkeyPatch) -> None:
    support = {"segment": {"startIndex": 2, "endIndex": 5}, "groundingChunkIndices": [0]}
    grounding = {"groundingChunks": [{"web": {"uri": "https://a.example"}}], "groundingSupports": [support]}
    other = {"content": {"parts": [{"text": "ééé"}]}, "finishReason": "STOP"}
    texts = [{"content": {"parts": [{"text": text}]}, "index": 1} for text in ("é", "a", "é", "b")]
    thoughts = [{"content": {"parts": [{"text": text, "thought": True}]}, "index": 1} for text in "abc"]
    last = {"finishReason": "STOP", "groundingMetadata": grounding, "index": 1}
    frames = [b"data: " + encode({"candidates": [each]}) for each in (other, *thoughts, *texts, last)]
    assert both_ways(GEMINI, "openai_chat", b"\r\n\r\n".join([*frames, b""]), monkeypatch) == 3


def test_the_fast_path_reads_the_last_counts_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[dict[str, object]] = [
        {
            "candidates": [{"content": {"parts": [{"text": text}]}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": count},
        }
        for count, text in enumerate("abcdef", 8)
    ]
    chunks.append({"candidates": [{"finishReason": "STOP"}]})
    data = b"".join([b"data: " + encode(chunk) + b"\n\n" for chunk in chunks])
    assert both_ways(GEMINI, "openai_responses", data, monkeypatch) == 3


@pytest.mark.parametrize(
    ("counts", "learned"), [({"usageMetadata": {"candidatesTokenCount": 8}}, []), ({}, ["b", "c"])]
)
def test_a_shape_that_leaves_the_last_event_is_not_learned_from_events_that_come_alone(
    counts: dict[str, object], learned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    monkeypatch.setattr(FastPath, "learn_from", lambda self, raw_event, text, *_: texts.append(text))
    machine = ResponseTranslator(client="openai_chat", upstream=GEMINI, context=context_of())
    for text in "abc":
        chunk = {"candidates": [{"content": {"parts": [{"text": text}]}, "index": 0}], **counts}
        machine.receive_data(b"data: " + encode(chunk) + b"\n\n")
    assert texts == learned
