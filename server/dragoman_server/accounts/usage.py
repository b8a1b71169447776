"""Compute the tokens that a request used, and their price by the `[[prices]]` of the configuration.

The upstream's figures count if its response came to its end. A client that leaves early, or that requests no figures
where it is relayed, would pay nothing by them, so the rest is estimated: the prompt from the request, the output from
the bytes that were sent to the client.

A price is looked up by all names that a model has: the one that the client sent, `upstream/model`, and the upstream's
own. The first table that matches any of them counts, so an exception stands before the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman import RemoteProtocolError, Usage, estimate_tokens
from dragoman.jsontext import decode_object
from dragoman_server.settings import Price
from dragoman_server.settings.patterns import matches

if TYPE_CHECKING:
    from dragoman_server.log import RequestRecord
    from dragoman_server.proxying.plan import Plan

# What stands around the text in an event of a stream: 110 bytes in Messages, 200 to 300 in the others.
_FRAME_BYTES = 200
_BYTES_PER_TOKEN = 4

_MILLION = 1_000_000


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


def names_of(model: str | None, upstream: str | None, upstream_model: str | None) -> list[str]:
    """The names of one model. model: as the client sent it."""
    own = upstream_model or ""
    return [name for name in (model, f"{upstream}/{own}" if upstream and own else None, own) if name]


def price_of(prices: Sequence[Price], names: Sequence[str]) -> Price | None:
    """The first price that fits one of the names, None when nobody has set one."""
    return next((price for price in prices if any(matches(name, price.model) for name in names)), None)


def cost(price: Price, usage: Usage) -> float:
    """US dollars. What is not known of the usage costs nothing."""
    usage = usage.consistent()
    cached, written = usage.cached or 0, usage.cache_write or 0
    plain = max(0, (usage.input or 0) - cached - written)
    dollars = plain * price.input + (usage.output or 0) * price.output
    dollars += cached * (price.input if price.cached_input is None else price.cached_input)
    dollars += written * (price.input if price.cache_write is None else price.cache_write)
    return dollars / _MILLION
