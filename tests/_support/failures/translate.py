"""Requests and responses through the public core for the tests of failures, with all general checks.

`receive` feeds a stream in chunks of several sizes and requires the same legal bytes each time; tests then only assert
their own row's rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from laws.clients import endpoint_of, spec_of
from laws.turns import ASSEMBLE, NEXT
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    SIMPLE,
    Meaning,
    check_stream,
    check_whole,
    compare,
    meaning_of_client_stream,
    meaning_of_upstream,
    meaning_of_whole,
)
from oracle.frames import as_object, lenient_frames
from oracle.meaning import Stop
from translation import MODEL, NOW, RESPONSE_ID, client_request

from dragoman import (
    UPSTREAMS,
    Capabilities,
    Outcome,
    Relay,
    RequestTranslator,
    ResponseTranslator,
    TranslatedRequest,
    WireError,
)
from dragoman.codec import ResponseContext

Json = dict[str, Any]
SHORT = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses"}

# The widest range of servers.
WIDE = Capabilities()
# Bytes in a piece of the stream; 0 is all of it at once.
STEPS = (0, 1, 7)


def name_of(protocol: str) -> str:
    return SHORT.get(protocol, protocol.rpartition("/")[2])


def pairs(
    clients: Iterable[str] = PROTOCOL_NAMES, upstreams: Iterable[str] = PROTOCOL_NAMES
) -> pytest.MarkDecorator:
    """Parametrize `client` and `upstream` with all pairs of two protocols; `each_protocol` selects some of them."""
    found = [(client, upstream) for client in clients for upstream in upstreams if client != upstream]
    ids = [f"{name_of(client)}-from-{name_of(upstream)}" for client, upstream in found]
    return pytest.mark.parametrize(("client", "upstream"), found, ids=ids)


def every_pair(clients: Iterable[str] = CLIENTS) -> pytest.MarkDecorator:
    """Parametrize `client` and `upstream` with all pairs, also relays and clients of the simple API."""
    found = [(client, upstream) for client in clients for upstream in PROTOCOL_NAMES]
    ids = [f"{name_of(client)}-from-{name_of(upstream)}" for client, upstream in found]
    return pytest.mark.parametrize(("client", "upstream"), found, ids=ids)


def each(name: str, protocols: Iterable[str] = PROTOCOL_NAMES) -> pytest.MarkDecorator:
    """Parametrize one parameter with the protocols."""
    return pytest.mark.parametrize(name, list(protocols), ids=name_of)


# --- requests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UpstreamRequest:
    """What an upstream is sent for a client's request."""

    body: Json
    translated: TranslatedRequest

    @property
    def losses(self) -> dict[str, str]:
        """Path -> code of each loss."""
        return {loss.path: loss.code.value for loss in self.translated.losses}

    def response_context(self) -> ResponseContext:
        return self.translated.response_context(id=RESPONSE_ID, now=NOW)


def translate_request(
    client: str, upstream: str, body: Json, *, capabilities: Capabilities = WIDE, model: str = ""
) -> UpstreamRequest:
    """Translate a request, twice: the same request gives the same bytes."""
    translator = RequestTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        capabilities=capabilities,
        endpoint=endpoint_of(client),
    )
    data = json.dumps(body).encode()
    translated = translator.translate(data, model=model or None)
    assert translator.translate(data, model=model or None).body == translated.body
    return UpstreamRequest(json.loads(translated.body), translated)


# --- responses -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """What a client received for a streamed response."""

    client: str
    data: bytes
    machine: ResponseTranslator | Relay

    @cached_property
    def events(self) -> list[Json]:
        """The frames, decoded; a Chat stream's end mark left out."""
        found = [as_object(frame.data) for frame in lenient_frames(self.data)]
        return [payload for payload in found if payload is not None]

    @property
    def kinds(self) -> list[str]:
        """The types of the events, a Responses event without its prefix."""
        return [event["type"].removeprefix("response.") for event in self.events]

    def of(self, *kinds: str) -> list[Json]:
        """The events of these types."""
        return [e for e in self.events if e.get("type", "").removeprefix("response.") in kinds]

    @property
    def meaning(self) -> Meaning:
        return meaning_of_client_stream(self.client, self.data)

    @property
    def turn(self) -> Any:
        """The response as the client assembles it and sends it back."""
        return ASSEMBLE[self.client](self.data)

    @property
    def gist(self) -> list[tuple[str, str]]:
        """Kind and text of each block; of a call its name and arguments."""
        return gist(self.meaning)

    @property
    def finish(self) -> Any:
        """The stop reason in the client's protocol. None where the response failed."""
        if self.client == CHAT:
            reasons = [
                choice.get("finish_reason") for event in self.events for choice in event.get("choices", [])
            ]
            return next((reason for reason in reasons if reason), None)
        if self.client == MESSAGES:
            return next((event["delta"]["stop_reason"] for event in self.of("message_delta")), None)
        final = self.of("completed", "incomplete")
        if not final:
            return None
        details = final[0]["response"]["incomplete_details"]
        return details["reason"] if details else final[0]["response"]["status"]

    @property
    def usage(self) -> Json:
        """The figures in the client's own words; {} where there are none."""
        if self.client == CHAT:
            return next((event["usage"] for event in self.events if event.get("usage")), {})
        if self.client == MESSAGES:
            return next((event["usage"] for event in self.of("message_delta")), {})
        return next((event["response"]["usage"] for event in self.of("completed", "incomplete")), {})


def gist(meaning: Meaning) -> list[tuple[str, str]]:
    """Kind and text of each block; of a call its name and arguments."""
    return [
        (str(block.kind), f"{block.name}({block.text})" if block.kind == "call" else block.text)
        for block in meaning.blocks
    ]


def receive(
    upstream: str,
    client: str,
    stream: bytes,
    body: Json | None = None,
    *,
    translates: bool = False,
    include_usage: bool = True,
    ends: bool = True,
    breaks: WireError | None = None,
    capabilities: Capabilities = WIDE,
    allowed: str | None = None,
) -> Received:
    """Return what a client receives for an upstream's stream; check that it is the same for every chunking and legal.

    body: the client's request, by default a plain one. translates: between equal protocols, instead of relaying.
    ends: the connection is closed after the last byte; breaks: or it is lost there. allowed: the end of problems that
    the oracle may find.
    """
    body = body or client_request(client, upstream, None, include_usage=include_usage)
    requested = translate_request(client, upstream, body, capabilities=capabilities)
    context = requested.response_context()
    received = [
        _feed(upstream, client, stream, context, step, translates=translates, ends=ends, breaks=breaks)
        for step in STEPS
    ]
    for other in received[1:]:
        assert other.data == received[0].data, "the network may cut anywhere"
    if client != upstream or translates:
        problems = check_stream(client, received[0].data, include_usage=include_usage)
        assert [each for each in problems if allowed is None or not each.endswith(allowed)] == []
    return received[0]


def _feed(
    upstream: str,
    client: str,
    stream: bytes,
    context: ResponseContext,
    step: int,
    *,
    translates: bool,
    ends: bool,
    breaks: WireError | None,
) -> Received:
    machine: Relay | ResponseTranslator
    if upstream == client and not translates:
        machine = Relay(protocol=UPSTREAMS[client], context=context)
    else:
        machine = ResponseTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream], context=context)
    sent = b"".join(piecewise(machine, stream, step))
    if breaks is not None:
        machine.fail(breaks)
    elif ends:
        machine.receive_eof()
    return Received(client, sent + machine.data_to_send(), machine)


def piecewise(machine: Relay | ResponseTranslator, stream: bytes, step: int) -> list[bytes]:
    """What comes out behind each piece that goes in."""
    out: list[bytes] = []
    for at in range(0, len(stream), step or len(stream) or 1):
        machine.receive_data(stream[at : at + (step or len(stream))])
        out.append(machine.data_to_send())
    return out


def same_meaning(upstream: str, stream: bytes, received: Received) -> list[str]:
    """Return what the client's response lost or changed of the upstream's, by the oracle."""
    return compare(meaning_of_upstream(upstream, stream), received.meaning, received.client)


def receive_whole(upstream: str, client: str, response: bytes | Json, *, streams: bool = False) -> Json:
    """The one document that a client which does not stream gets for an upstream's, which may be a stream."""
    body = client_request(client, upstream, None, stream=False)
    data = response if isinstance(response, bytes) else json.dumps(response).encode()
    context = translate_request(client, upstream, body).response_context()
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context,
        upstream_streams=streams,
        client_streams=False,
    )
    machine.receive_data(data)
    machine.receive_eof()
    assert machine.error is None, machine.error
    sent = machine.data_to_send()
    assert check_whole(client, sent) == []
    if client not in SIMPLE:
        expected = meaning_of_upstream(upstream, data) if streams else meaning_of_whole(upstream, data)
        assert compare(expected, meaning_of_whole(client, sent), client) == []
    found: Json = json.loads(sent)
    return found


def sent_back(
    upstream: str, client: str, stream: bytes, *, capabilities: Capabilities = WIDE
) -> UpstreamRequest:
    """The next request to the upstream, after a turn of its own went through a client and came back."""
    received = receive(upstream, client, stream)
    return translate_request(
        client, upstream, NEXT[client](received.turn) | {"model": MODEL}, capabilities=capabilities
    )


def check_failed(received: Received) -> None:
    """It ended with an error in the client's own form, and with nothing that says that it is whole."""
    assert received.machine.outcome is Outcome.FAILED
    assert received.machine.error is not None
    assert received.meaning.stop is Stop.ERROR
    assert received.meaning.failure is not None
    assert received.meaning.failure.message
    if received.client in SIMPLE:
        return
    assert received.finish is None
    if received.client == CHAT:
        assert b"[DONE]" not in received.data
        assert list(received.events[-1]) == ["error"]
    elif received.client == MESSAGES:
        assert received.kinds[-1] == "error"
        assert not received.of("message_delta", "message_stop")
    else:
        assert received.kinds[-2:] == ["error", "failed"]
        assert not received.of("completed", "incomplete")
        (failed,) = received.of("failed")
        assert failed["response"]["status"] == "failed"
        assert failed["response"]["error"]["message"]
        assert failed["response"]["incomplete_details"] is None
