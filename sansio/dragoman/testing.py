"""Helpers for the tests of embedders.

chop() gives the ways in which a network may cut bytes; read_events() returns the events of a stream; Pair joins a
client and an upstream in memory, with the relay if both speak one protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dragoman._engine.event_reader import NEED_DATA, EventReader
from dragoman._engine.relay import Relay
from dragoman._engine.request import RequestTranslator, TranslatedRequest
from dragoman._engine.response import ResponseTranslator
from dragoman._engine.response_machine import Outcome
from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import Event
from dragoman._ir.losses import Ledger, LossPolicy
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import Capabilities, Endpoint, ProtocolSpec, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec

__all__ = ["PLACES", "EventOrderChecker", "Pair", "ResponseState", "chop", "read_events"]

# The sizes of pieces in which chop() cuts: primes, so that the cuts are at ever other places of frames.
_SIZES = (1, 2, 3, 7, 61, 1021)

# The number of places at which chop() cuts data in two. Fewer than a long stream has, because each costs a run.
PLACES = 64


def chop(data: bytes, *, places: int = PLACES) -> Iterator[list[bytes]]:
    """Give ways to cut `data`, as a network might: whole, byte by byte, in pieces of some sizes, and in two.

    The pieces of each way, joined, are `data`. `data` is cut in two at every place, both ends included, or at about
    `places` of them, evenly spread, if there are more. The same data gives the same ways.
    """
    yield [data]
    for size in _SIZES:
        yield [data[at : at + size] for at in range(0, len(data), size)]
    step = max(len(data) // max(places, 1), 1)
    for at in range(0, len(data) + 1, step):
        yield [data[:at], data[at:]]


def read_events(protocol: UpstreamSpec | str, stream: bytes | Iterable[bytes]) -> list[Event]:
    """Return the events of a whole stream, from Started to Ended or Failed.

    Raises RemoteProtocolError if the stream breaks its protocol or ends too early.
    """
    reader = EventReader(protocol)
    found: list[Event] = []
    for piece in [stream] if isinstance(stream, bytes) else stream:
        reader.receive_data(piece)
        found += _ready(reader)
    reader.receive_eof()
    return [*found, *_ready(reader)]


def _ready(reader: EventReader) -> Iterator[Event]:
    while (event := reader.next_event()) is not NEED_DATA:
        yield event


class Pair:
    """A client and an upstream, joined in memory. Call translate_request(), then translate_response().

    Args:
        client: the client's protocol, by name or by spec.
        upstream: the upstream's protocol, by name or by spec.
        capabilities: as for RequestTranslator.
        policy: as for RequestTranslator.
        signer: as for RequestTranslator.
        model: the upstream's name for the model, by default the client's.
        endpoint: as for RequestTranslator.

    Attributes:
        translated: The request, None before translate_request().
        outcome: How the response ended.
        error: Why it FAILED, else None.
        losses: The response's. The request's are in `translated`.
    """

    def __init__(
        self,
        *,
        client: ProtocolSpec | str,
        upstream: UpstreamSpec | str,
        capabilities: Capabilities = Capabilities(),
        policy: LossPolicy = LossPolicy.RECORD,
        signer: Signer = Signer(),
        model: str | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        self.translated: TranslatedRequest | None = None
        self.outcome = Outcome.OPEN
        self.error: WireError | None = None
        self.losses = Ledger()
        self._client = client_spec(client)
        self._upstream = upstream_spec(upstream)
        self._signer = signer
        self._model = model
        self._requests = RequestTranslator(
            client=client,
            upstream=upstream,
            capabilities=capabilities,
            policy=policy,
            signer=signer,
            endpoint=endpoint,
        )

    def translate_request(self, body: bytes | JSONObject) -> bytes:
        """Return the body for the upstream. Raises what RequestTranslator.translate() raises."""
        self.translated = self._requests.translate(
            body if isinstance(body, bytes) else encode(body), model=self._model
        )
        return self.translated.body

    def translate_response(
        self, body: bytes | Iterable[bytes], *, streams: bool | None = None, error: WireError | None = None
    ) -> bytes:
        """Return the body for the client. The upstream's body comes in one piece or in several.

        Args:
            body: the upstream's body.
            streams: it is a stream of events, by default as the client requested.
            error: why the connection broke off after it; None for a clean end.

        Raises ValueError without a request. A failed whole response is b"": see `error`.
        """
        if self.translated is None:
            raise ValueError("call translate_request() first: a response depends on its request")
        streams = self.translated.request.stream if streams is None else streams
        context = self.translated.response_context(id="test", now=0, signer=self._signer)
        machine: Relay | ResponseTranslator
        if self.translated.relayed and streams == self.translated.request.stream:
            machine = Relay(protocol=self._upstream, context=context, streams=streams)
        else:
            machine = ResponseTranslator(
                client=self._client, upstream=self._upstream, context=context, upstream_streams=streams
            )
        sent: list[bytes] = []
        for piece in [body] if isinstance(body, bytes) else body:
            machine.receive_data(piece)
            sent.append(machine.data_to_send())
        if error is None:
            machine.receive_eof()
        else:
            machine.fail(error)
        sent.append(machine.data_to_send())
        self.outcome, self.error, self.losses = machine.outcome, machine.error, machine.losses
        return b"".join(sent)
