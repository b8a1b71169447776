"""Reasoning in Chat Completions: members that no official type has, under several names.

A server's members are kept exactly as they came, with the pieces of a stream joined, because it is not known which of
them the server needs back. The text is taken once, from the first member that has it. In a request, entries of
`reasoning_details` and `thinking_blocks` may carry wrapped signatures or another vendor's; those become signatures of
that vendor's protocol. Everything else is one block, with a signature of Chat's own. A message has its text in one
string and its calls in one list, so only the ids of our entries show where between them a block was.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.native import extra_of
from dragoman._ir.request import Citation, Part, Reasoning, Text
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import JSON, JSONObject, encode, objects_in, text_or_none
from dragoman._wire.limits import REASONING_ENTRIES as REASONING_ENTRIES_LIMIT
from dragoman.codec import SignaturePlaces
from dragoman.protocols.openai_chat.shapes import REASONING_ENTRY_SHAPE
from dragoman.protocols.openai_chat.tables import (
    CALL_EXTRAS,
    EXTRA_CONTENT,
    NAME,
    REASONING_ENTRIES,
    REASONING_FIELDS,
    REASONING_TEXTS,
)
from dragoman.protocols.openai_chat.tools import deep_merge

# The members of an entry that are text and grow piece by piece.
_TEXT_KEYS = ("text", "summary", "thinking")

# The members that close an entry: nothing is added to its text after them.
CLOSING_KEYS = ("signature", "data")


def entry_text(entry: JSON) -> str:
    """Return the readable text of one entry, "" if it has none."""
    if type(entry) is dict:
        for key in _TEXT_KEYS:
            text = entry.get(key)
            if type(text) is str:
                return text
    return ""


def entries_text(entries: JSON) -> str:
    """Return the readable text of a list of entries."""
    return "".join(map(entry_text, entries)) if type(entries) is list else ""


def reasoning_text(fields: JSONObject) -> str:
    """Return the text of a message's or delta's reasoning, from the first member that has any."""
    for field in REASONING_TEXTS:
        text = fields.get(field)
        if type(text) is str and text:
            return text
    return next(filter(None, [entries_text(fields.get(field)) for field in REASONING_ENTRIES]), "")


def part_text(part: JSONObject) -> str:
    """Return the text of a content part of type `thinking`: a string, or a list of text parts."""
    thinking = part.get("thinking")
    return thinking if type(thinking) is str else entries_text(thinking)


class ReasoningEntries:
    """Joins the pieces of `reasoning_details` or `thinking_blocks`.

    Pieces of one entry have the same type and index; its signature arrives as a later piece. A piece starts another
    entry of that index if it has another id, or if a signature has closed the one before.
    """

    __slots__ = ("_entries", "_last")

    def __init__(self, pieces: Iterable[JSON] = ()) -> None:
        self._entries: list[tuple[JSONObject, dict[str, list[str]]]] = []
        self._last: dict[bytes, tuple[JSONObject, dict[str, list[str]]]] = {}  # of a type and index
        for piece in pieces:
            self.add(piece)

    def add(self, entry: JSON) -> None:
        if type(entry) is not dict:
            return
        key = _piece_key(entry)
        found = self._last.get(key)
        if found is None or not _continues(found[0], entry):
            REASONING_ENTRIES_LIMIT.check(len(self._entries) + 1, "", "the reasoning")
            found = self._last[key] = {}, {}
            self._entries.append(found)
        _add_members(*found, entry)

    def open_texts(self, entry: JSONObject) -> dict[str, list[str]] | None:
        """Return the texts of the entry of this piece, which was added. None if it gets no more."""
        known, texts = self._last[_piece_key(entry)]
        return None if any(map(known.get, CLOSING_KEYS)) else texts

    def joined(self) -> list[JSONObject]:
        """Return the entries so far, each in one piece."""
        return [{**known, **{key: "".join(texts[key]) for key in texts}} for known, texts in self._entries]


def _piece_key(entry: JSONObject) -> bytes:
    return encode([entry.get("type"), entry.get("index")])  # of any type


def _continues(known: JSONObject, entry: JSONObject) -> bool:
    """True if `entry` is a further piece of `known`, which has the same type and index."""
    known_id, entry_id = known.get("id"), entry.get("id")
    if known_id is not None and entry_id is not None and known_id != entry_id:
        return False
    closed = any(known.get(key) for key in CLOSING_KEYS)
    return not closed or not any(entry.get(key) for key in (*_TEXT_KEYS, *CLOSING_KEYS))


def _add_members(known: JSONObject, texts: dict[str, list[str]], entry: JSONObject) -> None:
    for key, value in entry.items():
        if key in _TEXT_KEYS and type(value) is str:
            known.setdefault(key, "")  # keeps the order of members; the text is joined at the end
            texts.setdefault(key, []).append(value)
        elif value is not None or key not in known:
            known[key] = value


def readable_members(fields: JSONObject, path: str, ledger: Ledger) -> JSONObject:
    """Return the members of a message or delta that are reasoning. Those of another type are noted.

    path: of its choice.
    """
    found: JSONObject = {}
    for field in REASONING_FIELDS:
        value = fields.get(field)
        if not value:
            continue
        readable = objects_in(value) if field in REASONING_ENTRIES else text_or_none(value)
        if readable:
            found[field] = readable
        if readable != value:
            ledger.unknown_kind(f"{path}/message/{field}", "reasoning of an unknown type")
    return found


class ReasoningFields(msgspec.Struct):
    """Collects the server's reasoning members of an open block, which become its signature."""

    texts: dict[str, list[str]] = {}
    entries: dict[str, ReasoningEntries] = {}
    emitted: list[str] = []  # the text of the events so far
    _content: JSONObject | None = None
    _members: JSONObject = {}  # that came last

    def add(self, members: JSONObject) -> str:
        """Add the readable members of a delta. Return its text, which several of them may contain."""
        has_text = False
        seen = bool(self.texts)
        self._members = members
        for field, value in members.items():
            if type(value) is str:
                self.texts.setdefault(field, []).append(value)
                has_text = True
            else:
                entries = self.entries.setdefault(field, ReasoningEntries())
                for entry in value:
                    entries.add(entry)
        text = reasoning_text(members)
        # Some servers repeat the whole text in the entry with its signature.
        return "" if seen and not has_text and self._is_emitted(text) else text

    def _is_emitted(self, text: str) -> bool:
        """True if this is the text of the events so far. It takes no longer than the text, however much came before."""
        at = 0
        for piece in self.emitted:
            if not text.startswith(piece, at):
                return False
            at += len(piece)
        return at == len(text)

    def add_part(self, part: JSONObject) -> str:
        """Add a content part of type `thinking`. Return its text."""
        if self._content is None:
            self._content = {}
        self._content.update(part)
        return part_text(part)

    def template_parts(self) -> tuple[list[bytes], Callable[[list[str]], None]] | None:
        """Return the members of the last delta that have its text, and how to add to them. None if others count."""
        grown = [(field, self.texts[field]) for field in self._members if field in self.texts]
        if self._content is not None or (self.texts and not grown):
            return None
        for field in self._members.keys() & self.entries.keys():
            for entry in self._members[field]:
                texts = self.entries[field].open_texts(entry)
                if texts is None:
                    return None
                grown += [(key, texts[key]) for key in _TEXT_KEYS if type(entry.get(key)) is str]
        added = {id(pieces): pieces for _, pieces in grown}
        if not grown or len(added) < len(grown):
            return None

        def record(texts: list[str]) -> None:
            for pieces in (self.emitted, *added.values()):
                pieces.extend(texts)

        return [name.encode("ascii") for name, _ in grown], record

    def native(self) -> JSONObject:
        """Return the members so far, each in one piece."""
        fields: JSONObject = {field: "".join(pieces) for field, pieces in self.texts.items()}
        fields.update({field: entries.joined() for field, entries in self.entries.items()})
        if self._content is not None:
            thinking = [{"type": "text", "text": "".join(self.emitted)}]
            fields["content"] = [{**self._content, "thinking": thinking}]
        return fields


# The protocols whose signatures travel inside Chat, named as signatures name them.
_MESSAGES = "anthropic_messages"
_RESPONSES = "openai_responses"

# The number of characters of the message's text, and of its calls, before a block.
Position = tuple[int, int]
_START: Position = (0, 0)

_POSITION_ID = r"drg-([0-9]{1,9})-([0-9]{1,9})"


def position_id(position: Position) -> str | None:
    """Return the `id` for an entry of ours: the one member besides the signature that strict clients send back."""
    return None if position == _START else f"drg-{position[0]}-{position[1]}"


def position_of(entry: JSONObject) -> Position:
    found = re.fullmatch(_POSITION_ID, entry["id"]) if type(entry.get("id")) is str else None
    return _START if found is None else (int(found[1]), int(found[2]))


def read_turn(
    message: JSONObject, path: str, signer: Signer, content: list[Part], calls: list[Part]
) -> list[Part]:
    """Return the parts of an assistant's message in their order if it is known, else reasoning, content, calls."""
    blocks = _earlier_blocks(message, path, signer)
    leading = [block for block, position in blocks if position == _START]
    if len(leading) == len(blocks):
        return [*leading, *content, *calls]
    out: list[Part] = []
    chars = calls_used = 0
    rest = deque(content)
    for block, (before, count) in blocks:
        while chars < before and rest:
            text = rest[0]
            if not isinstance(text, Text):
                break
            if len(text.text) > before - chars:
                text, rest[0] = _split(text, before - chars)
            else:
                rest.popleft()
            chars += len(text.text)
            out.append(text)
        out += calls[calls_used:count]
        calls_used = max(calls_used, count)
        out.append(block)
    return [*out, *rest, *calls[calls_used:]]


def _split(text: Text, at: int) -> tuple[Text, Text]:
    """Split a text in two. The second keeps the citations, without spans, which count from the beginning."""
    sources = tuple([Citation(source.url, source.title) for source in text.sources])
    replace = msgspec.structs.replace
    first = replace(text, text=text.text[:at], cache=None, citations=None, sources=())
    return first, replace(text, text=text.text[at:], sources=sources)


def _earlier_blocks(message: JSONObject, path: str, signer: Signer) -> list[tuple[Reasoning, Position]]:
    """Read the reasoning that a client sends back, and where in the message each block belongs."""
    fields = {key: message[key] for key in REASONING_FIELDS if message.get(key)}
    if not fields:
        return []
    blocks: list[tuple[Reasoning, Position]] = []
    unsigned: list[str] = []  # text of entries without a signature
    opaque: list[Reasoning] = []  # signatures that only a server of this protocol can read
    for field in REASONING_ENTRIES:
        entries = fields.get(field)
        if type(entries) is not list:
            continue
        # Clients may send back the pieces of a stream one by one. Nearly always there is one.
        is_whole = len(entries) == 1 and type(entries[0]) is dict
        for index, entry in enumerate(entries if is_whole else ReasoningEntries(entries).joined()):
            at = f"{path}/{field}/{index}"
            found = _signed_entry(entry, at, unsigned, signer)
            if found is None:
                unsigned.append(entry_text(entry))
                if any(entry.get(key) for key in CLOSING_KEYS):
                    opaque.append(Reasoning("", Signature(NAME, {field: [entry]}), path=at))
                continue
            text = "".join(unsigned)
            if not found[0].text.startswith(text):  # a signature covers only its own text
                blocks.append((Reasoning(text, path=f"{path}/{field}"), _START))
            blocks.append(found)
            unsigned.clear()
        if blocks:
            break  # thinking_blocks repeat it
        unsigned.clear()
        opaque.clear()
    if not blocks:
        # The texts repeat the entries, which may have more members.
        field = next((name for name in REASONING_ENTRIES if name in fields), next(iter(fields)))
        return [(Reasoning(reasoning_text(fields), Signature(NAME, fields), path=f"{path}/{field}"), _START)]
    first, position = blocks[0]
    if not first.text and not any(block.text for block, _ in blocks):
        blocks[0] = msgspec.structs.replace(first, text=reasoning_text(fields)), position
    elif unsigned:
        blocks.append((Reasoning("".join(unsigned), path=f"{path}/{field}"), _START))
    return [*blocks, *[(block, _START) for block in opaque]] if opaque else blocks


def _signed_entry(
    entry: JSONObject, path: str, before: list[str], signer: Signer
) -> tuple[Reasoning, Position] | None:
    """Read an entry with a signature, and its position. None for an entry without one.

    before: the texts of the summary entries before it, which are the readable side of a ciphertext. They are joined
    only for an entry that takes them, so that each is joined once.
    """
    for key in CLOSING_KEYS:
        value = entry.get(key)
        if type(value) is str and Signer.is_wrapped(value):
            text, signature = "".join([*before, entry_text(entry)]), signer.unwrap(value)
            extra = extra_of(entry, REASONING_ENTRY_SHAPE)
            return Reasoning(text, signature, f"{path}/{key}", signature is None, **extra), position_of(entry)
    signature = _vendor_signature(entry, before)
    if signature is None:
        return None
    kind = signature.native["type"]
    text = (
        "" if kind == "redacted_thinking" else "".join(before) if kind == "reasoning" else entry_text(entry)
    )
    return Reasoning(text, signature, path, **extra_of(entry, REASONING_ENTRY_SHAPE)), _START


def _vendor_signature(entry: JSONObject, before: list[str]) -> Signature | None:
    """Return the signature of another vendor in an entry of OpenRouter's or LiteLLM's form, None without one."""
    kind, form = entry.get("type"), entry.get("format")
    signature, data = entry.get("signature"), entry.get("data")
    if kind == "thinking" or (kind == "reasoning.text" and form == "anthropic-claude-v1"):
        block = {"type": "thinking", "thinking": entry_text(entry), "signature": signature}
        return Signature(_MESSAGES, block) if signature else None
    if not data:
        return None
    if kind == "redacted_thinking" or (kind == "reasoning.encrypted" and form == "anthropic-claude-v1"):
        return Signature(_MESSAGES, {"type": "redacted_thinking", "data": data})
    if kind == "reasoning.encrypted" and form == "openai-responses-v1":
        summary = [{"type": "summary_text", "text": text}] if (text := "".join(before)) else []
        item: JSONObject = {"type": "reasoning", "summary": summary, "encrypted_content": data}
        if entry.get("id"):
            item["id"] = entry["id"]
        return Signature(_RESPONSES, item)
    return None


def add_texts(fields: JSONObject, field: str, texts: list[str]) -> None:
    """Add reasoning that is plain text to the member that the upstream reads."""
    before = fields.get(field)
    if field == "reasoning_details":
        entries: list[JSON] = list(before) if type(before) is list else []
        for number, text in enumerate(texts, len(entries)):
            entries.append({"type": "reasoning.text", "text": text, "format": "unknown", "index": number})
        fields[field] = entries
    else:
        fields[field] = "\n\n".join([before, *texts] if type(before) is str else texts)


def native_reasoning(block: Reasoning) -> JSONObject:
    """Return the members that a server of this protocol signed, {} for any other signature and for none."""
    signature = block.signature
    if signature is None or signature.origin != NAME or type(signature.native) is not dict:
        return {}
    return signature.native


def stands_in_fields(block: Reasoning) -> bool:
    """True if reasoning of a Chat request is written with the raw members of its message."""
    steps = block.path.split("/", 4)
    return len(steps) > 3 and steps[3] in REASONING_FIELDS


def join_native_reasoning(natives: list[JSONObject]) -> tuple[JSONObject, list[JSONObject]]:
    """Join the native reasoning of several blocks: members of one message, and parts at the start of its content.

    Only members that hold reasoning are taken, because without a secret a client could have made up the rest.
    """
    fields: JSONObject = {}
    leading: list[JSONObject] = []
    for native in natives:
        content = native.get("content")
        if type(content) is list:
            leading += [part for part in content if type(part) is dict and part.get("type") == "thinking"]
        for key in REASONING_FIELDS:
            value = native.get(key)
            if not value:
                continue
            before = fields.get(key)
            if type(value) is list and type(before) is list:
                value = ReasoningEntries((*before, *value)).joined()
            elif type(value) is str and type(before) is str and key in REASONING_TEXTS:
                value = f"{before}\n\n{value}"
            fields[key] = value
    return fields, leading


# Signatures in the client's body, see SignaturePlaces.


def put_signed_members(
    native: JSONObject, message: JSONObject, calls: JSON, position: int, path: str, ledger: Ledger
) -> None:
    """Put what a server signed besides its reasoning back into a message and onto its calls.

    position: the number of calls before the signature; path: of the signature.
    """
    extra_content = native.get(EXTRA_CONTENT)
    if type(extra_content) is dict:
        message[EXTRA_CONTENT] = deep_merge(message.get(EXTRA_CONTENT), extra_content)
    extras = native.get(CALL_EXTRAS)
    if type(extras) is not dict:
        return
    # The first of equal ids.
    places = {
        call["id"]: at
        for at, call in reversed(list(enumerate(calls or ())))
        if type(call) is dict and type(call.get("id")) is str
    }
    for call_id, extra in extras.items():
        if type(extra) is not dict:
            continue
        at = places.get(call_id, position)  # ids may have changed
        if at < len(calls or ()):
            calls[at] = deep_merge(extra, calls[at])
        else:
            ledger.dropped(path, "the tool call that it belongs to is no longer in the conversation")


def _replace_signed_entry(
    entry: JSONObject, native: JSONObject | None, message: JSONObject, path: str, ledger: Ledger
) -> Iterable[JSON]:
    """Return the server's own entries, and put what else it signed into the message."""
    if native is None:
        return (entry,)
    fields, leading = join_native_reasoning([native])
    entries = objects_in(fields.pop("reasoning_details", None))
    for key, value in fields.items():
        message.setdefault(key, value)
    if leading:
        content = message.get("content") or []
        parts = [{"type": "text", "text": content}] if type(content) is str else content
        if type(parts) is list:  # another value is the upstream's to refuse
            message["content"] = leading + parts
    calls = message.get("tool_calls")
    put_signed_members(
        native, message, calls if type(calls) is list else None, position_of(entry)[1], path, ledger
    )
    return entries


SIGNATURE_PLACES = SignaturePlaces(
    members=REASONING_ENTRIES,
    fields={
        "reasoning.encrypted": "data",
        "reasoning.text": "signature",
        "redacted_thinking": "data",
        "thinking": "signature",
    },
    replace=_replace_signed_entry,
)
