"""Answers, from the upstream's bytes to the client's.

Strategy: reader -> checker -> stages -> sink, one event at a time. The machine does not know which protocols it
joins. Same protocol on both sides is not its business: that is `_engine.relay`, which never decodes what it passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec

from dragoman._engine.sinks import Sink, StoringSink, WholeSink, sink_for
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
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
from dragoman._ir.fast_path import FastPath
from dragoman._ir.losses import Ledger, LossCode
from dragoman._transforms.pipeline import build_pipeline
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman._wire.errors import ErrorKind, WireError, unreadable_error
from dragoman._wire.exceptions import LocalProtocolError, ProtocolError, RemoteProtocolError
from dragoman._wire.json import MAX_DOCUMENT_BYTES, JSONObject, decode_object, too_deep
from dragoman._wire.masking import mask_error
from dragoman._wire.sse import SSEParser, parse_raw_event
from dragoman.codec import CheckInput, ProtocolSpec, ResponseContext, UpstreamSpec

# For figures that nobody told: English text and code have about four characters a token.
CHARS_PER_TOKEN = 4

_FIGURES_FIRST: dict[type[Event], int] = {Started: 0, Usage: 1}


class Outcome(Enum):
    """How an answer ended."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


class ResponseTranslator:
    """Translates one answer, streamed or whole, as its bytes arrive.

    Feed it with receive_data() and receive_eof(), take what is ready with data_to_send(). When the upstream
    cannot go on (timeout, reset), call fail().

    Args:
        upstream, client: the protocols.
        exchange: from TranslatedRequest.exchange().
        upstream_streams: whether the upstream's body is a stream of events or one JSON document.
        client_streams: the same for the client's body, by default as the client asked.
        check_input: judges the input of free-text tools against their grammar, where the upstream could not: gives
            the reason why it breaks it, or None. Breaches are entered in `losses`.
        keep_whole: of a streamed answer whole_body() shall be known in the end.
        sink: where events go instead of into bytes.

    A whole answer for the client is given at once, after the end; when it fails instead, nothing is given and
    `fault` says why, so that a plain HTTP error can be sent.

    When the outcome is COMPLETED before the upstream's end (a stop sequence was found), close the upstream.
    """

    def __init__(
        self,
        upstream: UpstreamSpec,
        client: ProtocolSpec,
        context: ResponseContext,
        *,
        upstream_streams: bool = True,
        client_streams: bool | None = None,
        check_input: CheckInput | None = None,
        store_response: bool = False,
        sink: Sink | None = None,
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.error: WireError | None = None
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self.upstream_model: str | None = None
        self.upstream_id: str | None = None
        # Whether content went out. Until then an error can still be a plain HTTP error.
        self.committed = False
        self._client = client
        self._upstream = upstream
        self._exchange = context
        self._sse = SSEParser() if upstream_streams else None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._reader = upstream.stream_reader(context, self.losses)
        self._lane = FastPath()
        self._checker = EventOrderChecker()
        self._pipeline = build_pipeline(client, context, self.losses, check_input)
        self._chars = 0  # of all that the model wrote
        streams = context.request.stream if client_streams is None else client_streams
        self._sink = sink or sink_for(
            client, context, self.losses, streams=streams, store_response=store_response
        )
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
            self._read(self._sse.receive_raw_events(data))
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
                self.fail(WireError(ErrorKind.TRUNCATED, error.message))
                return
            self._take(events)
        if self.outcome is Outcome.OPEN:
            self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's answer ended before it was complete"))

    def fail(self, error: WireError) -> None:
        """End the answer with an error, in the client's own form. No effect once it has ended."""
        if self.outcome is not Outcome.OPEN:
            return
        self._pass(Failed(error))

    def whole_body(self) -> JSONObject | None:
        """The answer as one document, once it is COMPLETED; of a stream only with `keep_whole`.

        Of a stream that FAILED as well, where the client's protocol has a form for it (`failed_bodies`).
        """
        return self._sink.body if isinstance(self._sink, (WholeSink, StoringSink)) else None

    def cached_reasoning(self) -> CachedReasoning | None:
        """Reasoning that the client is not likely to give back, with the ids of the calls to find it by.

        None when there is none. Give it to translate() again by `recall`.
        """
        reasoning_cache = self._pipeline.reasoning_cache
        return None if reasoning_cache is None else reasoning_cache.cached_reasoning()

    def data_to_send(self) -> bytes:
        """What the client gets now: whole frames, or a whole body at the end. b"" when nothing is ready."""
        return self._sink.data_to_send()

    def heartbeat(self) -> bytes:
        """Bytes that show the client that the connection lives; between frames, while the answer streams."""
        return self._sink.heartbeat if self.outcome is Outcome.OPEN else b""

    def _read(self, pieces: Iterable[bytes]) -> None:
        lane = self._lane
        for piece in pieces:
            if lane.extract_text is not None:
                # The hot path: equal in kind to the delta before, which was checked and shown.
                text = lane.extract_text(piece)
                if text is not None:
                    self._chars += len(text)
                    lane.emit(text)
                    continue
            frame = parse_raw_event(piece)
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
                if len(events) == 1 and lane.should_learn():
                    self._learn(piece, events[0])

    def _learn(self, piece: bytes, event: Event) -> None:
        if (
            isinstance(event, (TextDelta, ReasoningDelta, ArgumentsDelta))
            and event.block not in self._skipped
        ):
            hint = self._reader.template_for(event)
            if hint is not None:
                put: Callable[[TextDelta | ReasoningDelta | ArgumentsDelta], object]
                if self._pipeline.needs_text:
                    put = self._pass
                elif isinstance(event, ArgumentsDelta):
                    put = self._put_arguments
                else:
                    put = self._sink.delta_sender(event.block)
                self._lane.learn_from(piece, event, hint, put)

    def _put_arguments(self, event: Event) -> None:
        """As _pass, for what only the stage for calls has to do with."""
        for staged in self._pipeline.calls.send(event):
            self._sink.send(staged)

    def _read_whole(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        try:
            value = decode_object(body, "it")
            events = self._upstream.read_whole(value, self._exchange, self.losses)
        except RemoteProtocolError as error:
            self._break(error)
            return
        if self._exchange.undo.stop_sequences:
            # It may end at a stop sequence, before its figures; but these are here already.
            events = sorted(events, key=lambda event: _FIGURES_FIRST.get(type(event), 2))
        self._take(events)
        if self.outcome is Outcome.OPEN:
            self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's answer is not complete"))

    def _break(self, error: ProtocolError) -> None:
        self.fail(unreadable_error(error))

    def _take(self, events: Sequence[Event]) -> None:
        """Check events and pass them on, until the answer ends."""
        check = self._checker.check
        skipped = self._skipped
        send = self._pass if self._pipeline.needs_text else self._sink.send
        for event in events:
            kind = type(event)
            try:
                check(event)
            except LocalProtocolError as error:
                self._break(error)
                return
            if kind is TextDelta or kind is ReasoningDelta:  # the hot path: nothing to do but print
                if not skipped or event.block not in skipped:  # type: ignore[union-attr]
                    self._chars += len(event.text)  # type: ignore[union-attr]
                    send(event)
            elif kind is Usage:
                self.usage = self.usage.updated(event)  # type: ignore[arg-type]
                self._pass(self.usage.consistent())
            elif kind is ArgumentsDelta:
                if event.block not in skipped:  # type: ignore[union-attr]
                    self._chars += len(event.text)  # type: ignore[union-attr]
                    self._pass(event)
            elif self._shows(event):
                self._pass(event)
            if self.outcome is not Outcome.OPEN:
                return

    def _pass(self, event: Event) -> None:
        """Send an event through the stages to the client, and note what becomes of the answer."""
        for staged in self._pipeline.send(event):
            kind = type(staged)
            if kind is Ended:
                self._estimate_usage()
                self._sink.send(staged)
                self.outcome = Outcome.COMPLETED
                return
            if kind is Failed:
                self.outcome = Outcome.FAILED
                self.error = mask_error(staged.error, self._exchange.mask)  # type: ignore[union-attr]
                staged = Failed(self.error)
            elif kind is Stopped and staged.choice == 0:  # type: ignore[union-attr]
                self.stop_reason = staged.reason  # type: ignore[union-attr]
            self._sink.send(staged)

    def _estimate_usage(self) -> None:
        """Clients that count on figures get estimates where the upstream told none: never zero by default."""
        request = self._exchange.request
        if not (self._client.needs_usage or request.include_usage):
            return
        told = self.usage
        if told.input is not None and told.output is not None:
            return
        if told.input is None:
            told = msgspec.structs.replace(told, input=self._exchange.prompt_tokens)
        if told.output is None:
            told = msgspec.structs.replace(told, output=-(-self._chars // CHARS_PER_TOKEN))
        self.usage = told
        self.losses.add(LossCode.ESTIMATED, "/usage", "the upstream told no usage: the figures are estimates")
        self._sink.send(told.consistent())

    def _shows(self, event: Event) -> bool:
        """Note what the answer's owner wants to know, and tell whether the client can be shown the event."""
        if isinstance(event, Started):
            self.upstream_model, self.upstream_id = event.model, event.id
            return True
        # What is only of interest now (an unknown field of the announcement, say) is no content.
        passing = isinstance(event, Opaque) and not event.round_trip and event.search is None
        if not passing and not isinstance(event, Failed):
            self.committed = True
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
