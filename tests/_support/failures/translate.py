"""Requests and responses through the public core, with all general checks.

`receive` feeds a stream in chunks of several sizes and requires the same legal bytes each time.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from laws.clients import endpoint_of, spec_of
from laws.turns import ASSEMBLE
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_stream
from oracle.frames import as_object, lenient_frames
from translation import NOW, RESPONSE_ID

from dragoman import UPSTREAMS, Capabilities, RequestTranslator, ResponseTranslator, TranslatedRequest
from dragoman.codec import ResponseContext

Json = dict[str, Any]
SHORT = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses"}

# The widest range of servers.
WIDE = Capabilities()
# Bytes in a piece of the stream; 0 is all of it at once.
STEPS = (0, 1, 7)


def name_of(protocol: str) -> str:
    return SHORT.get(protocol, protocol.rpartition("/")[2])


def every_pair() -> pytest.MarkDecorator:
    """Parametrize `client` and `upstream` with all pairs, also relays."""
    found = [(client, upstream) for client in PROTOCOL_NAMES for upstream in PROTOCOL_NAMES]
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
    machine: ResponseTranslator

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
    def turn(self) -> Any:
        """The response as the client assembles it and sends it back."""
        return ASSEMBLE[self.client](self.data)


def receive(
    upstream: str,
    client: str,
    stream: bytes,
    body: Json,
    *,
    include_usage: bool = True,
    capabilities: Capabilities = WIDE,
    allowed: str | None = None,
) -> Received:
    """Return what a client receives for an upstream's stream; check that it is the same for every chunking and legal.

    allowed: the end of problems that the oracle may find.
    """
    requested = translate_request(client, upstream, body, capabilities=capabilities)
    context = requested.response_context()
    received = []
    for step in STEPS:
        machine = ResponseTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream], context=context)
        sent = b"".join(piecewise(machine, stream, step))
        machine.receive_eof()
        received.append(Received(client, sent + machine.data_to_send(), machine))
    for other in received[1:]:
        assert other.data == received[0].data, "the network may cut anywhere"
    problems = check_stream(client, received[0].data, include_usage=include_usage)
    assert [each for each in problems if allowed is None or not each.endswith(allowed)] == []
    return received[0]


def piecewise(machine: ResponseTranslator, stream: bytes, step: int) -> list[bytes]:
    """What comes out behind each piece that goes in."""
    out: list[bytes] = []
    for at in range(0, len(stream), step or len(stream) or 1):
        machine.receive_data(stream[at : at + (step or len(stream))])
        out.append(machine.data_to_send())
    return out
