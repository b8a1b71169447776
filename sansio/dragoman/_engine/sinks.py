"""Sinks of a response's events: frames of a stream, one document or both for the client, or a list for a fan-out.

Streams are written event by event, whole bodies from the fold of the same events, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._engine.linearizer import Linearizer
from dragoman._ir.assembly import Fold
from dragoman._ir.events import Ended, Event, Failed, Started
from dragoman._ir.fast_path import Delta, with_texts
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import ProtocolSpec, ResponseContext


class ClientSink:
    """Writes events for the client: as frames, or as one document at the end, nothing after a failure.

    Frames have one open block at a time if the client's protocol is sequential.

    Args:
        client: the client's protocol.
        context: of the response's request.
        ledger: where losses are recorded.
        streams: the client gets frames.
        store_response: `body` is set for a stream too, also for a failed one if the protocol has a form for it.

    Attributes:
        heartbeat: Bytes that are legal between two events.
        body: The response as one document once it is complete, None before and for a stream that is not stored.
    """

    def __init__(
        self,
        client: ProtocolSpec,
        context: ResponseContext,
        ledger: Ledger,
        *,
        streams: bool = True,
        store_response: bool = False,
    ) -> None:
        self._client = client
        self._context = context
        self._writer = client.framed_writer(context, ledger) if streams else None
        self._linearizer = Linearizer() if streams and client.sequential else None
        self._fold = Fold() if store_response or not streams else None
        # What the whole body loses, the stream has lost already.
        self._ledger = Ledger() if streams else ledger
        self._out: list[bytes] = []
        self.body: JSONObject | None = None

    def send(self, event: Event) -> None:
        if self._fold is not None:
            self._fold.send(event)
            if type(event) is Ended or type(event) is Failed:
                self._complete(self._fold, event)
        writer, linearizer = self._writer, self._linearizer
        if writer is None:
            return
        for each in (event,) if linearizer is None else linearizer.send(event):
            self._out.append(writer.send(each))

    def text_sender(self, delta: Delta) -> Callable[[list[str]], object]:
        """Return what takes the texts of deltas like this one, which was sent, until another event comes."""
        writer, put, fold = self._writer, self._out.append, self._fold

        def send_each(texts: list[str]) -> None:
            for each in with_texts(delta, texts):
                self.send(each)

        def send_texts(texts: list[str]) -> None:
            if fold is not None:
                fold.send_texts(delta, texts)
            if writer is not None:
                put(writer.send_texts(delta, texts))

        waits = self._linearizer is not None and self._linearizer.current != delta.block
        return send_each if waits else send_texts

    @property
    def heartbeat(self) -> bytes:
        endpoint = self._context.endpoint or self._client.endpoints[0]
        return b"" if self._writer is None else endpoint.heartbeat_for(self._context)

    @property
    def held_bytes(self) -> int:
        """See Linearizer."""
        return 0 if self._linearizer is None else self._linearizer.held_bytes

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _complete(self, fold: Fold, last: Ended | Failed) -> None:
        """Make the document."""
        if type(last) is Failed:
            if self._writer is None or not self._client.failed_bodies:
                return
            if not fold.started:
                fold.send(Started("", self._context.upstream_model))
        self.body = self._client.write_whole(fold.response(), self._context, self._ledger)
        if self._writer is None:
            self._out.append(encode(self.body))


class ListSink(msgspec.Struct):
    """Collects the events themselves, for a fan-out."""

    events: list[Event] = []

    body, heartbeat, held_bytes = None, b"", 0

    def send(self, event: Event) -> None:
        self.events.append(event)

    def text_sender(self, delta: Delta) -> Callable[[list[str]], object]:
        return lambda texts: self.events.extend(with_texts(delta, texts))

    def data_to_send(self) -> bytes:
        return b""
