"""Reasoning in Chat Completions: fields that no official type has, under four names.

Strategy: a server's fields are kept exactly as they came (the pieces of a stream put together), because only
the server knows what it wants back. The text is taken once, from the first field that has it. Entries of
`reasoning_details` and `thinking_blocks` may carry another vendor's signatures; those become seals of that
vendor's protocol, in its own block form.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._events import Seal
from dragoman._json import JSON, JSONObject
from dragoman._request import Thought
from dragoman._seal import Sealer

from ._tables import NAME, REASONING_FIELDS
from ._wire import KNOWN_ENTRY, unknown

# The members of an entry that are text and grow piece by piece.
_TEXT_KEYS = ("text", "summary", "thinking")
# The members that close an entry: nothing is added to its text after them.
_CLOSING_KEYS = ("signature", "data")

# The other protocols, as far as their blocks travel inside Chat. Named as seals name them.
_MESSAGES = "anthropic_messages"
_RESPONSES = "openai_responses"


def entry_text(entry: JSON) -> str:
    """The readable text of one entry, "" when it has none."""
    if type(entry) is dict:
        for key in _TEXT_KEYS:
            text = entry.get(key)
            if type(text) is str:
                return text
    return ""


def entries_text(entries: JSON) -> str:
    """The readable text of a list of entries."""
    return "".join(map(entry_text, entries)) if type(entries) is list else ""


def reasoning_text(fields: JSONObject) -> str:
    """The text of a message's or delta's reasoning, from the first field that has any."""
    text = fields.get("reasoning_content")
    if type(text) is str and text:
        return text
    text = fields.get("reasoning")
    if type(text) is str and text:
        return text
    return entries_text(fields.get("reasoning_details")) or entries_text(fields.get("thinking_blocks"))


def part_text(part: JSONObject) -> str:
    """The text of a content part of type `thinking`: a string, or a list of text parts."""
    thinking = part.get("thinking")
    return thinking if type(thinking) is str else entries_text(thinking)


class Entries:
    """Puts the pieces of `reasoning_details` or `thinking_blocks` together.

    Pieces of one entry share type and index; "a signature arrives as a later entry of the same index". Two
    entries of one index are told apart by type, id, and by what has been closed by a signature.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[JSONObject, dict[str, list[str]]]] = []

    def add(self, entry: JSON) -> None:
        if type(entry) is not dict:
            return
        for known, texts in reversed(self._entries):
            if known.get("type") == entry.get("type") and known.get("index") == entry.get("index"):
                if _continues(known, entry):
                    _grow(known, texts, entry)
                    return
                break
        known, texts = {}, {}
        _grow(known, texts, entry)
        self._entries.append((known, texts))

    def whole(self) -> list[JSONObject]:
        """The entries so far, each in one piece."""
        return [{**known, **{key: "".join(texts[key]) for key in texts}} for known, texts in self._entries]


def _continues(known: JSONObject, entry: JSONObject) -> bool:
    """Whether `entry` is a further piece of `known`, which has the same type and index."""
    ours, theirs = known.get("id"), entry.get("id")
    if ours is not None and theirs is not None and ours != theirs:
        return False
    closed = any(known.get(key) for key in _CLOSING_KEYS)
    return not closed or not any(entry.get(key) for key in (*_TEXT_KEYS, *_CLOSING_KEYS))


def _grow(known: JSONObject, texts: dict[str, list[str]], entry: JSONObject) -> None:
    for key, value in entry.items():
        if key in _TEXT_KEYS and type(value) is str:
            known.setdefault(key, "")  # holds the key's place; the text is joined at the end
            texts.setdefault(key, []).append(value)
        elif value is not None or key not in known:
            known[key] = value


class Collected:
    """What an open reasoning block of an answer collects for its seal: the server's fields, put together."""

    __slots__ = ("_content", "entries", "said", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.entries: dict[str, Entries] = {}
        self.said: list[str] = []  # the text that was given as events
        self._content: JSONObject | None = None

    def add(self, delta: JSONObject) -> str:
        """Take a delta's fields; gives its text, which may stand in several of them."""
        plain = False
        seen = bool(self.texts)
        for field in ("reasoning_content", "reasoning"):
            value = delta.get(field)
            if type(value) is str and value:
                self.texts.setdefault(field, []).append(value)
                plain = True
        for field in ("reasoning_details", "thinking_blocks"):
            value = delta.get(field)
            if type(value) is list and value:
                entries = self.entries.setdefault(field, Entries())
                for entry in value:
                    entries.add(entry)
        text = reasoning_text(delta)
        # Some servers say the whole again, in an entry alone, when they sign it.
        return "" if seen and not plain and text == "".join(self.said) else text

    def add_part(self, part: JSONObject) -> str:
        """Take a content part of type `thinking`; gives its text."""
        self._content = {**(self._content or {}), **part}
        return part_text(part)

    def lane(self) -> tuple[bytes, Callable[[str], None]] | None:
        """The one field that holds the text, and how to add to it. None when it is not that simple."""
        if len(self.texts) != 1 or self.entries or self._content is not None:
            return None
        [(field, pieces)] = self.texts.items()

        def note(text: str) -> None:
            pieces.append(text)
            self.said.append(text)

        return field.encode("ascii"), note

    def native(self) -> JSONObject:
        fields: JSONObject = {field: "".join(pieces) for field, pieces in self.texts.items()}
        fields.update({field: entries.whole() for field, entries in self.entries.items()})
        if self._content is not None:
            thinking = [{"type": "text", "text": "".join(self.said)}]
            fields["content"] = [{**self._content, "thinking": thinking}]
        return fields


def read_thoughts(message: JSONObject, path: str, sealer: Sealer) -> list[Thought]:
    """The reasoning that an assistant message of the history brings back.

    Our own wrapped seals are unwrapped (a forged one leaves text without a seal), signatures of other vendors
    become seals of theirs, and everything else is one thought sealed as Chat's own.
    """
    fields = {key: message[key] for key in REASONING_FIELDS if message.get(key)}
    if not fields:
        return []
    thoughts: list[Thought] = []
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
            thought = _carried(entry, at, "".join(loose), sealer)
            if thought is None:
                loose.append(entry_text(entry))
                if any(entry.get(key) for key in _CLOSING_KEYS):
                    strange.append(Thought("", Seal(NAME, {field: [entry]}), path=at))
                continue
            said = "".join(loose)
            if not thought.text.startswith(said):  # a signature covers its own text alone
                thoughts.append(Thought(said, path=f"{path}/{field}"))
            thoughts.append(thought)
            loose.clear()
        if thoughts:
            break  # thinking_blocks say the same again
        loose.clear()
        strange.clear()
    if not thoughts:
        return [Thought(reasoning_text(fields), Seal(NAME, fields), path=f"{path}/{next(iter(fields))}")]
    if not any(thought.text for thought in thoughts):
        thoughts[0] = msgspec.structs.replace(thoughts[0], text=reasoning_text(fields))
    elif loose:
        thoughts.append(Thought("".join(loose), path=f"{path}/{field}"))
    return [*thoughts, *strange]


def is_wrapped_entry(entry: JSON) -> bool:
    """Whether an entry carries one of our own wrapped seals."""
    return type(entry) is dict and any(
        type(entry.get(key)) is str and Sealer.is_wrapped(entry[key]) for key in _CLOSING_KEYS
    )


def _carried(entry: JSONObject, path: str, before: str, sealer: Sealer) -> Thought | None:
    """One entry as a thought with its carrier, or None when it carries nothing.

    before: the text of summary entries that came before it; they are a ciphertext's readable side.
    """
    extra = unknown(entry, KNOWN_ENTRY)
    for key in _CLOSING_KEYS:
        value = entry.get(key)
        if type(value) is str and Sealer.is_wrapped(value):
            text = before + entry_text(entry)
            return Thought(text, sealer.unwrap(value), extra=extra, path=f"{path}/{key}")
    kind, form = entry.get("type"), entry.get("format")
    text, signature, data = entry_text(entry), entry.get("signature"), entry.get("data")
    if kind == "thinking" or (kind == "reasoning.text" and form == "anthropic-claude-v1"):
        if not signature:
            return None
        block = {"type": "thinking", "thinking": text, "signature": signature}
        return Thought(text, Seal(_MESSAGES, block), extra=extra, path=path)
    if not data:
        return None
    if kind == "redacted_thinking" or (kind == "reasoning.encrypted" and form == "anthropic-claude-v1"):
        block = {"type": "redacted_thinking", "data": data}
        return Thought("", Seal(_MESSAGES, block), extra=extra, path=path)
    if kind == "reasoning.encrypted" and form == "openai-responses-v1":
        summary = [{"type": "summary_text", "text": before}] if before else []
        item = {"type": "reasoning", "id": entry.get("id"), "summary": summary, "encrypted_content": data}
        return Thought(before, Seal(_RESPONSES, item), extra=extra, path=path)
    return None
