"""The Response object around the output items.

Strategy: what does not change during an answer is made once per exchange: the echo of the client's request
where the client spoke Responses, else defaults. The three moments of an answer differ in a handful of fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import Started, Stopped, Usage
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Exchange
from dragoman.protocols.openai_responses import tables
from dragoman.protocols.openai_responses.common import text_of
from dragoman.protocols.openai_responses.usage import write_tool_usage, write_usage
from dragoman.protocols.openai_responses.wire import ORIGIN

# Request fields that the response repeats as they came, with what stands there when the client named none: numbers are
# required where the request may have null (Open Responses, `ResponseResource`).
_ECHO: dict[str, JSON] = {
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


class Envelope:
    """Makes the Response objects of one answer."""

    __slots__ = ("_exchange", "_fixed", "_ledger", "id")

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self._ledger = ledger
        self._exchange = exchange
        self.id = exchange.answer_id("resp_", "")
        self._fixed = _fixed(exchange)

    def started(self, started: Started) -> None:
        """Note what the upstream said when it started."""
        self.id = self._exchange.answer_id("resp_", started.id)
        self._note_tier(started.service_tier)

    def _note_tier(self, said: str | None) -> None:
        tier = tables.SERVICE_TIER_NAMES.get(said or "", said)
        if tier in tables.SERVICE_TIERS:
            self._fixed["service_tier"] = tier
        elif tier is not None:
            self._ledger.dropped("/service_tier", "no such service tier in Responses")

    def response(
        self,
        status: str,
        *,
        output: Sequence[JSON] = (),
        usage: Usage | None = None,
        error: JSONObject | None = None,
        incomplete: str | None = None,
    ) -> JSONObject:
        """One Response object. Nullable fields are there too: the vendor's server sends all of them."""
        figures = None if usage is None else write_usage(usage, self._ledger)
        tool_usage = None if usage is None else write_tool_usage(usage)
        if usage is not None:
            self._note_tier(usage.service_tier)
        completed_at = None
        if status == "completed":
            completed_at = self._exchange.now if self._exchange.clock is None else self._exchange.clock()
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._exchange.now,
            "status": status,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "model": self._exchange.model,
            "output": output,
            "usage": figures,
            **({} if tool_usage is None else {"tool_usage": tool_usage}),
            **self._fixed,
        }


def _fixed(exchange: Exchange) -> JSONObject:
    raw = exchange.request.raw if exchange.request.protocol == ORIGIN else {}
    out: JSONObject = {"access_programs": None, "background": False, "store": exchange.stored}
    out["service_tier"] = tables.TIER_UNLESS_TOLD
    if raw.get("prompt_cache_retention") is not None:
        out["prompt_cache_retention"] = raw["prompt_cache_retention"]
    for name, default in _ECHO.items():
        value = raw.get(name)
        out[name] = default if value is None else value
    out["reasoning"] = {"effort": None, "summary": None, **(raw.get("reasoning") or {})}
    text: JSONObject = {"format": {"type": "text"}}
    text.update({name: value for name, value in (raw.get("text") or {}).items() if value is not None})
    out["text"] = text
    out["tools"] = [_echo_tool(tool) for tool in raw.get("tools") or ()]
    return out


def _echo_tool(tool: JSONObject) -> JSONObject:
    """ "parameters" and "strict" are required in the answer, though not in the request."""
    if tool.get("type") == "function":
        return {"parameters": None, **tool, "strict": tool.get("strict") or False}
    return tool


def ending(stop: Stopped) -> tuple[str, str | None]:
    """Status and reason of incompleteness."""
    # The other reasons that only this protocol has come back by their own names.
    native = stop.native if tables.INCOMPLETE.get(stop.native or "") is stop.reason else None
    reason = native or tables.INCOMPLETE_REASONS.get(stop.reason)
    return ("completed", None) if reason is None else ("incomplete", reason)


def note_stop(stop: Stopped, explained: bool, ledger: Ledger) -> None:
    """Enter what an ended response cannot say. A stop that nobody upstream named is the gateway's own doing."""
    if stop.reason in tables.VAGUE_STOPS and stop.native and ending(stop)[1] is None:
        ledger.altered("/status", f"the upstream stopped for {stop.reason.value}, which is told as completed")
    if text_of(stop.sequence):
        ledger.dropped("/stop_sequence", "Responses does not say which stop sequence matched")
    if stop.explanation and not explained:
        ledger.dropped(
            "/stop_details/explanation", "the answer has text; Responses has no place for the explanation"
        )
