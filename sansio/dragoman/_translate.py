"""Requests one way, answers the other way: the machines that put readers, passes and writers together.

Strategy: a request is decoded, read, fitted to the target and written; an answer goes reader -> checker ->
stages -> writer, one event at a time. Neither knows which protocols it joins. Same protocol on both sides is
not their business: that is `_relay`, which never decodes what it passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec

from ._calls import CallStage
from ._errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from ._events import (
    ArgumentsDelta,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from ._fault import Fault, FaultKind, kind_of_status
from ._fold import Fold
from ._foreign import leave_protocol
from ._grammar import Checker
from ._json import MAX_DOCUMENT_BYTES, decode_object, encode, too_deep
from ._lane import Lane
from ._linearize import Linearizer
from ._loss import Ledger, LossCode, Policy
from ._request import Request
from ._seal import Sealer
from ._spec import Exchange, ProtocolSpec, StreamWriter, Target
from ._splice import Peek, peek, splice_model
from ._sse import SSEParser, parse_piece
from ._tools import ToolBook, fit_tools

# A token of English text or code is about four bytes of JSON. Only for figures that a protocol wants before
# the upstream tells the true ones.
_BYTES_PER_TOKEN = 4


class Outcome(Enum):
    """How an answer ended."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


class TranslatedRequest(msgspec.Struct, frozen=True):
    """A request, ready for the upstream.

    body: the bytes to send.
    request: what the client asked.
    losses: what could not be carried.
    tools: for the way back; give it to ResponseTranslator.
    relayed: the protocols are the same and only the model name was changed.
    prompt_tokens: a rough estimate of the prompt's size.
    """

    body: bytes
    request: Request
    losses: Ledger
    tools: ToolBook
    relayed: bool
    prompt_tokens: int

    def exchange(self, *, id: str, now: int, model: str | None = None, sealer: Sealer = Sealer()) -> Exchange:
        """What the answer's side must know. id: letters and digits, unique. now: seconds since the epoch.

        model is the name that the client is told, by default the one that it asked for.
        """
        return Exchange(
            request=self.request,
            id=id,
            now=now,
            model=model or self.request.model,
            sealer=sealer,
            prompt_tokens=self.prompt_tokens,
        )


class RequestTranslator:
    """Translates requests of one client protocol for one upstream.

    Args:
        client, upstream: the protocols, from REGISTRY.
        target: what the upstream takes beyond its protocol.
        policy: what to do about losses.
        sealer: opens reasoning that was sealed on the way to the client.
    """

    def __init__(
        self,
        client: ProtocolSpec,
        upstream: ProtocolSpec,
        *,
        target: Target = Target(),
        policy: Policy = Policy.RECORD,
        sealer: Sealer = Sealer(),
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._target = target
        self._policy = policy
        self._sealer = sealer

    def translate(
        self, body: bytes, *, model: str | None = None, peeked: Peek | None = None
    ) -> TranslatedRequest:
        """Translate one request body. model is the upstream's name for the model, by default the client's.

        peeked is what peek() gave for this body, for a caller who has looked already.

        Raises RemoteProtocolError for a body that breaks the client's protocol, that asks for what the
        upstream cannot do at all, or (policy REFUSE) that cannot be carried whole. Answer it in the client's
        own form:
        `client.write_fault(fault_of(error), ...)`.
        """
        if self._client.name == self._upstream.name:
            return self._relay(body, model, peeked)
        try:
            return self._translate(body, model)
        except RecursionError:
            raise too_deep() from None

    def _translate(self, body: bytes, model: str | None) -> TranslatedRequest:
        request = self._client.read_request(decode_object(body, "the request body"), self._sealer)
        ledger = Ledger()
        fitted, book = fit_tools(leave_protocol(request, ledger), self._upstream.tools, self._target, ledger)
        if model is not None:
            fitted = msgspec.structs.replace(fitted, model=model)
        out = self._upstream.write_request(fitted, self._target, ledger)
        ledger.enforce(self._policy)
        return TranslatedRequest(encode(out), request, ledger, book, False, len(body) // _BYTES_PER_TOKEN)

    def _relay(self, body: bytes, model: str | None, peeked: Peek | None) -> TranslatedRequest:
        peeked = peeked or peek(body)
        if not peeked.model:
            raise RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")
        request = Request(
            protocol=self._client.name, model=peeked.model, messages=(), raw={}, stream=peeked.stream
        )
        spliced = body if model is None else splice_model(body, peeked, model)
        return TranslatedRequest(spliced, request, Ledger(), ToolBook(), True, len(body) // _BYTES_PER_TOKEN)


class ResponseTranslator:
    """Translates one answer, streamed or whole, as its bytes arrive.

    Feed it with receive_data() and receive_eof(), take what is ready with data_to_send(). When the upstream
    cannot go on (timeout, reset), call fail().

    Args:
        upstream, client: the protocols.
        exchange: from TranslatedRequest.exchange().
        tools: from TranslatedRequest.tools.
        upstream_streams: whether the upstream's body is a stream of events or one JSON document.
        client_streams: the same for the client's body, by default as the client asked.

    A whole answer for the client is given at once, after the end; when it fails instead, nothing is given and
    `fault` says why, so that a plain HTTP error can be sent.
    """

    def __init__(
        self,
        upstream: ProtocolSpec,
        client: ProtocolSpec,
        exchange: Exchange,
        *,
        tools: ToolBook = ToolBook(),
        upstream_streams: bool = True,
        client_streams: bool | None = None,
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.fault: Fault | None = None
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self.upstream_model: str | None = None
        self.upstream_id: str | None = None
        # Whether content went out. Until then an error can still be a plain HTTP error.
        self.committed = False
        self._client = client
        self._upstream = upstream
        self._exchange = exchange
        self._sse = SSEParser() if upstream_streams else None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._reader = upstream.stream_reader(exchange, self.losses)
        self._lane = Lane()
        self._checker = Checker()
        self._calls = CallStage(tools, client.tools, exchange.id, self.losses)
        streams = exchange.request.stream if client_streams is None else client_streams
        self._sink: _StreamSink | _WholeSink
        if streams:
            self._sink = _StreamSink(client, client.stream_writer(exchange, self.losses))
        else:
            self._sink = _WholeSink(client, exchange, self.losses)
        self._skipped: set[int] = set()  # blocks of choices that the client's protocol cannot show

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the upstream's body. Never raises for what the peer did: see `outcome`, `fault`."""
        if self.outcome is not Outcome.OPEN:
            return
        if self._sse is None:
            self._body_bytes += len(data)
            if self._body_bytes <= MAX_DOCUMENT_BYTES:
                self._body.append(data)
            else:
                self._body.clear()
                self._break(RemoteProtocolError(f"it has more than {MAX_DOCUMENT_BYTES} bytes"))
            return
        try:
            self._read(self._sse.receive_pieces(data))
        except RecursionError:
            self._break(too_deep())
        if self._sse.error is not None:
            self._break(self._sse.error)

    def receive_eof(self) -> None:
        """The upstream's body ended cleanly. An answer without its end event becomes an error."""
        if self.outcome is not Outcome.OPEN:
            return
        try:
            self._end()
        except RecursionError:
            self._break(too_deep())

    def _end(self) -> None:
        if self._sse is None:
            self._read_whole()
            return
        tail = self._sse.receive_eof()
        if self._sse.error is not None:
            self._break(self._sse.error)
            return
        if tail:
            try:
                events = self._reader.read(tail[0])
            except RemoteProtocolError:
                events = ()  # cut in the middle of the frame: the end of the stream says what that means
            self._take(events)
        if self.outcome is Outcome.OPEN:
            try:
                events = self._reader.eof()
            except RemoteProtocolError as error:
                self.fail(Fault(FaultKind.TRUNCATED, error.message))
                return
            self._take(events)
        if self.outcome is Outcome.OPEN:
            self.fail(Fault(FaultKind.TRUNCATED, "the upstream's answer ended before it was complete"))

    def fail(self, fault: Fault) -> None:
        """End the answer with an error, in the client's own form. No effect once it has ended."""
        if self.outcome is not Outcome.OPEN:
            return
        self.outcome = Outcome.FAILED
        self.fault = fault
        self._sink.send(Failed(fault))

    def data_to_send(self) -> bytes:
        """What the client gets now: whole frames, or a whole body at the end. b"" when nothing is ready."""
        return self._sink.take()

    def heartbeat(self) -> bytes:
        """Bytes that show the client that the connection lives; between frames, while the answer streams."""
        return self._sink.heartbeat if self.outcome is Outcome.OPEN else b""

    def _read(self, pieces: Iterable[bytes]) -> None:
        lane = self._lane
        for piece in pieces:
            if lane.text_of is not None:
                # The hot path: equal in kind to the delta before, which was checked and shown.
                text = lane.text_of(piece)
                if text is not None:
                    lane.emit(text)
                    continue
            frame = parse_piece(piece)
            if frame is None:
                continue
            lane.forget()
            try:
                events = self._reader.read(frame)
            except RemoteProtocolError as error:
                self._break(error)
                return
            if events:
                self._take(events)
                if self.outcome is not Outcome.OPEN:
                    return
                if len(events) == 1 and lane.wants():
                    self._learn(piece, events[0])

    def _learn(self, piece: bytes, event: Event) -> None:
        if (
            isinstance(event, (TextDelta, ReasoningDelta, ArgumentsDelta))
            and event.block not in self._skipped
        ):
            hint = self._reader.lane(event)
            if hint is not None:
                arguments = isinstance(event, ArgumentsDelta)
                put = self._put_staged if arguments else self._sink.direct(event.block)
                self._lane.keep(piece, event, hint, put)

    def _put_staged(self, event: Event) -> None:
        for staged in self._calls.send(event):
            self._sink.send(staged)

    def _read_whole(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        try:
            value = decode_object(body, "the upstream's answer")
            events = self._upstream.read_whole(value, self._exchange, self.losses)
        except RemoteProtocolError as error:
            self._break(error)
            return
        self._take(events)
        if self.outcome is Outcome.OPEN:
            self.fail(Fault(FaultKind.TRUNCATED, "the upstream's answer is not complete"))

    def _break(self, error: ProtocolError) -> None:
        message = f"the upstream's answer cannot be read: {error}"
        self.fail(Fault(FaultKind.SERVER, message, status=502))

    def _take(self, events: Sequence[Event]) -> None:
        """Check events and pass them on, until the answer ends."""
        check = self._checker.check
        skipped = self._skipped
        send = self._sink.send
        for event in events:
            kind = type(event)
            try:
                check(event)
            except LocalProtocolError as error:
                self._break(error)
                return
            if kind is TextDelta or kind is ReasoningDelta:  # the hot path: nothing to do but print
                if not skipped or event.block not in skipped:  # type: ignore[union-attr]
                    send(event)
                continue
            if kind is Usage:
                self.usage = self.usage.updated(event)  # type: ignore[arg-type]
                send(self.usage.consistent())
                continue
            if kind is ArgumentsDelta:
                shows = event.block not in skipped  # type: ignore[union-attr]
            else:
                shows = self._shows(event)
            if shows:
                for staged in self._calls.send(event):
                    send(staged)
            if kind is Ended:
                self.outcome = Outcome.COMPLETED
                return
            if kind is Failed:
                self.outcome = Outcome.FAILED
                self.fault = event.fault  # type: ignore[union-attr]
                return

    def _shows(self, event: Event) -> bool:
        """Note what the answer's owner wants to know, and tell whether the client can be shown the event."""
        if isinstance(event, Started):
            self.upstream_model, self.upstream_id = event.model, event.id
            return True
        if not isinstance(event, Failed):
            self.committed = True
        if isinstance(event, Stopped) and event.choice == 0:
            self.stop_reason = event.reason
        if isinstance(event, Opaque) and event.origin != self._client.name:
            self.losses.add(
                LossCode.UNKNOWN_KIND, event.path, f"no counterpart for {event.kind} in the client's protocol"
            )
            return False
        if self._client.choices:
            return True
        if isinstance(event, (BlockStarted, Stopped, Opaque)):
            if event.choice == 0:
                return True
            self.losses.dropped(
                f"/choices/{event.choice}", "the client's protocol has one answer, not several"
            )
            if isinstance(event, BlockStarted):
                self._skipped.add(event.block)
            return False
        return getattr(event, "block", None) not in self._skipped


class _StreamSink:
    """Prints events as frames, one open block at a time where the client's protocol wants it."""

    __slots__ = ("_linear", "_out", "_writer", "heartbeat")

    def __init__(self, client: ProtocolSpec, writer: StreamWriter) -> None:
        self._writer = writer
        self._linear = Linearizer() if client.sequential else None
        self._out: list[bytes] = []
        self.heartbeat = client.heartbeat

    def send(self, event: Event) -> None:
        linear = self._linear
        if linear is None or linear.passes(event):
            self._out.append(self._writer.send(event))
            return
        for each in linear.send(event):
            self._out.append(self._writer.send(each))

    def direct(self, block: int) -> Callable[[Event], object]:
        """What to call with deltas of this block as long as no other event comes: send() without its questions."""
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


class _WholeSink:
    """Folds events and prints one JSON document at the end. A failure prints nothing."""

    __slots__ = ("_client", "_exchange", "_fold", "_ledger", "_out", "heartbeat")

    def __init__(self, client: ProtocolSpec, exchange: Exchange, ledger: Ledger) -> None:
        self._client = client
        self._exchange = exchange
        self._ledger = ledger
        self._fold = Fold()
        self._out = b""
        self.heartbeat = b""

    def send(self, event: Event) -> None:
        self._fold.send(event)
        if type(event) is Ended:
            self._out = encode(self._client.write_whole(self._fold.answer(), self._exchange, self._ledger))

    def direct(self, block: int) -> Callable[[Event], object]:
        return self._fold.send

    def take(self) -> bytes:
        out, self._out = self._out, b""
        return out


def fault_of(error: RemoteProtocolError) -> Fault:
    """A reader's or translator's complaint about a request, as a fault for ProtocolSpec.write_fault."""
    return Fault(
        kind_of_status(error.status_hint),
        error.message,
        status=error.status_hint,
        code=error.code,
        param=error.param,
    )


def translate_fault(
    status: int, body: bytes, *, upstream: ProtocolSpec, client: ProtocolSpec, request_id: str | None = None
) -> tuple[int, bytes, Fault]:
    """An upstream's error answer in the client's form: status, body, and the fault for logs and retries.

    Between equal protocols the upstream's own bytes are kept, when a client of the protocol can read them.
    """
    fault = upstream.read_fault(status, body)
    if upstream.name == client.name and client.is_fault(body):
        return status, body, fault
    status, body = client.write_fault(fault, request_id)
    return status, body, fault
