"""Token counts: thoughts and what the provider's tools returned are counted apart here, the neutral counts have them.

totalTokenCount = promptTokenCount + toolUsePromptTokenCount + candidatesTokenCount + thoughtsTokenCount: 815 of 817
recorded responses of both of the vendor's hosts (November 2026). Each chunk of a stream has the counts so far.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import extra_members, note_unread, response_shape
from dragoman._wire.json import JSONObject, read_count, text_or_none
from dragoman.protocols.gemini.shapes import USAGE_SHAPE
from dragoman.protocols.gemini.tables import SERVICE_TIER_NAMES, SERVICE_TIERS

_USAGE = response_shape(USAGE_SHAPE)

# All other members are kept in `Usage.extra` under this name, for clients of this protocol.
_OWN = "usageMetadata"
_WRITTEN = {
    **dict.fromkeys(("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount")),
    **dict.fromkeys(("thoughtsTokenCount", "totalTokenCount", "serviceTier")),
}
_COUNTS = (
    *("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("totalTokenCount", "cachedContentTokenCount"),
)
# Counts that are written even if they are zero.
_ALWAYS = frozenset(("promptTokenCount", "totalTokenCount"))


class UsageMetadataReader(msgspec.Struct):
    """Collects the counts of one response, in which later ones replace earlier ones field by field.

    same_protocol: the client speaks this protocol and gets the rest unchanged.
    """

    ledger: Ledger
    same_protocol: bool
    _figures: JSONObject = {}
    usage: Usage = Usage()  # so far

    def read(self, value: JSONObject) -> Usage:
        """Add the counts of one object and return the counts so far."""
        if not value.items() <= self._figures.items():
            if not self.same_protocol:
                note_unread(value, _USAGE, "/usageMetadata", self.ledger)
            self._figures.update(value)
            self.usage = _read(self._figures, self.same_protocol)
        return self.usage


def _read(value: JSONObject, same_protocol: bool) -> Usage:
    prompt, tools, written, thoughts, total, cached = map(read_count, map(value.get, _COUNTS))
    output = None if written is None and thoughts is None else (written or 0) + (thoughts or 0)
    if output is None and prompt is not None and total == prompt + (tools or 0):
        output = 0  # proto3 leaves out zeros
    tier = text_or_none(value.get("serviceTier"))
    own = extra_members(value, _WRITTEN) if same_protocol else None
    return Usage(
        input=None if prompt is None else prompt + (tools or 0),
        output=output,
        cached=cached,
        reasoning=thoughts,
        extra={_OWN: own} if own else None,
        service_tier=None if tier is None else SERVICE_TIERS.get(tier, tier),
    )


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """Return the counts for a client. Zeros are left out, as proto3 JSON does, but for the total."""
    prompt, output, extra = usage.input or 0, usage.output or 0, usage.extra or {}
    own = extra.get(_OWN) or {}
    thoughts = min(usage.reasoning or 0, output)
    tools = read_count(own, "toolUsePromptTokenCount") or 0
    counts = {
        "promptTokenCount": max(prompt - tools, 0),
        "candidatesTokenCount": output - thoughts,
        "totalTokenCount": prompt + output,
        "cachedContentTokenCount": usage.cached or 0,
        "thoughtsTokenCount": thoughts,
    }
    body: JSONObject = {name: count for name, count in counts.items() if count or name in _ALWAYS}
    body.update(own)
    lost = [name for name in ("cache_write", "searches") if getattr(usage, name)]
    for name in (*lost, *extra):
        if name != _OWN:
            ledger.dropped(child("/usage", name), "Gemini has no such counter")
    if usage.service_tier in SERVICE_TIER_NAMES:
        body["serviceTier"] = SERVICE_TIER_NAMES[usage.service_tier]
    elif usage.service_tier is not None:
        ledger.dropped("/usage/service_tier", "Gemini has no such service tier")
    return body
