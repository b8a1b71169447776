"""Read one candidate of a response: parts in, blocks out.

A candidate keeps one open block of text or thoughts and ends it when another kind of part comes. A call comes whole in
one part, unless the client has requested pieces. A signature becomes reasoning before its call, or behind its text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

import msgspec

from dragoman._ir import events
from dragoman._ir.events import BlockKind, Event, Failed, ReasoningForm, Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.shape import extra_members, note_unread, response_shape
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import unreadable_response
from dragoman._wire.json import JSON, JSONObject, encode_text, kind_of, read_count, read_number, text_or_none
from dragoman.codec import ResponseContext
from dragoman.protocols.gemini import shapes, tables
from dragoman.protocols.gemini.checks import enum_name, objects
from dragoman.protocols.gemini.offsets import Offsets
from dragoman.protocols.gemini.tables import DATA_MEMBERS, FINISH_REASONS, NAME, SIGNATURE, SIGNED

# The server puts this before names in its own texts, and sometimes in calls.
_NAME_PREFIX = "default_api:"
# Models up to 3.6 say so at the end of a response with calls, which says it, too.
_CALL_MESSAGE = "Model generated function call(s)."

_SUMMARY = ReasoningForm.SUMMARY  # members of an Enum are slow to look up

_CANDIDATE, _PART = response_shape(shapes.CANDIDATE_SHAPE), response_shape(shapes.PART_SHAPE)

# Nearly all candidates, contents and parts have no other members than these.
_CANDIDATE_MEMBERS = frozenset({"content", "index"})
_CONTENT_MEMBERS = frozenset({"parts", "role"})
_TEXT_MEMBERS = frozenset({"text", "thought"})

# What waits for the end of a candidate: the last one that is not empty counts. With the place of its citations.
_METADATA = {
    "groundingMetadata": "groundingMetadata/groundingSupports",
    "citationMetadata": "citationMetadata",
    "urlContextMetadata": "urlContextMetadata",
}

# A citation as it came, its source, and its place in the text.
_Cited: TypeAlias = tuple[JSONObject, JSONObject, JSONObject]


class Blocks(msgspec.Struct):
    """What the candidates of one response share.

    same_protocol: the client speaks it, too. model: as the upstream reports it. numbers: of blocks. calls: numbers of
    those that came without an id.
    """

    context: ResponseContext
    same_protocol: bool
    model: str = ""
    numbers: Iterator[int] = msgspec.field(default_factory=count)
    calls: Iterator[int] = msgspec.field(default_factory=count)


# Arguments in pieces.

_STEP = r"\.([^.\[\]]+)|\[(?:(\d{1,6})|'([^']*)')\]"


class PartialArguments(msgspec.Struct):
    """Collects the arguments of a call that come in pieces: each has a JSONPath and a value, or a piece of a string."""

    value: JSONObject = {}
    _path: list[str | int] = []
    _pieces: list[str] = []

    def add(self, call: JSONObject) -> None:
        arguments = call.get("args")
        if type(arguments) is dict:
            self.value.update(arguments)
        elif arguments is not None:  # a call without them would be another one
            raise unreadable_response(f"args of a function call is {kind_of(arguments)}")
        for piece in objects(call.get("partialArgs")):
            path = [
                int(number) if number else name or quoted
                for name, number, quoted in re.findall(_STEP, str(piece.get("jsonPath")))
            ]
            if not path:
                raise unreadable_response("a piece of a function call's arguments has no place")
            value = piece.get("stringValue")
            if type(value) is not str:
                found = [piece[name] for name in shapes.ARGUMENT_VALUES if name in piece]
                self._put(path, None if "nullValue" in piece or not found else read_number(found[0]))
                continue
            if path != self._path:
                self._path, self._pieces = path, []
            self._pieces.append(value)
            if piece.get("willContinue") is not True:
                self._put(path, "".join(self._pieces))
                self._path, self._pieces = [], []

    def _put(self, path: list[str | int], value: JSON) -> None:
        holder: JSON = self.value
        for step, after in zip(path, [*path[1:], None], strict=True):
            if type(step) is str and type(holder) is dict:
                holder.setdefault(step, None)
            elif type(step) is int and type(holder) is list and step == len(holder):
                holder.append(None)
            elif type(step) is not int or type(holder) is not list or step > len(holder):
                raise unreadable_response("a piece of a function call's arguments is out of place")
            if after is None:
                holder[step] = value
            elif holder[step] is None:
                holder[step] = [] if type(after) is int else {}
            holder = holder[step]


class CandidateReader(msgspec.Struct):
    """Reads one candidate.

    finish_reason: the last one that came, None before.
    block: the number of the last block.
    texts: of the open block, if it is text: offsets count its bytes.
    signed: its signature, which comes behind it.
    """

    index: int
    _path: str
    _blocks: Blocks
    _ledger: Ledger
    finish_reason: str | None = None
    _message: str | None = None
    _kind: BlockKind | None = None  # of the open block
    block: int = -1
    texts: list[str] = []
    _called: set[str] = set()  # the tools
    _written: bool = False
    _parts: int = -1  # the number of the last part
    _args: PartialArguments | None = None  # of the open call
    _members: JSONObject = {}  # for the end
    _uncited: dict[str, deque[_Cited]] = {}  # the citations in them that are in no text yet, by member
    signed: JSONObject | None = None
    _before: int = 0  # bytes of the texts before the open one that only signatures divide from it

    def read(self, candidate: JSONObject, out: list[Event]) -> None:
        """Read a chunk's candidate."""
        content = candidate.get("content")
        if type(content) is not dict:
            content = {}
        usual = content.keys() <= _CONTENT_MEMBERS and candidate.keys() <= _CANDIDATE_MEMBERS
        if not usual:
            self._note_members(candidate)
        parts = content.get("parts")
        if type(parts) is dict:
            parts = [parts]
        elif parts is not None and type(parts) is not list:
            raise unreadable_response(f"parts is {kind_of(parts)}")
        start = len(out)
        for part in parts or ():
            if type(part) is not dict:
                raise unreadable_response(f"a part is {kind_of(part)}")
            if type(text := part.get("text")) is str and part.keys() <= _TEXT_MEMBERS:
                self._read_text(part, text, None, out)  # as most are
            else:
                self._read_part(part, out)
        if usual:
            return
        logprobs = candidate.get("logprobsResult")
        if type(logprobs) is dict:
            self._read_logprobs(logprobs, out, start)
        self.finish_reason = enum_name(candidate.get("finishReason"), FINISH_REASONS) or self.finish_reason
        self._message = text_or_none(candidate.get("finishMessage")) or self._message

    def _note_members(self, candidate: JSONObject) -> None:
        """Note what nothing else reads, and keep what waits for the end."""
        kept, noted = dict.fromkeys(_METADATA), candidate
        if self._blocks.same_protocol:
            kept |= extra_members(candidate, shapes.WRITTEN_CANDIDATE_SHAPE) or {}
            noted = {name: value for name, value in candidate.items() if name not in kept}
        note_unread(noted, _CANDIDATE, self._path, self._ledger)
        for name in kept:
            value = candidate.get(name)
            if name not in _METADATA or (type(value) is dict and value and value != self._members.get(name)):
                self._members[name] = value
                if not self._blocks.same_protocol:
                    self._uncited[name] = deque(_cited({name: value}))

    def _read_part(self, part: JSONObject, out: list[Event]) -> None:
        kind = next((name for name in DATA_MEMBERS if part.get(name) is not None), None)
        signature = text_or_none(part.get(SIGNATURE))
        if kind == "functionCall" and type(part[kind]) is dict:
            # A part should have one of them only.
            if type(text := part.get("text")) is str and text:
                self._read_text(part, text, None, out)
            self._read_call(part[kind], signature, out)
        elif kind == "text" and type(part["text"]) is str:
            self._read_text(part, part["text"], signature, out)
        elif kind is None and signature is not None and part.keys() <= {SIGNATURE, "thought"}:
            self._read_text(part, "", signature, out)
        else:
            self._end_block(out)
            if part:
                self._before = 0
                self._parts += 1
                path = f"{self._path}/content/parts/{self._parts}"
                self._written = True
                out.append(events.Opaque(NAME, kind or next(iter(part)), part, path, self.index))
            return
        note_unread(part, _PART, self._path, self._ledger, ("content", "parts", max(self._parts, 0)))

    # --- text and thoughts --------------------------------------------------------------------------------

    def _read_text(self, part: JSONObject, text: str, signature: str | None, out: list[Event]) -> None:
        thought = part.get("thought") is True
        if text:
            kind = events.REASONING if thought else events.TEXT
            if kind is not self._kind or self.signed is not None:
                self._open(kind, out)
            if thought:
                out.append(events.ReasoningDelta(self.block, text, 0, _SUMMARY))
            else:
                self._written = True
                self.texts.append(text)
                out.append(events.TextDelta(self.block, text))
        else:
            if signature is not None and self.signed is not None:
                self._end_block(out)
            self._parts += 1
        if signature is None:
            return
        # The client sends a text as one part, with its signature.
        signs_text = text and not thought
        native = {SIGNED: "text", SIGNATURE: signature} if signs_text else {**part, "text": text}
        if self._kind is events.TEXT and not thought and self.signed is None:
            self.signed = native  # sources of the text may follow
            return
        if not thought:
            self._end_block(out)
        elif self._kind is not events.REASONING:
            self._open(events.REASONING, out)
        self._sign(native, out)

    def _open(self, kind: BlockKind, out: list[Event]) -> None:
        """Open a block of this kind, for a part."""
        self._end_block(out)
        if kind is not events.TEXT:
            self._before = 0
        self.texts = []
        self._parts += 1
        self._start(kind, out)

    def _start(self, kind: BlockKind, out: list[Event], tool: events.ToolHead | None = None) -> None:
        self._end_block(out)
        self._kind = kind
        self.block = next(self._blocks.numbers)
        path = f"{self._path}/content/parts/{max(self._parts, 0)}"
        out.append(events.BlockStarted(self.block, kind, self.index, tool, path=path))

    def _sign(self, native: JSONObject, out: list[Event]) -> None:
        """Sign the open thoughts, or add reasoning without text that has the signature."""
        signature = Signature(NAME, native, self._blocks.model)
        if self._kind is not events.REASONING:
            self._start(events.REASONING, out)
        out.append(events.SignatureDelta(self.block, signature))
        self._end_block(out)

    def _end_block(self, out: list[Event], *, complete: bool = True) -> None:
        if self._args is not None:
            text, self._args = encode_text(self._args.value), None
            # What was cut off must not look complete.
            out.append(events.ArgumentsDelta(self.block, text if complete or text == "{}" else text[:-1]))
        signed, self.signed = self.signed, None
        if signed is not None or self._before:
            self._finish_text(out)
        if self._kind is events.TEXT:
            # It may go on behind its signature (recorded at Vertex AI in 2026).
            self._before = 0 if signed is None else self._before + Offsets("".join(self.texts)).size
        if self._kind is not None:
            out.append(events.BlockEnded(self.block, complete))
            self._kind = None
        if signed is not None:
            self._sign(signed, out)

    # --- calls --------------------------------------------------------------------------------------------

    def _read_call(self, call: JSONObject, signature: str | None, out: list[Event]) -> None:
        name = call.get("name")
        if type(name) is str and name:
            if self.signed is not None:
                self._end_block(out)
            self._parts += 1
            if signature is not None:
                self._sign({SIGNED: "functionCall", SIGNATURE: signature}, out)
            name = name.removeprefix(_NAME_PREFIX)
            self._called.add(name)
            self._written = True
            call_id = (
                text_or_none(call.get("id")) or f"call_{self._blocks.context.id}_{next(self._blocks.calls)}"
            )
            self._start(events.TOOL_CALL, out, events.ToolHead(call_id, name))
            self._before = 0
            self._args = PartialArguments()
        if self._args is None:
            if call:
                raise unreadable_response("a function call has no name")
            return
        self._args.add(call)
        if call.get("willContinue") is not True:
            self._end_block(out)

    # --- side data ----------------------------------------------------------------------------------------

    def _read_logprobs(self, value: JSONObject, out: list[Event], start: int) -> None:
        """Put log probabilities before the text that they are about, which is in `out` from `start` on."""
        texts = [at for at in range(start, len(out)) if isinstance(out[at], events.TextDelta)]
        chosen = objects(value.get("chosenCandidates"))
        if not texts or not chosen:
            if chosen:
                self._ledger.dropped(
                    f"{self._path}/logprobsResult", "log probabilities of something other than text"
                )
            return
        top = [objects(each.get("candidates")) for each in objects(value.get("topCandidates"))]
        tokens: list[JSON] = [
            {**_token(token), "top_logprobs": list(map(_token, top[at] if at < len(top) else []))}
            for at, token in enumerate(chosen)
        ]
        delta = out[texts[0]]
        assert isinstance(delta, events.TextDelta)
        out.insert(texts[0], events.Logprobs(delta.block, tokens))

    def _finish_text(self, out: list[Event], *, is_last: bool = False) -> None:
        """Cite in the open text the sources that have come, but for those of a later one."""
        if self._kind is not events.TEXT or not any(self._uncited.values()):
            return
        offsets = Offsets("".join(self.texts))
        end = self._before + offsets.size
        for name, cited in self._uncited.items():
            path = f"{self._path}/{_METADATA[name]}"
            while cited and (is_last or (read_count(cited[0][2], "startIndex") or 0) < end):
                native, web, segment = cited.popleft()
                url, title = text_or_none(web.get("uri")), text_or_none(web.get("title"))
                if url is not None:
                    span = _characters(offsets, segment, self._before)
                    out.append(events.Annotation(self.block, NAME, native, url, title, *span, path))

    def _opaque(self) -> list[Event]:
        """Return the parts for which other protocols have no or another place: the search, and the rest as it came."""
        out: list[Event] = []
        for name, value in self._members.items():
            kind, native, search = name, value, _search(name, value)
            if self._blocks.same_protocol:
                kind, native, search = "candidate", {name: value}, None
            out.append(events.Opaque(NAME, kind, native, f"{self._path}/{name}", self.index, False, search))
        return out

    # --- the end ------------------------------------------------------------------------------------------

    def end(self, out: list[Event]) -> bool:
        """End the candidate. Return False if that is the failure of the response."""
        native = self.finish_reason or ""
        reason = tables.STOP_REASONS.get(native)
        declared = self._called and self._called <= self._blocks.context.undo.declared
        if (
            native in tables.ERROR_FINISH_REASONS
            or (reason is events.TOOL_USE and not declared)
            or (reason is None and not self._written)
        ):
            message = self._message or f"the upstream stopped with finishReason {native}"
            out.append(Failed(WireError(ErrorKind.SERVER, message, code=native.lower())))
            return False
        if reason is None:
            self._ledger.altered(
                f"{self._path}/finishReason",
                "a finish reason without a counterpart was read as the end of the turn",
            )
            reason = events.END
        cut = reason in events.TRUNCATING_STOP_REASONS
        self._finish_text(out, is_last=True)
        self._end_block(out, complete=not cut)
        for name, cited in self._uncited.items():
            if cited:
                self._ledger.dropped(f"{self._path}/{_METADATA[name]}", "there is no text to cite")
        explanation = self._message if reason is events.CONTENT_FILTER else None
        if self._message not in (explanation, _CALL_MESSAGE) and not self._blocks.same_protocol:
            self._ledger.dropped(
                f"{self._path}/finishMessage",
                "other protocols have a text about the end only where a filter ended it",
            )
        out += self._opaque()
        if reason is events.END and self._called:
            reason = events.TOOL_USE
        out.append(events.Stopped(reason, native, self.index, explanation=explanation))
        return True


def _token(token: JSONObject) -> JSONObject:
    logprob = read_number(token.get("logProbability") or 0)
    # "Otherwise, the value -9999.0 is used to signify that the token is very unlikely." (platform.openai.com/docs,
    # Chat Completions, read 2026-11-22)
    return {
        "token": token.get("token") or "",
        "logprob": -9999.0 if logprob == "-Infinity" else logprob,
        "bytes": None,
    }


def _cited(metadata: JSONObject) -> list[_Cited]:
    """Return the citations."""
    grounding, citations = metadata.get("groundingMetadata") or {}, metadata.get("citationMetadata") or {}
    # Of each its first object alone, because every citation has a copy of it.
    sources = [
        next(((name, each) for name, each in chunk.items() if type(each) is dict), None)
        for chunk in objects(grounding.get("groundingChunks"))
    ]
    found: list[_Cited] = []
    for support in objects(grounding.get("groundingSupports")):
        place = next(iter(objects(support.get("segment"))), {})
        indices = support.get("groundingChunkIndices")
        for index in indices if type(indices) is list else ():
            number = read_count(index)
            if number is not None and number < len(sources) and (source := sources[number]) is not None:
                found.append(({source[0]: source[1], "segment": place}, source[1], place))
    for name in ("citationSources", "citations"):
        for each in objects(citations.get(name)):
            found.append((each, each, each))
    return found


def _characters(offsets: Offsets, segment: JSONObject, before: int) -> tuple[int | None, int | None]:
    """Return the span of a segment in characters: it counts bytes of UTF-8, and leaves out a start of 0.

    before: bytes that it counts before the text.
    """
    start = (read_count(segment, "startIndex") or 0) - before
    end = (read_count(segment, "endIndex") or 0) - before
    if not 0 <= start < end <= offsets.size:
        return None, None
    return offsets.to_characters(start), offsets.to_characters(end)


def _search(name: str, value: JSON) -> events.Search | None:
    """Return queries and sources of a web search, None for all else."""
    queries = value.get("webSearchQueries") if name == "groundingMetadata" else None
    texts = [each for each in queries if type(each) is str] if type(queries) is list else []
    if not texts:
        return None
    sources = [
        events.Source(page["uri"], text_or_none(page.get("title")))
        for chunk in objects(value.get("groundingChunks"))
        for page in objects(chunk.get("web"))
        if text_or_none(page.get("uri"))
    ]
    return events.Search(tuple(texts), tuple(sources))
