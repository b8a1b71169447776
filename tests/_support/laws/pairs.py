"""The laws that hold for every pair of protocols, whatever the upstream's stream.

A response is the same for any chunking, streamed or whole, and each time; written streams are read again with the same
meaning; a truncated stream is never a success; and signed reasoning comes back to its vendor unchanged.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.clients import endpoint_of, spec_of
from laws.turns import ASSEMBLE, CARRIERS, NEXT, WHOLE, turn_of
from oracle import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    Stop,
    as_object,
    check_stream,
    compare,
    meaning_of_stream,
    meaning_of_whole,
)

from dragoman import (
    NEED_DATA,
    UPSTREAMS,
    EventReader,
    Ledger,
    Relay,
    RequestTranslator,
    ResponseTranslator,
    Signer,
)
from dragoman._ir.assembly import AssembledBlock, AssembledResponse, Fold
from dragoman.codec import ResponseContext, UpstreamSpec
from dragoman.document import Request
from dragoman.events import Event
from dragoman.testing import chop

OPEN = Signer()
SECRET = Signer(b"a secret of the gateway")
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


def requested(client: str, *, streams: bool = True, signer: Signer = OPEN) -> ResponseContext:
    request = Request(
        protocol=spec_of(client).name, model="alias", messages=(), stream=streams, params={"stop": ["STOP"]}
    )
    return ResponseContext(
        request=request,
        id="0123456789abcdef",
        now=1,
        model="alias",
        signer=signer,
        prompt_tokens=7,
        upstream_model="m",
        endpoint=endpoint_of(client),
    )


def translated_response(
    source: Source,
    client: str,
    chunks: list[bytes] | None = None,
    *,
    streams: bool = True,
    relay: bool = False,
    signer: Signer = OPEN,
) -> bytes:
    """Return what a client gets for a source, in chunks or at once. Not relayed unless requested."""
    context = requested(client, streams=streams, signer=signer)
    machine: Relay | ResponseTranslator
    if relay:
        machine = Relay(protocol=UPSTREAMS[client], context=context)
    else:
        machine = ResponseTranslator(client=spec_of(client), upstream=source.spec, context=context)
    sent = b""
    for chunk in [source.stream] if chunks is None else chunks:
        machine.receive_data(chunk)
        sent += machine.data_to_send()
    machine.receive_eof()
    return sent + machine.data_to_send()


@cache
def completes(source: Source) -> bool:
    return meaning_of_stream(source.protocol, source.stream).stop not in (Stop.CUT, Stop.ERROR)


# --- any cutting of the input gives the same bytes ------------------------------------------------------------


def the_network_may_cut_anywhere(source: Source, client: str) -> None:
    for relay in (False, True) if source.protocol == client else (False,):
        whole = translated_response(source, client, relay=relay)
        if len(source.stream) <= SHORT:
            ways = chop(source.stream, places=8)
            assert all(translated_response(source, client, chunks, relay=relay) == whole for chunks in ways)
        else:
            _check_random_cuts(source, client, relay, whole)


def _check_random_cuts(source: Source, client: str, relay: bool, whole: bytes) -> None:
    size = len(source.stream)

    @CUTS
    @given(st.lists(st.integers(0, size), max_size=40))
    def check(places: list[int]) -> None:
        ends = sorted({*places, size})
        chunks = [source.stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        assert translated_response(source, client, chunks, relay=relay) == whole

    check()


def line_endings_do_not_matter(source: Source, client: str) -> None:
    lines = source.stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    sent = translated_response(Source(source.name, source.protocol, lines, source.spec), client)
    for ending in (b"\r\n", b"\r"):
        other = Source(source.name, source.protocol, lines.replace(b"\n", ending), source.spec)
        assert translated_response(other, client) == sent, ending


# --- the same input gives the same bytes ----------------------------------------------------------------------


def the_same_response_twice(source: Source, client: str) -> None:
    assert translated_response(source, client) == translated_response(source, client)


# --- a relay changes nothing ----------------------------------------------------------------------------------


def a_relay_changes_nothing(source: Source, client: str) -> None:
    """Up to the last event. What some servers send behind it is none of the protocol's."""
    relayed = translated_response(source, client, relay=True)
    assert source.stream.startswith(relayed)
    expected = meaning_of_stream(source.protocol, source.stream)
    assert compare(expected, meaning_of_stream(client, relayed), client) == []


# --- streamed and folded is what is translated whole ----------------------------------------------------------


def events_in(protocol: str, stream: bytes) -> list[Event]:
    """By the strict reader of a protocol, which knows what was requested."""
    reader = EventReader(UPSTREAMS[protocol], requested(protocol))
    reader.receive_data(stream)
    reader.receive_eof()
    found = []
    while (event := reader.next_event()) is not NEED_DATA:
        found.append(event)
    return found


def folded(protocol: str, stream: bytes) -> AssembledResponse:
    fold = Fold()
    for event in events_in(protocol, stream):
        fold.send(event)
    return fold.response()


def read_whole(protocol: str, body: bytes) -> AssembledResponse:
    fold = Fold()
    for event in UPSTREAMS[protocol].read_whole(json.loads(body), requested(protocol), Ledger()):
        fold.send(event)
    return fold.response()


def gist(assembled: AssembledResponse, protocol: str) -> Any:
    """What a response says, without numbers of blocks. Chat's whole message has no order between its members."""
    blocks: list[Any] = []
    for block in assembled.blocks:
        if not isinstance(block, AssembledBlock):
            blocks.append(("opaque", block.kind, block.native))
            continue
        if block.tool is None:
            text = "\n\n".join(part.text for part in block.reasoning) or block.text
            cites = [annotation.native for annotation in block.annotations]
            # Responses' events leave out the `bytes` of tokens.
            tokens = [(token["token"], token["logprob"]) for token in block.logprobs]
            signature = block.signature and (block.signature.origin, block.signature.native)
            if protocol == GEMINI and signature:  # streamed, it comes behind its text
                signature = (GEMINI, block.signature.native["thoughtSignature"])
            blocks.append((block.kind.value, text, cites, tokens, block.complete, signature))
        else:
            blocks.append((block.kind.value, *called(block, protocol)))
    if protocol == CHAT:
        blocks.sort(key=lambda block: block[0])
        texts = {
            kind: "".join(b[1].replace("\n\n", "") for b in blocks if b[0] == kind)
            for kind in ("text", "reasoning")
        }
        blocks = [texts, *[block for block in blocks if block[0] not in texts]]
    stops = [(stop.reason, stop.sequence, stop.explanation) for stop in assembled.stops if stop.choice == 0]
    # Streams may report the tier late; Messages cannot.
    tier = None if protocol == MESSAGES else assembled.service_tier
    usage = msgspec.structs.replace(assembled.usage, service_tier=None)
    return blocks, stops, usage, tier, assembled.started.model


def called(block: AssembledBlock, protocol: str) -> Any:
    """A call. A whole Messages response holds its input as an object: it cannot show where half of one was cut."""
    head = block.tool
    assert head is not None
    text, complete = block.text.strip() or "{}", block.complete
    if protocol == MESSAGES:
        complete = True
        value = as_object(text)
        text = text if value is None else str(value.get("_raw") or json.dumps(value))
    return head.call_id, head.name, head.kind, text, complete


def streamed_and_folded_is_what_is_translated_whole(source: Source, client: str) -> None:
    streamed = folded(client, translated_response(source, client))
    whole = read_whole(client, translated_response(source, client, streams=False))
    assert gist(streamed, client) == gist(whole, client)


def a_whole_response_means_what_its_stream_means(source: Source, client: str) -> None:
    """The upstream's response, once as a stream and once whole, says the same to the client."""
    body = translated_response(source, source.protocol, streams=False)
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[source.protocol],
        context=requested(client, streams=False),
        upstream_streams=False,
    )
    machine.receive_data(body)
    machine.receive_eof()
    expected, whole = (
        meaning_of_stream(source.protocol, source.stream),
        meaning_of_whole(source.protocol, body),
    )
    assert compare(expected, whole, source.protocol) == []
    assert compare(whole, meaning_of_whole(client, machine.data_to_send()), client) == []


# --- what a client gets is what its vendor could have sent ---------------------------------------------------------


def a_client_gets_a_legal_stream_that_means_the_same(source: Source, client: str) -> None:
    sent = translated_response(source, client)
    if source.protocol != client:  # in its own protocol a vendor's deviations stay
        assert check_stream(client, sent, include_usage=True) == []
    expected = meaning_of_stream(source.protocol, source.stream)
    assert compare(expected, meaning_of_stream(client, sent), client) == []


# --- what breaks off is never a success -----------------------------------------------------------------------


@cache
def broken_off(source: Source) -> list[Source]:
    """The source without its last frames, as long as what says that it is complete has not come."""
    ends = [found.end() for found in re.finditer(rb"\n\n|\r\n\r\n", source.stream)]
    step = max(len(ends) // BOUNDARIES, 1)
    found = []
    for end in sorted({0, *ends[::step], *ends[-6:]}):
        prefix = Source(source.name, source.protocol, source.stream[:end])
        if meaning_of_stream(source.protocol, prefix.stream).stop is not Stop.CUT:
            break
        found.append(prefix)
    return found


def what_breaks_off_is_never_a_success(source: Source, client: str) -> None:
    for prefix in broken_off(source):
        sent = translated_response(prefix, client, relay=source.protocol == client)
        expected, received = (
            meaning_of_stream(source.protocol, prefix.stream),
            meaning_of_stream(client, sent),
        )
        assert received.stop is Stop.ERROR, len(prefix.stream)
        # A part of a wrapped input is no JSON, and cannot be compared.
        if not any(call.custom for call in expected.calls):
            assert compare(expected, received, client) == []
        assert translated_response(prefix, client, streams=False) == b"", len(prefix.stream)


# --- wrapped reasoning comes back to its vendor -----------------------------------------------------------------


@cache
def carriers(source: Source) -> list[Any]:
    return CARRIERS[source.protocol](ASSEMBLE[source.protocol](source.stream))


def sent_back(
    source: Source, client: str, *, streams: bool, there: Signer, back: Signer, model: str = "m"
) -> list[Any]:
    """What of the upstream's wrapped reasoning is in the next request to it, after a turn through a client."""
    sent = translated_response(source, client, streams=streams, signer=there)
    turn = ASSEMBLE[client](sent) if streams else WHOLE[client](json.loads(sent))
    body = json.dumps(NEXT[client](turn)).encode()
    translator = RequestTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[source.protocol], signer=back)
    sent_on = translator.translate(body, model=model).body
    return CARRIERS[source.protocol](turn_of(source.protocol, json.loads(sent_on)))


def bag(found: list[Any], protocol: str) -> Any:
    # Chat has one field for all the reasoning of a turn: several blocks are joined there.
    if protocol != CHAT:
        return found
    texts = ["".join(entry[1:]) for entry in found if len(entry) == 2]
    return sorted({*texts[:1]}), sorted((entry[1:] for entry in found if len(entry) == 3), key=str)


def signed(source: Source, found: list[Any]) -> list[Any]:
    """What only its model can read: no phases, and no plain text."""
    return [entry for entry in found if type(entry) is dict or len(entry) == 3]


def signed_reasoning_comes_back(source: Source, client: str) -> None:
    for signer in (OPEN, SECRET):
        for streams in (True, False):
            found = sent_back(source, client, streams=streams, there=signer, back=signer)
            assert bag(found, source.protocol) == bag(carriers(source), source.protocol)


def forged_reasoning_does_not(source: Source, client: str) -> None:
    for forger in (Signer(), Signer(b"another secret")):
        found = sent_back(source, client, streams=True, there=forger, back=SECRET)
        assert signed(source, found) == []


def reasoning_of_another_model_does_not(source: Source, client: str) -> None:
    found = sent_back(source, client, streams=True, there=SECRET, back=SECRET, model="another")
    assert signed(source, found) == [] or not source.spec.model_bound_signatures


# --- which law is for which pairs --------------------------------------------------------------------------------


def _every(source: Source, client: str) -> bool:
    return True


def _of_the_source(source: Source, client: str) -> bool:
    """What a law says of how the upstream's stream is read: who gets it does not matter, so one client is enough."""
    return client == PROTOCOL_NAMES[(PROTOCOL_NAMES.index(source.protocol) + 1) % len(PROTOCOL_NAMES)]


def _of_one_protocol(source: Source, client: str) -> bool:
    return source.protocol == client and completes(source)


def _complete(source: Source, client: str) -> bool:
    return completes(source)


def _signed(source: Source, client: str) -> bool:
    return _complete(source, client) and source.protocol != client and bool(carriers(source))


Law = Callable[[Source, str], None]
LAWS: dict[Law, Callable[[Source, str], bool]] = {
    the_network_may_cut_anywhere: _every,
    line_endings_do_not_matter: _of_the_source,
    the_same_response_twice: _of_the_source,
    a_relay_changes_nothing: _of_one_protocol,
    streamed_and_folded_is_what_is_translated_whole: _complete,
    a_whole_response_means_what_its_stream_means: _complete,
    a_client_gets_a_legal_stream_that_means_the_same: _every,
    what_breaks_off_is_never_a_success: _every,
    signed_reasoning_comes_back: _signed,
    forged_reasoning_does_not: _signed,
    reasoning_of_another_model_does_not: _signed,
}
