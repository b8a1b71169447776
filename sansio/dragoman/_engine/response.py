"""Responses, from the upstream's bytes to the client's.

Each event goes through reader, checker, stages and sink. If both sides have the same protocol, `_engine.relay` passes
the bytes on without decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from dragoman._engine.response_machine import COMPLETED, OPEN, Outcome, ResponseMachine
from dragoman._engine.sinks import ClientSink, ListSink, WholeSink, client_sink
from dragoman._engine.upstream_events import StreamEvents, TruncatedResponse, WholeEvents
from dragoman._ir.events import (
    DELTAS,
    EVENTS,
    ArgumentsDelta,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Opaque,
    Started,
    Stopped,
    Usage,
)
from dragoman._ir.fast_path import Delta, with_texts
from dragoman._ir.losses import Ledger, LossCode
from dragoman._transforms.pipeline import Pipeline
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman._wire.errors import ErrorKind, WireError, unreadable_error
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject, too_deep
from dragoman._wire.masking import mask_error
from dragoman.codec import CheckInput, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec

# For usage that was not reported: English text and code have about four characters a token.
CHARS_PER_TOKEN = 4

_UNREADABLE = RemoteProtocolError, RecursionError

# Events that change what the machine says of the response.
_ENDS = frozenset({Stopped, Ended, Failed})
_DELTAS = frozenset(DELTAS)
# All others are content.
_NOTED = frozenset({Started, Usage, Opaque, Failed})
# Events that name their choice.
_OF_CHOICES = frozenset(kind for kind in EVENTS if "choice" in kind.__struct_fields__)


class ResponseTranslator(ResponseMachine):
    r"""Translates one response, streamed or whole, as its bytes arrive.

    A whole body for the client comes in one piece, after the end. If the response fails instead, there are no bytes,
    and `error` is for a plain HTTP error.

    >>> pair = {"client": "anthropic_messages", "upstream": "openai_chat"}
    >>> body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'
    >>> context = RequestTranslator(**pair).translate(body).response_context(id="a1", now=0)
    >>> machine = ResponseTranslator(**pair, context=context, upstream_streams=False)
    >>> machine.receive_data(b'{"id":"1","choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}')
    >>> machine.receive_eof()
    >>> b'{"type":"text","text":"Hello"' in machine.data_to_send(), machine.outcome.value
    (True, 'completed')

    Args:
        client: the client's protocol, by name or by spec.
        upstream: the upstream's protocol, by name or by spec.
        context: from TranslatedRequest.response_context().
        upstream_streams: the upstream's body is a stream of events, not one JSON document.
        client_streams: the same for the client's body, by default as the client requested.
        check_input: checks the input of free-text tools against their grammar if the upstream could not, see
            dragoman.codec.CheckInput. Breaches are recorded in `losses`.
        store_response: whole_body() returns a streamed response as well.

    Attributes:
        usage: The tokens that were reported so far, or estimates at the end.

    The other attributes are ResponseMachine's.
    """

    _open_sink: ClassVar[Callable[..., ClientSink | WholeSink | ListSink]] = staticmethod(client_sink)
    data_to_send: Callable[[], bytes]  # the sink's own, because each event asks for it

    def __init__(
        self,
        *,
        client: ProtocolSpec | str,
        upstream: UpstreamSpec | str,
        context: ResponseContext,
        upstream_streams: bool = True,
        client_streams: bool | None = None,
        check_input: CheckInput | None = None,
        store_response: bool = False,
    ) -> None:
        self.losses = Ledger()
        self.outcome = OPEN
        self.error, self.usage = None, Usage()
        self._client = client = client_spec(client)
        self._upstream = upstream = upstream_spec(upstream)
        self._context = context
        read = StreamEvents if upstream_streams else WholeEvents
        self._upstream_events = read(upstream, context, self.losses)
        self._pipeline = Pipeline(client, context, self.losses, check_input)
        self._chars = 0  # of what the model wrote, without those that the fast path counts
        streams = context.request.stream if client_streams is None else client_streams
        self._sink = self._open_sink(
            client, context, self.losses, streams=streams, store_response=store_response
        )
        self.data_to_send = self._sink.data_to_send
        self._waiting: list[Event] = []  # the events from one document to another, which are written together
        waits = not upstream_streams and type(self._sink) is WholeSink
        self._send: Callable[[Event], object] = self._waiting.append if waits else self._sink.send
        # Blocks of choices that the client's protocol does not have. An empty set takes 150 bytes more.
        self._skipped: dict[int, None] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._upstream.name} -> {self._client.name}, {self.outcome.value}>"

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the upstream's body."""
        if self.outcome is OPEN:
            try:
                incoming = self._upstream_events.receive_data(data, self._text_sender_for)
                if incoming:  # else all of them took the fast path
                    self._take(incoming)
            except _UNREADABLE as error:
                self._end_unreadable(error)

    @property
    def held_bytes(self) -> int:
        return self._upstream_events.held_bytes + self._sink.held_bytes

    def receive_eof(self) -> None:
        if self.outcome is OPEN:
            try:
                self._take(self._upstream_events.receive_eof())
            except _UNREADABLE as error:
                self._end_unreadable(error)

    def fail(self, error: WireError) -> None:
        if self.outcome is OPEN:
            self._pass(Failed(error))

    def whole_body(self) -> JSONObject | None:
        return self._sink.body

    def cached_reasoning(self) -> CachedReasoning | None:
        reasoning_cache = self._pipeline.reasoning_cache
        return None if reasoning_cache is None else reasoning_cache.cached_reasoning()

    def heartbeat(self) -> bytes:
        return self._sink.heartbeat if self.outcome is OPEN else b""

    def _text_sender_for(self, delta: Delta) -> Callable[[list[str]], object] | None:
        """Return what takes the texts of deltas like this one, None if the client does not get them."""
        if delta.block in self._skipped:
            return None
        if self._pipeline.needs_text:
            return partial(self._pass_each, delta)
        send, calls = self._sink.text_sender(delta), self._pipeline.calls

        def fill_call(texts: list[str]) -> None:
            filled = calls.fill(delta.block, texts)
            if filled:
                send(filled)

        return fill_call if isinstance(delta, ArgumentsDelta) else send

    def _pass_each(self, delta: Delta, texts: list[str]) -> None:
        """Pass on deltas like this one with other texts."""
        for each in with_texts(delta, texts):
            self._pass(each)

    def _take(self, incoming: Iterable[Event]) -> None:
        """Pass on events until the response ends."""
        pipeline, send, first_only = self._pipeline, self._send, not self._client.choices
        for event in incoming:
            # isinstance() of a struct takes ten times as long as to look up its type.
            kind = type(event)
            if kind in _DELTAS:
                if event.block not in self._skipped:  # type: ignore[union-attr]
                    self._chars += len(event.text)  # type: ignore[union-attr]
            elif kind in _NOTED:
                event = self._note(event)
            else:
                self.committed = True
            if (
                first_only
                and (self._skipped or (kind in _OF_CHOICES and event.choice))  # type: ignore[union-attr]
                and self._is_of_other_choice(event)
            ):
                continue
            if kind in pipeline.kinds:
                self._pass(event)
            elif kind in _ENDS:
                self._send_end(event)  # type: ignore[arg-type]
            else:
                send(event)
                continue
            if self.outcome is not OPEN:
                return

    def _note(self, event: Event) -> Event:
        """Note what an event says of the response, and return it."""
        if type(event) is Usage:
            self.usage = self.usage.updated(event)
            return self._consistent_usage()
        if type(event) is Started:
            self.upstream_model, self.upstream_id = event.model, event.id
        elif type(event) is Opaque:
            # One that need not come back (an unknown field of the first frame, say) is no content.
            self.committed = self.committed or event.round_trip or event.search is not None
        return event

    def _end_unreadable(self, error: RemoteProtocolError | RecursionError) -> None:
        """End the response because what came next cannot be read."""
        if isinstance(error, TruncatedResponse):
            self.fail(WireError(ErrorKind.TRUNCATED, error.message))
        else:
            self.fail(unreadable_error(too_deep() if isinstance(error, RecursionError) else error))

    def _pass(self, event: Event) -> None:
        """Send an event through the stages to the sink."""
        for staged in self._pipeline.send(event):
            if type(staged) not in _ENDS:
                self._send(staged)
            else:
                self._send_end(staged)  # type: ignore[arg-type]
                if self.outcome is not OPEN:
                    return

    def _send_end(self, event: Stopped | Ended | Failed) -> None:
        """Send the end of a choice or of the response, and note it."""
        if type(event) is Stopped:
            if event.choice == 0:
                self.stop_reason = event.reason
            self._send(event)
            return
        if type(event) is Failed:
            self.error = mask_error(event.error, self._context.mask)
            event = Failed(self.error)
        else:
            self._estimate_usage()
        self._send(event)
        if self._waiting:
            waiting = self._waiting[:]
            self._waiting.clear()  # if they cannot be written, the error is
            self._sink.send(*waiting)
        self.outcome = COMPLETED if self.error is None else Outcome.FAILED

    def _consistent_usage(self) -> Usage:
        usage = self.usage.consistent()
        if usage is not self.usage:
            self.losses.altered("/usage", "a part of the tokens is larger than all of them: it was lowered")
        return usage

    def _estimate_usage(self) -> None:
        """Send estimates to clients that need usage if the upstream reported none: never zero by default."""
        usage = self.usage
        if not (self._client.needs_usage or self._context.request.include_usage):
            return
        if usage.input is not None and usage.output is not None:
            return
        chars = self._chars + self._upstream_events.chars
        estimates = Usage(self._context.prompt_tokens, -(-chars // CHARS_PER_TOKEN))
        self.usage = estimates.updated(usage)
        self.losses.add(
            LossCode.ESTIMATED, "/usage", "the upstream reported no usage: the figures are estimates"
        )
        self._send(self._consistent_usage())

    def _is_of_other_choice(self, event: Event) -> bool:
        """True if the client's protocol does not have the event's choice, which is recorded as a loss."""
        choice = getattr(event, "choice", 0)
        if choice == 0:
            return getattr(event, "block", None) in self._skipped
        self.losses.dropped(f"/choices/{choice}", "the client's protocol allows only one choice per response")
        if isinstance(event, BlockStarted):
            self._skipped[event.block] = None
        return True
