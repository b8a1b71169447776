"""Several answers of an upstream that gives one at a time, as the one answer with choices that the client wants.

Strategy: every leg is an answer of its own, read, checked and staged by a ResponseTranslator that gives events
instead of bytes. Here the events are put together: blocks get numbers that no other leg uses, each leg is one
choice, usage is the sum. A leg that fails ends the whole answer, for a client that asked for three alternatives
cannot tell a missing one from an empty one.
"""

from __future__ import annotations

import msgspec

from dragoman._engine.response import Outcome, ResponseTranslator
from dragoman._engine.sinks import ListSink, StoringSink, WholeSink, sink_for
from dragoman._ir.events import (
    ENDED,
    BlockStarted,
    Compacted,
    Ended,
    Event,
    Failed,
    Opaque,
    Started,
    Stopped,
    StopReason,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import JSONObject
from dragoman.codec import CheckInput, ProtocolSpec, ResponseContext, UpstreamSpec


class FanOut:
    """Puts `count` answers together. The same attributes as ResponseTranslator; the first choice's, where one counts.

    Call start(number, ...) for each leg as soon as its response comes, feed what it gives, and call merge() after
    each time: then data_to_send() has what is ready. fail_leg() tells of a leg that got no response.

    Args: as for ResponseTranslator; count is TranslatedRequest.answers.
    """

    def __init__(
        self,
        upstream: UpstreamSpec,
        client: ProtocolSpec,
        context: ResponseContext,
        count: int,
        *,
        client_streams: bool | None = None,
        check_input: CheckInput | None = None,
        store_response: bool = False,
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.error: WireError | None = None
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self.upstream_model: str | None = None
        self.upstream_id: str | None = None
        self.committed = False
        self._upstream = upstream
        self._client = client
        self._exchange = context
        self._check_input = check_input
        streams = context.request.stream if client_streams is None else client_streams
        self._sink = sink_for(client, context, self.losses, streams=streams, store_response=store_response)
        self._sinks = [ListSink() for _ in range(count)]
        self._legs: list[ResponseTranslator | None] = [None] * count
        self._usages = [Usage() for _ in range(count)]
        self._ended: set[int] = set()
        self._started = False

    def start(self, number: int, *, upstream_streams: bool) -> ResponseTranslator:
        """The machine for one leg's answer. Its bytes go nowhere: merge() takes its events."""
        context = msgspec.structs.replace(
            self._exchange, id=f"{self._exchange.id}{number}" if number else self._exchange.id
        )
        leg = ResponseTranslator(
            self._upstream,
            self._client,
            context,
            upstream_streams=upstream_streams,
            check_input=self._check_input,
            sink=self._sinks[number],
        )
        self._legs[number] = leg
        return leg

    def merge(self) -> None:
        """Take what the legs have given since the last time."""
        for number, sink in enumerate(self._sinks):
            events, sink.events[:] = list(sink.events), []
            for event in events:
                if self.outcome is Outcome.OPEN:
                    self._take(number, event)
        for number, leg in enumerate(self._legs):
            for loss in leg.losses if leg is not None else ():
                self.losses.add(loss.code, f"/choices/{number}{loss.path}", loss.detail)

    def fail(self, error: WireError) -> None:
        """End the whole answer with an error. No effect once it has ended."""
        if self.outcome is not Outcome.OPEN:
            return
        self.outcome = Outcome.FAILED
        self.error = error
        self._sink.send(Failed(error))

    def receive_eof(self) -> None:
        """Nothing more comes from any leg. What is not complete by now is an error."""
        self.merge()
        self.fail(
            WireError(ErrorKind.TRUNCATED, "one of the upstream's answers ended before it was complete")
        )

    def data_to_send(self) -> bytes:
        """What the client gets now, as of ResponseTranslator."""
        return self._sink.data_to_send()

    def heartbeat(self) -> bytes:
        """As of ResponseTranslator."""
        return self._sink.heartbeat if self.outcome is Outcome.OPEN else b""

    def whole_body(self) -> JSONObject | None:
        """As of ResponseTranslator."""
        return self._sink.body if isinstance(self._sink, (WholeSink, StoringSink)) else None

    def cached_reasoning(self) -> CachedReasoning | None:
        """What to keep of the first choice: as of ResponseTranslator."""
        return self._legs[0].cached_reasoning() if self._legs[0] is not None else None

    def _take(self, number: int, event: Event) -> None:
        if isinstance(event, Started):
            if not self._started:
                self._started = True
                self.upstream_model, self.upstream_id = event.model, event.id
                self._sink.send(event)
            return
        if isinstance(event, Failed):
            self.fail(event.error)
            return
        if isinstance(event, Usage):
            self._usages[number] = self._usages[number].updated(event)
            return
        self.committed = True
        if isinstance(event, Ended):
            self._end(number)
            return
        if isinstance(event, Stopped):
            event = msgspec.structs.replace(event, choice=number)
            if number == 0:
                self.stop_reason = event.reason
        elif isinstance(event, BlockStarted):
            event = msgspec.structs.replace(event, choice=number, block=self._block(number, event.block))
        elif isinstance(event, Opaque):
            event = msgspec.structs.replace(event, choice=number)
        elif not isinstance(event, Compacted):  # all that is left fills a block or ends it
            event = msgspec.structs.replace(event, block=self._block(number, event.block))
        self._sink.send(event)

    def _block(self, number: int, block: int) -> int:
        return block * len(self._legs) + number

    def _end(self, number: int) -> None:
        self._ended.add(number)
        if len(self._ended) < len(self._legs):
            return
        usage = self._usages[0]
        for other in self._usages[1:]:
            usage = usage.plus(other)
        self.usage = usage
        self._sink.send(usage)
        self._sink.send(ENDED)
        self.outcome = Outcome.COMPLETED
