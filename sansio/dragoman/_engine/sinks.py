"""Sinks of a response's events: frames of a stream, one document, or a list.

Streams are written event by event, whole bodies from the fold of the same events, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman._engine.linearizer import Linearizer
from dragoman._ir.assembly import Fold
from dragoman._ir.events import Ended, Event, Failed, Started
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import ProtocolSpec, ResponseContext


class Sink(Protocol):
    """Takes legal events.

    Attributes:
        heartbeat: Bytes that are legal between those of two events.
        body: The response as one document once it is complete, None in sinks that write none.
    """

    heartbeat: bytes

    @property
    def body(self) -> JSONObject | None: ...

    def send(self, event: Event) -> None: ...

    def delta_sender(self, block: int) -> Callable[[Event], object]:
        """Return what takes deltas of this block, faster than send(), until another event comes."""

    def data_to_send(self) -> bytes: ...


class StreamSink:
    """Writes events as frames, with one open block at a time if the client's protocol is sequential."""

    __slots__ = ("_linearizer", "_out", "_writer", "heartbeat")

    body: None = None

    def __init__(self, client: ProtocolSpec, context: ResponseContext, ledger: Ledger) -> None:
        self._writer = client.stream_writer(context, ledger)
        self._linearizer = Linearizer() if client.sequential else None
        self._out: list[bytes] = []
        self.heartbeat = (context.endpoint or client.endpoints[0]).heartbeat

    def send(self, event: Event) -> None:
        linearizer = self._linearizer
        if linearizer is None or linearizer.passes_through(event):
            self._out.append(self._writer.send(event))
            return
        for each in linearizer.send(event):
            self._out.append(self._writer.send(each))

    def delta_sender(self, block: int) -> Callable[[Event], object]:
        if self._linearizer is not None and self._linearizer.current != block:
            return self.send
        write, put = self._writer.send, self._out.append
        return lambda event: put(write(event))

    def data_to_send(self) -> bytes:
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data


class WholeSink:
    """Folds events and writes one JSON document at the end, nothing after a failure."""

    __slots__ = ("_client", "_context", "_ledger", "_out", "body", "fold", "heartbeat")

    def __init__(self, client: ProtocolSpec, context: ResponseContext, ledger: Ledger) -> None:
        self._client = client
        self._context = context
        self._ledger = ledger
        self._out = b""
        self.fold = Fold()
        self.body: JSONObject | None = None
        self.heartbeat = b""

    def send(self, event: Event) -> None:
        self.fold.send(event)
        if type(event) is Ended:
            self.body = self._client.write_whole(self.fold.response(), self._context, self._ledger)
            self._out = encode(self.body)

    def close_failed(self) -> None:
        """Write the failed response, if the protocol has a form for it. It is not the client's body."""
        if self._client.failed_bodies:
            if not self.fold.started:
                self.fold.send(Started("", self._context.upstream_model))
            self.body = self._client.write_whole(self.fold.response(), self._context, self._ledger)

    def delta_sender(self, block: int) -> Callable[[Event], object]:
        return self.fold.send

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out


class StoringSink:
    """Writes a stream, and the same response as one document."""

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

    def delta_sender(self, block: int) -> Callable[[Event], object]:
        store, stream = self._whole.delta_sender(block), self._stream.delta_sender(block)

        def send(event: Event) -> None:
            store(event)
            stream(event)

        return send

    def data_to_send(self) -> bytes:
        return self._stream.data_to_send()


class ListSink:
    """Collects the events themselves, for a fan-out."""

    __slots__ = ("events", "heartbeat")

    body: None = None

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.heartbeat = b""

    def send(self, event: Event) -> None:
        self.events.append(event)

    def delta_sender(self, block: int) -> Callable[[Event], object]:
        return self.events.append

    def data_to_send(self) -> bytes:
        return b""


def sink_for(
    client: ProtocolSpec, context: ResponseContext, ledger: Ledger, *, streams: bool, store_response: bool
) -> StreamSink | WholeSink | StoringSink:
    """Return the sink for frames, for a document, or for frames and a document that is stored."""
    if not streams:
        return WholeSink(client, context, ledger)
    stream = StreamSink(client, context, ledger)
    # What the whole body loses, the stream has lost already.
    return StoringSink(stream, WholeSink(client, context, Ledger())) if store_response else stream
