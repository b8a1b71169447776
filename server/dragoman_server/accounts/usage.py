"""What a request took, for those who count it: the upstream's own figures, else an estimate.

Strategy: the upstream's word counts wherever the answer came to its end. A client that leaves early, or that does not
ask for figures where it is relayed, would pay nothing by that word, so the rest is estimated: the prompt from the
request, the answer from what the client was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman import RemoteProtocolError, Usage, estimate_tokens
from dragoman.jsontext import decode_object

if TYPE_CHECKING:
    from dragoman_server.log import RequestRecord
    from dragoman_server.proxying.plan import Plan

# What stands around the text in an event of a stream: 110 bytes in Messages, 200 to 300 in the others.
_FRAME_BYTES = 200
_BYTES_PER_TOKEN = 4


class Meter:
    """Measures the bytes and the events that a client is sent."""

    __slots__ = ("_events", "_size")

    def __init__(self) -> None:
        self._size = 0  # without what stands around the text in events
        self._events = 0

    def add(self, data: bytes) -> None:
        events = data.count(b"\n\n")
        # The first events of a stream repeat the request, and come in one piece with the first words.
        if self._events or not events:
            self._size += len(data) - events * _FRAME_BYTES
        self._events += events

    def tokens(self) -> int:
        """About how many tokens an answer had. Servers send one or some in an event, so the larger figure counts."""
        return max(self._events, self._size // _BYTES_PER_TOKEN)


def usage_of(record: RequestRecord, plan: Plan, meter: Meter) -> Usage:
    """The usage of a request that has ended. record: says so where it is an estimate (`estimated`)."""
    told = Usage(
        input=record.input_tokens,
        output=record.output_tokens,
        cached=record.cached_tokens,
        cache_write=record.cache_write_tokens,
    )
    ended = record.outcome == "completed" or record.upstream_completed
    if told.input is not None and told.output is not None and ended:
        return told
    if not _was_answered(record):
        return told
    tokens_in, tokens_out = told.input, told.output or 0
    if tokens_in is None:
        tokens_in = _estimated_input(plan) * plan.translated.fan_out
    if told.output is None or not ended:
        # What an upstream says first of its output is a figure from before there was any.
        tokens_out = max(tokens_out, meter.tokens())
    record.input_tokens, record.output_tokens, record.estimated = tokens_in, tokens_out, True
    return Usage(tokens_in, tokens_out, told.cached, told.cache_write)


def _was_answered(record: RequestRecord) -> bool:
    """Whether the upstream has worked for it. One whose client has left may have, before it said a word."""
    return record.status == 200 or (record.status is None and record.outcome in ("client_left", "cancelled"))


def _estimated_input(plan: Plan) -> int:
    if not plan.translated.relayed:
        return estimate_tokens(plan.context.request)
    try:
        # A relay has not looked into its request.
        asked = plan.client.read_request(
            decode_object(plan.translated.body, "the request"), plan.context.signer
        )
        return estimate_tokens(asked)
    except (RemoteProtocolError, RecursionError):
        return plan.context.prompt_tokens
