"""A stream for a client, written from events: for callers that have a response already, not another protocol's bytes.

The twin of EventReader. Both have the same checker, so a writer's caller is held to the order that peers are held to.
"""

from __future__ import annotations

from dragoman._engine.sinks import ClientSink
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import Event, Usage
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman._transforms.pipeline import Pipeline
from dragoman._wire.exceptions import LocalProtocolError
from dragoman.codec import ProtocolSpec, ResponseContext
from dragoman.protocols import client_spec


class EventWriter:
    r"""Writes one stream for a client.

    Call send() with each event, from Started to Ended or Failed, and pass on the bytes that it returns:

    >>> from dragoman.events import BlockEnded, BlockKind, BlockStarted, Ended, Started, Stopped, StopReason, TextDelta
    >>> writer = EventWriter("simple_chat", id="a1", now=1_700_000_000, model="small")
    >>> text = [BlockStarted(0, BlockKind.TEXT), TextDelta(0, "Hello"), BlockEnded(0)]
    >>> events = [Started("a1", "small"), *text, Stopped(StopReason.END), Ended()]
    >>> b"".join(writer.send(event) for event in events).count(b"Hello")
    1

    Args:
        protocol: the client's, by name or by spec.
        id: letters and digits, unique to this response. Ids in the stream are made of it.
        now: seconds since the epoch.
        model: the name of the model that the client gets.
        request: the client's, if there is one: writers look up what it requested, such as figures in the stream.
        signer: wraps signatures of other protocols.

    Attributes:
        losses: What the protocol has no field for.
    """

    def __init__(
        self,
        protocol: ProtocolSpec | str,
        *,
        id: str,
        now: int,
        model: str,
        request: Request | None = None,
        signer: Signer = Signer(),
    ) -> None:
        self._spec = spec = client_spec(protocol)
        if request is None:
            request = Request(protocol=spec.name, model=model, messages=(), stream=True)
        context = ResponseContext(request=request, id=id, now=now, model=model, signer=signer)
        self.losses = Ledger()
        self._checker = EventOrderChecker()
        self._pipeline = Pipeline(spec, context, self.losses)
        self._sink = ClientSink(spec, context, self.losses)
        self._usage = Usage()

    def __repr__(self) -> str:
        return f"<EventWriter {self._spec.name}, {self._checker.state.value}>"

    def send(self, event: Event) -> bytes:
        """Return the bytes for one event, b"" if there are none yet.

        Raises LocalProtocolError for an event that may not come now (see dragoman.testing.EventOrderChecker), and for
        one of a second choice if the protocol has only one. The writer stays as it was then.
        """
        if not self._spec.choices and getattr(event, "choice", 0) != 0:
            raise LocalProtocolError(f"{self._spec.name} allows only one choice per response")
        self._checker.check(event)
        if type(event) is Usage:
            self._usage = self._usage.updated(event)
            event = self._usage.consistent()
        for staged in self._pipeline.send(event):
            self._sink.send(staged)
        return self._sink.data_to_send()
