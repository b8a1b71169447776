"""Reasoning in Chat Completions: fields that no official type has, under four names.

Strategy: a server's fields are kept exactly as they came (the pieces of a stream put together), because only
the server knows what it wants back. The text is taken once, from the first field that has it.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.signatures import Sealer
from dragoman._wire.json import JSON, JSONObject

# The members of an entry that are text and grow piece by piece.
_TEXT_KEYS = ("text", "summary", "thinking")
# The members that close an entry: nothing is added to its text after them.
CLOSING_KEYS = ("signature", "data")


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
    closed = any(known.get(key) for key in CLOSING_KEYS)
    return not closed or not any(entry.get(key) for key in (*_TEXT_KEYS, *CLOSING_KEYS))


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


def is_wrapped_entry(entry: JSON) -> bool:
    """Whether an entry carries one of our own wrapped seals."""
    return type(entry) is dict and any(
        type(entry.get(key)) is str and Sealer.is_wrapped(entry[key]) for key in CLOSING_KEYS
    )
