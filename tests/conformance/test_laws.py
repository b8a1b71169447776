"""The laws that hold for every pair of protocols, over hand-written answers and every recorded one.

An answer is the same however the network cut it, whoever folds it, whenever it is asked for; what is written is
read again as what was meant; what breaks off is never a success; and reasoning that only its maker can read
comes back to its maker as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_clients import endpoint_of, spec_of
from law_events import EVENTS, meaning_of_events, scripted
from law_turns import ASSEMBLE, CARRIERS, NEXT, WHOLE, turn_of
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    PROTOCOLS,
    RESPONSES,
    Stop,
    as_object,
    check_stream,
    compare,
    corpus,
    meaning_of_client_stream,
    meaning_of_upstream,
    meaning_of_whole,
)
from oracle import samples as s
from oracle.meaning import Kind

from dragoman import (
    NEED_DATA,
    UPSTREAMS,
    Answer,
    Block,
    Ended,
    Event,
    EventReader,
    Exchange,
    Failed,
    Fold,
    Ledger,
    Outcome,
    Relay,
    Request,
    RequestTranslator,
    ResponseTranslator,
    Sealer,
    UpstreamSpec,
)
from dragoman.testing import chop

SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}
OPEN = Sealer()
SECRET = Sealer(b"a secret of the gateway")
# Longer streams are cut at random places instead of everywhere, and at some frames instead of all.
SHORT = 4_000
BOUNDARIES = 12
CUTS = settings(deadline=None, derandomize=True, database=None, max_examples=3)


class Source:
    """A complete or broken stream of an upstream."""

    def __init__(self, name: str, protocol: str, stream: bytes, spec: UpstreamSpec | None = None) -> None:
        self.name = name
        self.protocol = protocol
        self.stream = stream
        self.spec = spec or UPSTREAMS[protocol]

    def __repr__(self) -> str:
        return self.name


@cache
def sources() -> list[Source]:
    """Streams of real protocols: samples, hand-written events in each protocol, and the recordings."""
    found = [Source(f"sample-{name}", name, s.render(name, SAMPLES[name]())) for name in PROTOCOLS]
    for label, events in EVENTS.items():
        spec, script = scripted(events)
        for name in PROTOCOLS:
            stream = answered(Source(label, "scripted", script, spec), name)
            found.append(Source(f"{label}-{name}", name, stream))
    found += [
        Source(recording.name, recording.protocol, recording.read()) for recording in corpus.recordings()
    ]
    return found


def asked(client: str, *, streams: bool = True, sealer: Sealer = OPEN) -> Exchange:
    request = Request(
        protocol=spec_of(client).name,
        model="alias",
        messages=(),
        raw={},
        stream=streams,
        params={"stop": ["STOP"]},
    )
    return Exchange(
        request=request,
        id="0123456789abcdef",
        now=1,
        model="alias",
        sealer=sealer,
        prompt_tokens=7,
        upstream_model="m",
        endpoint=endpoint_of(client),
    )


def answered(
    source: Source,
    client: str,
    pieces: list[bytes] | None = None,
    *,
    streams: bool = True,
    relay: bool = False,
    sealer: Sealer = OPEN,
) -> bytes:
    """What a client gets for a source, in pieces or at once. Not relayed unless asked."""
    exchange = asked(client, streams=streams, sealer=sealer)
    machine: Relay | ResponseTranslator
    if relay:
        machine = Relay(UPSTREAMS[client], exchange)
    else:
        machine = ResponseTranslator(source.spec, spec_of(client), exchange)
    sent = b""
    for piece in [source.stream] if pieces is None else pieces:
        machine.receive_data(piece)
        sent += machine.data_to_send()
    machine.receive_eof()
    return sent + machine.data_to_send()


def completes(source: Source) -> bool:
    return meaning_of_upstream(source.protocol, source.stream).stop not in (Stop.CUT, Stop.ERROR)


EVERY = [
    pytest.param(source, client, id=f"{source}-to-{client}") for source in sources() for client in CLIENTS
]
COMPLETE = [case for case in EVERY if completes(case.values[0])]  # type: ignore[arg-type]
# Nobody but its clients reads the simple API.
READ = [case for case in EVERY if case.values[1] in PROTOCOLS]


# --- any cutting of the input gives the same bytes ---------------------------------------------------------------


@pytest.mark.parametrize(("source", "client"), EVERY)
def test_the_network_may_cut_anywhere(source: Source, client: str) -> None:
    for relay in (False, True) if source.protocol == client else (False,):
        whole = answered(source, client, relay=relay)
        if len(source.stream) <= SHORT:
            ways = chop(source.stream, places=8)
            assert all(answered(source, client, pieces, relay=relay) == whole for pieces in ways)
        else:
            _check_random_cuts(source, client, relay, whole)


def _check_random_cuts(source: Source, client: str, relay: bool, whole: bytes) -> None:
    size = len(source.stream)

    @CUTS
    @given(st.lists(st.integers(0, size), max_size=40))
    def check(places: list[int]) -> None:
        ends = sorted({*places, size})
        pieces = [source.stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        assert answered(source, client, pieces, relay=relay) == whole

    check()


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
@pytest.mark.parametrize(("source", "client"), EVERY)
def test_line_endings_do_not_matter(source: Source, client: str, ending: bytes) -> None:
    lines = source.stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    other = Source(source.name, source.protocol, lines.replace(b"\n", ending), source.spec)
    assert answered(other, client) == answered(
        Source(source.name, source.protocol, lines, source.spec), client
    )


# --- the same input gives the same bytes -----------------------------------------------------------------------


@pytest.mark.parametrize(("source", "client"), EVERY)
def test_the_same_answer_twice(source: Source, client: str) -> None:
    assert answered(source, client) == answered(source, client)


def digest() -> str:
    """Of all hand-written answers in all protocols, streamed and whole."""
    seen = hashlib.sha256()
    for source in [source for source in sources() if "/" not in source.name]:
        for client in CLIENTS:
            seen.update(answered(source, client) + answered(source, client, streams=False))
    return seen.hexdigest()


def test_another_process_writes_the_same_bytes() -> None:
    """Sets of strings have another order in each process; no output may depend on it."""
    support = Path(__file__).parents[1] / "_support"
    code = "import test_laws; print(test_laws.digest())"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{support}:{Path(__file__).parent}"}
    env["DRAGOMAN_SHARED"] = "/nowhere"  # the hand-written answers are enough here
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


# --- a relay changes nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [source for source in sources() if completes(source)], ids=repr)
def test_a_relay_changes_nothing(source: Source) -> None:
    assert answered(source, source.protocol, relay=True) == source.stream


# --- streamed and folded is what is translated whole ----------------------------------------------------------


def events_in(protocol: str, stream: bytes) -> list[Event]:
    """By the strict reader of a protocol, which knows what was asked."""
    reader = EventReader(UPSTREAMS[protocol], asked(protocol))
    reader.receive_data(stream)
    reader.receive_eof()
    found = []
    while (event := reader.next_event()) is not NEED_DATA:
        found.append(event)
    return found


def folded(protocol: str, stream: bytes) -> Answer:
    fold = Fold()
    for event in events_in(protocol, stream):
        fold.send(event)
    return fold.answer()


def read_whole(protocol: str, body: bytes) -> Answer:
    fold = Fold()
    for event in UPSTREAMS[protocol].read_whole(json.loads(body), asked(protocol), Ledger()):
        fold.send(event)
    return fold.answer()


def gist(answer: Answer, protocol: str) -> Any:
    """What an answer says, without numbers of blocks. Chat's whole message has no order between its members."""
    blocks: list[Any] = []
    for block in answer.blocks:
        if not isinstance(block, Block):
            blocks.append(("opaque", block.kind, block.native))
            continue
        if block.tool is None:
            said = "\n\n".join(part.text for part in block.reasoning) or block.text
            cites = [annotation.native for annotation in block.annotations]
            # Responses' events leave out the `bytes` of tokens.
            tokens = [(token["token"], token["logprob"]) for token in block.logprobs]
            seal = block.seal and (block.seal.origin, block.seal.native)
            blocks.append((block.kind.value, said, cites, tokens, block.complete, seal))
        else:
            blocks.append((block.kind.value, *called(block, protocol)))
    if protocol == CHAT:
        blocks.sort(key=lambda block: block[0])
        texts = {
            kind: "".join(b[1].replace("\n\n", "") for b in blocks if b[0] == kind)
            for kind in ("text", "reasoning")
        }
        blocks = [texts, *[block for block in blocks if block[0] not in texts]]
    stops = [(stop.reason, stop.sequence, stop.explanation) for stop in answer.stops if stop.choice == 0]
    return blocks, stops, answer.usage, answer.started.model


def called(block: Block, protocol: str) -> Any:
    """A call. A whole Messages answer holds its input as an object: it cannot show where half of one was cut."""
    head = block.tool
    assert head is not None
    text, complete = block.text.strip() or "{}", block.complete
    if protocol == MESSAGES:
        complete = True
        value = as_object(text)
        text = text if value is None else str(value.get("_raw") or json.dumps(value))
    return head.call_id, head.name, head.kind, text, complete


@pytest.mark.parametrize(("source", "client"), [case for case in COMPLETE if case in READ])
def test_streamed_and_folded_is_what_is_translated_whole(source: Source, client: str) -> None:
    streamed = folded(client, answered(source, client))
    whole = read_whole(client, answered(source, client, streams=False))
    assert gist(streamed, client) == gist(whole, client)


@pytest.mark.parametrize(("source", "client"), [case for case in COMPLETE if case not in READ])
def test_the_simple_api_says_the_same_in_all_its_forms(source: Source, client: str) -> None:
    streamed = meaning_of_client_stream(client, answered(source, client))
    whole = meaning_of_whole(client, answered(source, client, streams=False))
    assert (streamed.blocks, streamed.stop) == (whole.blocks, whole.stop)


@pytest.mark.parametrize(("source", "client"), COMPLETE)
def test_a_whole_answer_means_what_its_stream_means(source: Source, client: str) -> None:
    """The upstream's answer, once as a stream and once whole, says the same to the client."""
    body = answered(source, source.protocol, streams=False)
    specs = UPSTREAMS[source.protocol], spec_of(client)
    machine = ResponseTranslator(*specs, asked(client, streams=False), upstream_streams=False)
    machine.receive_data(body)
    machine.receive_eof()
    said, whole = meaning_of_upstream(source.protocol, source.stream), meaning_of_whole(source.protocol, body)
    assert compare(said, whole, source.protocol) == []
    assert compare(whole, meaning_of_whole(client, machine.data_to_send()), client) == []


# --- what is written is read again as what was meant -----------------------------------------------------------


@pytest.mark.parametrize(("source", "client"), READ)
def test_what_is_written_is_read_again(source: Source, client: str) -> None:
    """By the strict reader of the client's own protocol: its events end, and say what the upstream said."""
    said = meaning_of_upstream(source.protocol, source.stream)
    events = events_in(client, answered(source, client))
    assert isinstance(events[-1], Ended if completes(source) else Failed)
    heard = meaning_of_events(events)
    if client == RESPONSES and heard.stop is Stop.FILTER and heard.said(Kind.REFUSAL) == said.explanation:
        heard.explanation = said.explanation
    assert compare(said, heard, client) == []


@pytest.mark.parametrize("source", [each for each in sources() if "/" not in each.name], ids=repr)
def test_a_protocol_written_anew_is_as_its_vendor_has_it(source: Source) -> None:
    """Crossings are judged elsewhere; this is the reader and the writer of one protocol, without the relay.

    Not the recordings: what they hold of older and of beta versions passes as it came.
    """
    sent = answered(source, source.protocol)
    assert check_stream(source.protocol, sent, include_usage=True) == []


# --- what breaks off is never a success -------------------------------------------------------------------------


@pytest.mark.parametrize("source", sources(), ids=repr)
def test_what_breaks_off_is_never_a_success(source: Source) -> None:
    ends = [at + 2 for at in range(len(source.stream)) if source.stream.startswith(b"\n\n", at)]
    step = max(len(ends) // BOUNDARIES, 1)
    for end in sorted({0, *ends[::step], *ends[-6:]}):
        prefix = Source(source.name, source.protocol, source.stream[:end])
        if meaning_of_upstream(source.protocol, prefix.stream).stop is not Stop.CUT:
            break  # its terminal event has come
        for client in CLIENTS:
            sent = answered(prefix, client, relay=source.protocol == client)
            assert meaning_of_client_stream(client, sent).stop is Stop.ERROR, (end, client)
            assert answered(prefix, client, streams=False) == b"", (end, client)


def test_a_whole_answer_that_broke_off_is_a_failure() -> None:
    for upstream in PROTOCOLS:
        for client in CLIENTS:
            source = Source("sample", upstream, s.render(upstream, SAMPLES[upstream]()))
            body = answered(source, upstream, streams=False)
            specs = UPSTREAMS[upstream], spec_of(client)
            machine = ResponseTranslator(*specs, asked(client, streams=False), upstream_streams=False)
            machine.receive_data(body[:-1])
            machine.receive_eof()
            assert (machine.outcome, machine.data_to_send()) == (Outcome.FAILED, b"")


# --- sealed reasoning comes back to its maker --------------------------------------------------------------------


def carriers(source: Source) -> list[Any]:
    return CARRIERS[source.protocol](ASSEMBLE[source.protocol](source.stream))


def sent_back(
    source: Source, client: str, *, streams: bool, there: Sealer, back: Sealer, model: str = "m"
) -> list[Any]:
    """What of the upstream's sealed reasoning is in the next request to it, after a turn through a client."""
    sent = answered(source, client, streams=streams, sealer=there)
    said = ASSEMBLE[client](sent) if streams else WHOLE[client](json.loads(sent))
    body = json.dumps(NEXT[client](said)).encode()
    translator = RequestTranslator(UPSTREAMS[client], UPSTREAMS[source.protocol], sealer=back)
    sent_on = translator.translate(body, model=model).body
    return CARRIERS[source.protocol](turn_of(source.protocol, json.loads(sent_on)))


SEALED = [
    pytest.param(case.values[0], case.values[1], id=case.id)
    for case in COMPLETE
    if case in READ
    if case.values[0].protocol != case.values[1] and carriers(case.values[0])  # type: ignore[union-attr,arg-type]
]


def bag(found: list[Any], protocol: str) -> Any:
    # Chat has one place for all the reasoning of a turn: what several blocks said is joined there.
    if protocol != CHAT:
        return found
    texts = ["".join(entry[1:]) for entry in found if len(entry) == 2]
    return sorted({*texts[:1]}), sorted((entry[1:] for entry in found if len(entry) == 3), key=str)


def signed(source: Source, found: list[Any]) -> list[Any]:
    return [entry for entry in found if source.protocol != CHAT or len(entry) == 3]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("sealer", [Sealer(), SECRET], ids=["open", "secret"])
@pytest.mark.parametrize(("source", "client"), SEALED)
def test_sealed_reasoning_comes_back(source: Source, client: str, sealer: Sealer, streams: bool) -> None:
    found = sent_back(source, client, streams=streams, there=sealer, back=sealer)
    assert bag(found, source.protocol) == bag(carriers(source), source.protocol)


@pytest.mark.parametrize(("source", "client"), SEALED)
def test_forged_reasoning_does_not(source: Source, client: str) -> None:
    for forger in (Sealer(), Sealer(b"another secret")):
        found = sent_back(source, client, streams=True, there=forger, back=SECRET)
        assert signed(source, found) == []


@pytest.mark.parametrize(("source", "client"), SEALED)
def test_reasoning_of_another_model_does_not(source: Source, client: str) -> None:
    found = sent_back(source, client, streams=True, there=SECRET, back=SECRET, model="another")
    assert signed(source, found) == [] or not source.spec.pins_seals
