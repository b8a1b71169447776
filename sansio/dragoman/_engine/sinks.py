"""Where the events of an answer end up: frames of a stream, one document, or a list.

Strategy: an answer's machine knows one interface; what the client's body looks like is decided once, when the
sink is made. Streams are written event by event, whole bodies from the fold of the same events, so the two cannot
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman._engine.interleave import Linearizer
from dragoman._ir.assembly import Fold
from dragoman._ir.events import Ended, Event, Failed, Started
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import Exchange, ProtocolSpec


class Sink(Protocol):
    """Takes legal events. heartbeat: bytes that may stand between what it gives."""

    heartbeat: bytes

    def send(self, event: Event) -> None: ...

    def direct(self, block: int) -> Callable[[Event], object]:
        """What to call with deltas of this block as long as no other event comes: send() without its questions."""

    def take(self) -> bytes: ...


class StreamSink:
    """Prints events as frames, one open block at a time where the client's protocol wants it."""

    __slots__ = ("_linear", "_out", "_writer", "heartbeat")

    def __init__(self, client: ProtocolSpec, exchange: Exchange, ledger: Ledger) -> None:
        self._writer = client.stream_writer(exchange, ledger)
        self._linear = Linearizer() if client.sequential else None
        self._out: list[bytes] = []
        self.heartbeat = (exchange.endpoint or client.endpoints[0]).heartbeat

    def send(self, event: Event) -> None:
        linear = self._linear
        if linear is None or linear.passes(event):
            self._out.append(self._writer.send(event))
            return
        for each in linear.send(event):
            self._out.append(self._writer.send(each))

    def direct(self, block: int) -> Callable[[Event], object]:
        if self._linear is not None and self._linear.current != block:
            return self.send
        write, put = self._writer.send, self._out.append
        return lambda event: put(write(event))

    def take(self) -> bytes:
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data


class WholeSink:
    """Folds events and prints one JSON document at the end. A failure prints nothing."""

    __slots__ = ("_client", "_exchange", "_ledger", "_out", "body", "fold", "heartbeat")

    def __init__(self, client: ProtocolSpec, exchange: Exchange, ledger: Ledger) -> None:
        self._client = client
        self._exchange = exchange
        self._ledger = ledger
        self._out = b""
        self.fold = Fold()
        self.body: JSONObject | None = None
        self.heartbeat = b""

    def send(self, event: Event) -> None:
        self.fold.send(event)
        if type(event) is Ended:
            self.body = self._client.write_whole(self.fold.answer(), self._exchange, self._ledger)
            self._out = encode(self.body)

    def close_failed(self) -> None:
        """Print the failed answer, where the protocol has a form for it. The client does not get it as its body."""
        if self._client.failed_bodies:
            if not self.fold.started:
                self.fold.send(Started("", self._exchange.upstream_model))
            self.body = self._client.write_whole(self.fold.answer(), self._exchange, self._ledger)

    def direct(self, block: int) -> Callable[[Event], object]:
        return self.fold.send

    def take(self) -> bytes:
        out, self._out = self._out, b""
        return out


class KeepingSink:
    """A stream whose answer is also wanted whole."""

    __slots__ = ("_stream", "_whole", "heartbeat")

    def __init__(self, stream: StreamSink, whole: WholeSink) -> None:
        self._stream = stream
        self._whole = whole
        self.heartbeat = stream.heartbeat

    @property
    def body(self) -> JSONObject | None:
        return self._whole.body

    def send(self, event: Event) -> None:
        self._whole.send(event)
        self._stream.send(event)
        if type(event) is Failed:
            self._whole.close_failed()

    def direct(self, block: int) -> Callable[[Event], object]:
        keep, show = self._whole.direct(block), self._stream.direct(block)

        def put(event: Event) -> None:
            keep(event)
            show(event)

        return put

    def take(self) -> bytes:
        return self._stream.take()


class ListSink:
    """Collects the events themselves, for somebody who puts several answers together."""

    __slots__ = ("events", "heartbeat")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.heartbeat = b""

    def send(self, event: Event) -> None:
        self.events.append(event)

    def direct(self, block: int) -> Callable[[Event], object]:
        return self.events.append

    def take(self) -> bytes:
        return b""


def sink_for(
    client: ProtocolSpec, exchange: Exchange, ledger: Ledger, *, streams: bool, keep_whole: bool
) -> StreamSink | WholeSink | KeepingSink:
    """Where an answer goes: into frames, into a document, or into frames and a document that is kept."""
    if not streams:
        return WholeSink(client, exchange, ledger)
    stream = StreamSink(client, exchange, ledger)
    # What the whole body loses, the stream has lost already.
    return KeepingSink(stream, WholeSink(client, exchange, Ledger())) if keep_whole else stream
