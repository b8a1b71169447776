"""Several responses of an upstream that returns one choice at a time, as one response with several choices.

Each branch is a separate response, read by a ResponseTranslator that returns events instead of bytes. FanOut merges
them: blocks get numbers that no other branch uses, each branch is one choice, usage is the sum. A branch that fails
ends the whole response, because a client that requested three choices cannot distinguish a missing one from an empty
one.
"""

from __future__ import annotations

from functools import reduce
from itertools import islice

import msgspec

from dragoman._engine.response import ResponseTranslator
from dragoman._engine.response_machine import Outcome, ResponseMachine
from dragoman._engine.sinks import ListSink, client_sink
from dragoman._ir.events import ENDED, Ended, Event, Failed, Started, Stopped, Usage
from dragoman._ir.losses import Ledger
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import JSONObject
from dragoman.codec import CheckInput, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec


class _Branch(ResponseTranslator):
    """One of the upstream's responses, as events for the client's protocol instead of bytes."""

    _sink: ListSink

    @staticmethod
    def _open_sink(*_: object, **__: object) -> ListSink:
        return ListSink()

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._sink.events[:] = list(self._sink.events), []
        return events


class FanOut(ResponseMachine):
    r"""Merges `count` responses into one.

    Call start(number) for each branch as soon as its response comes, pass its bytes to the machine that start()
    returns, and call merge() each time: then data_to_send() returns the ready bytes. Call fail() if a branch gets no
    response.

    >>> pair = {"client": "openai_chat", "upstream": "anthropic_messages"}
    >>> body = b'{"model":"m","n":2,"messages":[{"role":"user","content":"Hi"}]}'
    >>> translated = RequestTranslator(**pair, max_fan_out=4).translate(body)
    >>> context = translated.response_context(id="a1", now=0)
    >>> machine = FanOut(**pair, context=context, count=translated.fan_out)
    >>> whole = b'{"type":"message","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}'
    >>> for number in range(translated.fan_out):
    ...     branch = machine.start(number, upstream_streams=False)
    ...     branch.receive_data(whole)
    ...     branch.receive_eof()
    ...     machine.merge()
    >>> machine.data_to_send().count(b'"content":"Hello"')
    2

    Args:
        client: the client's protocol, by name or by spec.
        upstream: the upstream's protocol, by name or by spec.
        context: from TranslatedRequest.response_context().
        count: TranslatedRequest.fan_out.
        client_streams: as for ResponseTranslator.
        check_input: as for ResponseTranslator.
        store_response: as for ResponseTranslator.

    Attributes:
        losses: What the client does not get, by choice.
        usage: The sum of all branches, once it is COMPLETED.
        upstream_model: The model of the first branch to start.
        upstream_id: The id of the same response.

    The other attributes are ResponseMachine's.
    """

    def __init__(
        self,
        *,
        client: ProtocolSpec | str,
        upstream: UpstreamSpec | str,
        context: ResponseContext,
        count: int,
        client_streams: bool | None = None,
        check_input: CheckInput | None = None,
        store_response: bool = False,
    ) -> None:
        if count < 1:
            raise ValueError(f"count is {count}, and at least one response is needed")
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.usage = Usage()
        self._upstream = upstream_spec(upstream)
        self._client = client_spec(client)
        self._context = context
        self._check_input = check_input
        streams = context.request.stream if client_streams is None else client_streams
        self._sink = client_sink(
            self._client, context, self.losses, streams=streams, store_response=store_response
        )
        self._count = count
        self._branches: dict[int, _Branch] = {}  # those that have started
        self._usages = [Usage() for _ in range(count)]
        self._noted = [0] * count  # the losses of each branch that are in `losses`
        self._ended: set[int] = set()

    def __repr__(self) -> str:
        names = f"{self._upstream.name} -> {self._client.name}"
        return f"<FanOut {names}, {len(self._ended)} of {self._count} ended, {self.outcome.value}>"

    def start(self, number: int, *, upstream_streams: bool) -> ResponseTranslator:
        """Return the machine for one branch's response. It has no data_to_send(): merge() takes its events."""
        context = msgspec.structs.replace(
            self._context, id=f"{self._context.id}{number}" if number else self._context.id
        )
        branch = _Branch(
            client=self._client,
            upstream=self._upstream,
            context=context,
            upstream_streams=upstream_streams,
            check_input=self._check_input,
        )
        self._branches[number] = branch
        return branch

    def merge(self) -> None:
        """Take the events of all branches since the last time."""
        branches = sorted(self._branches.items())
        for number, branch in branches:
            for event in branch.take_events():
                if self.outcome is Outcome.OPEN:
                    self._take(number, event)
        for number, branch in branches:
            for loss in islice(branch.losses, self._noted[number], None):
                self._noted[number] += 1
                self.losses.add(loss.code, f"/choices/{number}{loss.path}", loss.detail)

    def fail(self, error: WireError) -> None:
        if self.outcome is not Outcome.OPEN:
            return
        self.outcome = Outcome.FAILED
        self.error = error
        self._sink.send(Failed(error))

    def receive_eof(self) -> None:
        """Take the end of all branches."""
        self.merge()
        self.fail(
            WireError(ErrorKind.TRUNCATED, "one of the upstream's responses ended without being complete")
        )

    def data_to_send(self) -> bytes:
        return self._sink.data_to_send()

    def heartbeat(self) -> bytes:
        return self._sink.heartbeat if self.outcome is Outcome.OPEN else b""

    def whole_body(self) -> JSONObject | None:
        return self._sink.body

    def cached_reasoning(self) -> CachedReasoning | None:
        """Return the first choice's reasoning."""
        return self._branches[0].cached_reasoning() if 0 in self._branches else None

    def _take(self, number: int, event: Event) -> None:
        if isinstance(event, Started):
            if self.upstream_model is None:
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
        if isinstance(event, Stopped) and number == 0:
            self.stop_reason = event.reason
        places = {}
        if hasattr(event, "choice"):
            places["choice"] = number
        if hasattr(event, "block"):
            places["block"] = event.block * self._count + number
        self._sink.send(msgspec.structs.replace(event, **places))

    def _end(self, number: int) -> None:
        self._ended.add(number)
        if len(self._ended) < self._count:
            return
        self.usage = reduce(Usage.plus, self._usages)
        self._sink.send(self.usage)
        self._sink.send(ENDED)
        self.outcome = Outcome.COMPLETED
