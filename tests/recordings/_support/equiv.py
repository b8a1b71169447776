"""One request written by hand for several protocols, and the differences between a translation and the original.

A difference is a path, and whether only one of the two has a value there. Spellings that mean the same (a string
for a list of one text, a message without its type) are made one before.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

from dragoman import UPSTREAMS, Capabilities, RequestTranslator
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

Json = Any
VENDORS = {CHAT: "openai", MESSAGES: "anthropic", RESPONSES: "openai", GEMINI: "gemini"}
# Where a request names none, because its path does.
GEMINI_MODEL = "gemini-2.5-flash"


@dataclass(frozen=True, slots=True)
class EquivalentRequests:
    """case: the folder's name. stage: `request`, or `followup-request`. bodies: by protocol."""

    case: str
    stage: str
    bodies: dict[str, Json]


class Side(Enum):
    """Who says something at a place. OTHER: both do, and not the same."""

    OURS = "added"
    THEIRS = "missing"
    OTHER = "other"


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    source: str
    target: str
    case: str
    place: str
    side: str


def vendor_target(protocol: str, model: str) -> Capabilities:
    """What the vendor's own host takes with this model, as the server knows it."""
    provider = next(each for each in PROVIDERS if each.name == VENDORS[protocol])
    upstream = UpstreamSettings(name="vendor", protocol=protocol, base_url=provider.base_url)
    return capabilities_for(Settings(), upstream, model)


def differences(equivalents: EquivalentRequests) -> Iterator[Difference]:
    for source, body in equivalents.bodies.items():
        for target, theirs in equivalents.bodies.items():
            if source != target:
                ours = translated(source, target, body, theirs.get("model", GEMINI_MODEL))
                for place, side in _differences(target, ours, theirs):
                    yield Difference(source, target, equivalents.case, place, side.value)


def translated(source: str, target: str, body: Json, model: str) -> Json:
    translator = RequestTranslator(
        client=UPSTREAMS[source], upstream=UPSTREAMS[target], capabilities=vendor_target(target, model)
    )
    data = json.dumps({"model": GEMINI_MODEL, **body}).encode()
    return json.loads(translator.translate(data, model=model).body)


def _differences(protocol: str, ours: Json, theirs: Json) -> Iterator[tuple[str, Side]]:
    one = _leaves(SPELLINGS[protocol](ours))
    other = _leaves(SPELLINGS[protocol](theirs))
    found: dict[tuple[str, Side], None] = {}
    for place in sorted(one.keys() | other.keys()):
        mine, yours = one.get(place), other.get(place)
        if mine is None:
            found[_all_of(place, one), Side.THEIRS] = None
        elif yours is None:
            found[_all_of(place, other), Side.OURS] = None
        elif mine != yours:
            found[place, Side.OTHER] = None
    yield from found


def _all_of(place: str, others: dict[str, list[Json]]) -> str:
    """The outermost place around one of which the others say nothing."""
    around = re.findall(r"\.?[^.\[]+|\[[^\]]*\]", place)
    for length in range(1, len(around)):
        outer = "".join(around[:length])
        if not any(other == outer or other.startswith((f"{outer}.", f"{outer}[")) for other in others):
            return outer
    return place


def _leaves(document: Json) -> dict[str, list[Json]]:
    """The values at each kind of place, in their order. null is absent."""
    found: dict[str, list[Json]] = {}

    def walk(value: Json, place: str) -> None:
        if isinstance(value, dict) and value:
            for key, member in value.items():
                walk(member, f"{place}.{key}" if place else key)
        elif isinstance(value, list) and value:
            for member in value:
                walk(member, f"{place}[{_kind(member)}]")
        elif value is not None:
            found.setdefault(place, []).append(value)

    walk(document, "")
    return found


def _kind(member: Json) -> str:
    if not isinstance(member, dict):
        return ""
    # A message of Responses has both; its role has more information.
    return next((member[key] for key in ("role", "type") if isinstance(member.get(key), str)), "")


# --- spellings ------------------------------------------------------------------------------------------------


def _chat(body: Json) -> Json:
    return {**body, "messages": [_with_list(each, "content", "text") for each in body["messages"]]}


def _messages(body: Json) -> Json:
    out = _with_list(body, "system", "text")
    return {**out, "messages": [_with_list(each, "content", "text") for each in body["messages"]]}


def _responses(body: Json) -> Json:
    return {**body, "input": [_item(each) for each in body["input"]]}


def _item(item: Json) -> Json:
    if "role" not in item:
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {"type": "message", **_with_list(item, "content", kind)}


def _with_list(holder: Json, key: str, kind: str) -> Json:
    if not isinstance(holder.get(key), str):
        return holder
    return {**holder, key: [{"type": kind, "text": holder[key]}]}


def _gemini(body: Json) -> Json:
    """The path names the model, and whose turn the first one is need not be said."""
    contents = [{"role": "user", **each} for each in body["contents"]]
    return {**{name: value for name, value in body.items() if name != "model"}, "contents": contents}


SPELLINGS = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}
