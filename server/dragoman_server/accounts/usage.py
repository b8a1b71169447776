"""Compute the tokens that a request used. What they cost: `prices.cost`.

The upstream's figures are used if its response is complete. A client that leaves early, or a relayed one that requests
no figures, would pay nothing by them, so missing figures are estimated: the prompt from the request, the output from
the bytes that were sent to the client.
"""

from typing import TYPE_CHECKING

from dragoman import RemoteProtocolError, Usage, estimate_tokens
from dragoman.jsontext import decode_object

if TYPE_CHECKING:
    from dragoman_server.log import RequestRecord
    from dragoman_server.proxying.plan import Plan

# The bytes around the text in an event of a stream: 110 in Messages, 200 to 300 in the others.
_FRAME_BYTES = 200
# Of texts, where nothing counts better.
BYTES_PER_TOKEN = 4


class Meter:
    """Measure what a request uses: the bytes and the events that are sent to a client.

    Attributes:
        estimated_input: The tokens of the prompt, if they had to be estimated before the plan was released.
    """

    __slots__ = ("_events", "_size", "estimated_input")

    def __init__(self) -> None:
        self.estimated_input: int | None = None
        self._size = 0  # without the events' frames around the text
        self._events = 0

    def add(self, data: bytes) -> None:
        """Count bytes of the response's body."""
        # The last are those of a WebSocket: no JSON text has the separator of a JSON text sequence (RFC 7464) in it.
        events = data.count(b"\n\n") or data.count(b"\n\r\n") or data.count(b"\x1e")
        # The first events of a stream repeat the request, and are sent together with the first text.
        if self._events or not events:
            self._size += len(data) - events * _FRAME_BYTES
        self._events += events

    def tokens(self) -> int:
        """Estimate the tokens of the response. Servers send one or more in an event, so the larger figure counts."""
        return max(self._events, self._size // BYTES_PER_TOKEN)


class NoMeter(Meter):
    """For responses whose bytes say nothing about tokens, such as vectors and images: none is estimated."""

    __slots__ = ()

    def add(self, data: bytes) -> None:
        """Count nothing."""


def usage_of(record: "RequestRecord", plan: "Plan", meter: Meter) -> Usage:
    """Return the usage of a request that has ended, and put it into its record.

    record: the figures that the upstream reported; `estimated` is set if they had to be completed.
    """
    reported = Usage(
        input=record.input_tokens,
        output=record.output_tokens,
        cached=record.cached_tokens,
        cache_write=record.cache_write_tokens,
    )
    ended = record.outcome == "completed" or record.upstream_completed
    if reported.input is not None and reported.output is not None and ended:
        return reported
    if not _was_processed(record):
        return reported
    tokens_in, tokens_out = reported.input, reported.output or 0
    if tokens_in is None:
        tokens_in = meter.estimated_input
        if tokens_in is None:
            tokens_in = estimate_input(plan)
    if reported.output is None or not ended:
        # The first figure of output that an upstream sends is from before there was any.
        tokens_out = max(tokens_out, meter.tokens())
    record.input_tokens, record.output_tokens, record.estimated = tokens_in, tokens_out, True
    return Usage(tokens_in, tokens_out, reported.cached, reported.cache_write)


def _was_processed(record: "RequestRecord") -> bool:
    """True if the upstream may have worked on the request: also if the client left before anything came back."""
    return (record.status or 400) < 300 or (
        record.status is None and record.outcome in ("client_left", "cancelled")
    )


def estimate_input(plan: "Plan") -> int:
    """Estimate the input tokens of a planned request, all of its branches together."""
    if not plan.relayed and plan.request is not None:
        return estimate_tokens(plan.request) * plan.fan_out
    try:
        # A relay has not read its request.
        request = plan.client.read_request(decode_object(plan.body, "the request"), plan.context.signer)
        return estimate_tokens(request)
    except (RemoteProtocolError, RecursionError):
        return plan.context.prompt_tokens
