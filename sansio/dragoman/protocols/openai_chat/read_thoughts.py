"""Earlier reasoning that clients bring back, and where in its turn it stood.

Strategy: entries of `reasoning_details` and `thinking_blocks` may carry our own wrapped seals or another vendor's
signatures; those become seals of that vendor's protocol, in its own block form. Everything else is one thought,
sealed as Chat's own. A message has its text in one string and its calls in one list, so that nothing says where
between them a block of reasoning stood; our own entries do, for vendors that want their blocks back in place.
"""

from __future__ import annotations

import re

import msgspec

from dragoman._ir.events import Seal
from dragoman._ir.request import Citation, Part, Text, Thought
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import JSONObject
from dragoman.protocols.openai_chat.reasoning import (
    CLOSING_KEYS,
    Entries,
    entry_text,
    reasoning_text,
)
from dragoman.protocols.openai_chat.tables import NAME, REASONING_FIELDS
from dragoman.protocols.openai_chat.wire import KNOWN_ENTRY, unknown

# The other protocols, as far as their blocks travel inside Chat. Named as seals name them.
_MESSAGES = "anthropic_messages"
_RESPONSES = "openai_responses"

# How many characters of the message's text and how many of its calls came before a block.
Place = tuple[int, int]
_FIRST: Place = (0, 0)
_PLACE = re.compile(r"drg-([0-9]{1,9})-([0-9]{1,9})")


def place_id(place: Place) -> str | None:
    """The `id` of an entry of ours: the one member beside the seal that strict clients hand back."""
    return None if place == _FIRST else f"drg-{place[0]}-{place[1]}"


def _place_of(entry: JSONObject) -> Place:
    found = _PLACE.fullmatch(entry["id"]) if type(entry.get("id")) is str else None
    return _FIRST if found is None else (int(found[1]), int(found[2]))


def read_turn(
    message: JSONObject, path: str, sealer: Sealer, content: list[Part], calls: list[Part]
) -> list[Part]:
    """The parts of an assistant's message in their order, as far as it is known: thoughts, content, calls."""
    thoughts = _thoughts(message, path, sealer)
    if all(place == _FIRST for _, place in thoughts):
        return [*[thought for thought, _ in thoughts], *content, *calls]
    out: list[Part] = []
    chars = given = 0
    for thought, (before, count) in thoughts:
        while chars < before and content:
            text = content[0]
            if not isinstance(text, Text):
                break
            if len(text.text) > before - chars:
                text, content[0] = _split(text, before - chars)
            else:
                del content[0]
            chars += len(text.text)
            out.append(text)
        out += calls[given:count]
        given = max(given, count)
        out.append(thought)
    return [*out, *content, *calls[given:]]


def _split(text: Text, at: int) -> tuple[Text, Text]:
    """A text in two. What it cites stays with the later one, without places: those count from the beginning."""
    sources = tuple([Citation(source.url, source.title) for source in text.sources])
    replace = msgspec.structs.replace
    first = replace(text, text=text.text[:at], cache=None, citations=None, sources=())
    return first, replace(text, text=text.text[at:], sources=sources)


def _thoughts(message: JSONObject, path: str, sealer: Sealer) -> list[tuple[Thought, Place]]:
    fields = {key: message[key] for key in REASONING_FIELDS if message.get(key)}
    if not fields:
        return []
    thoughts: list[tuple[Thought, Place]] = []
    loose: list[str] = []  # text of entries without a carrier
    strange: list[Thought] = []  # carriers that only a server of this protocol can make something of
    for field in ("reasoning_details", "thinking_blocks"):
        entries = fields.get(field)
        if type(entries) is not list:
            continue
        merged = Entries()  # clients may hand back the pieces of a stream one by one
        for entry in entries:
            merged.add(entry)
        for index, entry in enumerate(merged.whole()):
            at = f"{path}/{field}/{index}"
            found = _carried(entry, at, "".join(loose), sealer)
            if found is None:
                loose.append(entry_text(entry))
                if any(entry.get(key) for key in CLOSING_KEYS):
                    strange.append(Thought("", Seal(NAME, {field: [entry]}), path=at))
                continue
            said = "".join(loose)
            if not found[0].text.startswith(said):  # a signature covers its own text alone
                thoughts.append((Thought(said, path=f"{path}/{field}"), _FIRST))
            thoughts.append(found)
            loose.clear()
        if thoughts:
            break  # thinking_blocks say the same again
        loose.clear()
        strange.clear()
    if not thoughts:
        own = Thought(reasoning_text(fields), Seal(NAME, fields), path=f"{path}/{next(iter(fields))}")
        return [(own, _FIRST)]
    if not any(thought.text for thought, _ in thoughts):
        first, place = thoughts[0]
        thoughts[0] = msgspec.structs.replace(first, text=reasoning_text(fields)), place
    elif loose:
        thoughts.append((Thought("".join(loose), path=f"{path}/{field}"), _FIRST))
    return [*thoughts, *[(thought, _FIRST) for thought in strange]]


def _carried(entry: JSONObject, path: str, before: str, sealer: Sealer) -> tuple[Thought, Place] | None:
    """One entry as a thought with its carrier and its place, or None when it carries nothing.

    before: the text of summary entries that came before it; they are a ciphertext's readable side.
    """
    extra = unknown(entry, KNOWN_ENTRY)
    for key in CLOSING_KEYS:
        value = entry.get(key)
        if type(value) is str and Sealer.is_wrapped(value):
            text, seal = before + entry_text(entry), sealer.unwrap(value)
            thought = Thought(text, seal, extra=extra, path=f"{path}/{key}", forged=seal is None)
            return thought, _place_of(entry)
    seal = _foreign_seal(entry, before)
    if seal is None:
        return None
    kind = seal.native["type"]
    text = "" if kind == "redacted_thinking" else before if kind == "reasoning" else entry_text(entry)
    return Thought(text, seal, extra=extra, path=path), _FIRST


def _foreign_seal(entry: JSONObject, before: str) -> Seal | None:
    """Another vendor's block in an entry of OpenRouter's or LiteLLM's form."""
    kind, form = entry.get("type"), entry.get("format")
    signature, data = entry.get("signature"), entry.get("data")
    if kind == "thinking" or (kind == "reasoning.text" and form == "anthropic-claude-v1"):
        block = {"type": "thinking", "thinking": entry_text(entry), "signature": signature}
        return Seal(_MESSAGES, block) if signature else None
    if not data:
        return None
    if kind == "redacted_thinking" or (kind == "reasoning.encrypted" and form == "anthropic-claude-v1"):
        return Seal(_MESSAGES, {"type": "redacted_thinking", "data": data})
    if kind == "reasoning.encrypted" and form == "openai-responses-v1":
        summary = [{"type": "summary_text", "text": before}] if before else []
        item: JSONObject = {"type": "reasoning", "summary": summary, "encrypted_content": data}
        if entry.get("id"):
            item["id"] = entry["id"]
        return Seal(_RESPONSES, item)
    return None
