"""Sinks of a response's events: frames of a stream, one document or both for the client, or a list for a fan-out.

Streams are written event by event, whole bodies from the fold of the same events, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import msgspec

from dragoman._engine.linearizer import Linearizer
from dragoman._ir.assembly import AssembledBlock, Fold
from dragoman._ir.events import ENDED, Ended, Event, Failed, Started
from dragoman._ir.fast_path import Delta, with_texts
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSONObject, encode, encode_long
from dragoman.codec import ProtocolSpec, ResponseContext

# What is larger is joined where it is written, because a caller does that elsewhere than in its event loop.
_LARGE_BYTES = 256 * 1024


class ClientSink:
    """Writes events for the client as frames, nothing after a failure.

    Frames have one open block at a time if the client's protocol is sequential.

    Args:
        client: the client's protocol.
        context: of the response's request.
        ledger: where losses are recorded.
        store_response: `body` is set, also for a failed response if the protocol has a form for it.

    Attributes:
        heartbeat: Bytes that are legal between two events.
        body: The response as one document once it is complete, None before and for a stream that is not stored.
    """

    def __init__(
        self, client: ProtocolSpec, context: ResponseContext, ledger: Ledger, *, store_response: bool = False
    ) -> None:
        self._client = client
        self._context = context
        self._writer = client.framed_writer(context, ledger)
        self._linearizer = Linearizer() if client.sequential else None
        self._fold = Fold() if store_response else None
        self._out: list[bytes] = []
        self.body: JSONObject | None = None

    def send(self, event: Event) -> None:
        if self._fold is not None:
            self._fold.send(event)
            if type(event) is Ended or (type(event) is Failed and self._client.failed_bodies):
                self._complete(self._fold)
        writer, linearizer = self._writer, self._linearizer
        for each in (event,) if linearizer is None else linearizer.send(event):
            data = writer.send(each)
            self._out.append(data)
            if len(data) > _LARGE_BYTES or each is ENDED:
                self._join_large(at_end=each is ENDED)

    def _join_large(self, *, at_end: bool) -> None:
        """Join what is large, before the end only if it has doubled: else each large block would copy all before it."""
        size = sum(map(len, self._out))
        if size > _LARGE_BYTES and (at_end or size >= 2 * len(self._out[0])):
            self._out[:] = [b"".join(self._out)]

    def text_sender(self, delta: Delta) -> Callable[[list[str]], object]:
        """Return what takes the texts of deltas like this one, which was sent, until another event comes."""
        writer, put, fold = self._writer, self._out.append, self._fold

        def send_each(texts: list[str]) -> None:
            for each in with_texts(delta, texts):
                self.send(each)

        def send_texts(texts: list[str]) -> None:
            if fold is not None:
                fold.send_texts(delta, texts)
            put(writer.send_texts(delta, texts))

        waits = self._linearizer is not None and self._linearizer.current != delta.block
        return send_each if waits else send_texts

    @property
    def heartbeat(self) -> bytes:
        endpoint = self._context.endpoint or self._client.endpoints[0]
        return endpoint.heartbeat_for(self._context)

    @property
    def held_bytes(self) -> int:
        """See Linearizer."""
        return 0 if self._linearizer is None else self._linearizer.held_bytes

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _complete(self, fold: Fold) -> None:
        """Make the document. What it loses, the stream has lost already."""
        if not fold.started:
            fold.send(Started("", self._context.upstream_model))
        self.body = self._client.write_whole(fold.response(), self._context, Ledger())


class WholeSink(Fold):
    """Collects events for a client that gets one document, at the end, and nothing of a failed response.

    Its members are those of ClientSink. A Fold, because each event would take another call to get to one.
    """

    heartbeat: ClassVar = b""
    held_bytes: ClassVar = 0

    _client: ProtocolSpec
    _context: ResponseContext
    _ledger: Ledger
    _out: bytes = b""
    body: JSONObject | None = None

    def end(self, event: Ended) -> None:
        response = self.response()
        self.body = self._client.write_whole(response, self._context, self._ledger)
        is_long = any(type(each) is AssembledBlock and each.is_long for each in response.blocks)
        self._out = encode_long(self.body) if is_long else encode(self.body)

    def text_sender(self, delta: Delta) -> Callable[[list[str]], object]:
        return partial(self.send_texts, delta)

    def data_to_send(self) -> bytes:
        data, self._out = self._out, b""
        return data


def client_sink(
    client: ProtocolSpec, context: ResponseContext, ledger: Ledger, *, streams: bool, store_response: bool
) -> ClientSink | WholeSink:
    """Return the sink for a client that gets frames, if `streams`, or one document."""
    if streams:
        return ClientSink(client, context, ledger, store_response=store_response)
    return WholeSink(client, context, ledger)


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
