"""Read one choice of a response: deltas in, blocks out.

Chat has no starts and no ends of blocks. So a choice keeps one open text, refusal or reasoning block, ends it when the
kind of delta changes, and leaves tool calls to `ToolCallReader`. A whole message is read as one large delta.
"""

from __future__ import annotations

from itertools import repeat

import msgspec

from dragoman._ir import events
from dragoman._ir.events import (
    TRUNCATING_STOP_REASONS,
    BlockKind,
    Event,
    Search,
    Signature,
    Source,
    StopReason,
)
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import has_content, note_unread, response_shape
from dragoman._wire.exceptions import unreadable_response
from dragoman._wire.json import (
    JSON,
    JSONObject,
    encode_text,
    kind_of,
    object_or_empty,
    object_or_none,
    objects_in,
)
from dragoman.protocols._openai.citations import read_url_citation
from dragoman.protocols.openai_chat.reasoning import ReasoningFields, entry_text, readable_members
from dragoman.protocols.openai_chat.response_tool_calls_in import (
    IdAllocator,
    ToolCallReader,
    signature_events,
)
from dragoman.protocols.openai_chat.shapes import ANNOTATION_SHAPE, CONTENT_SHAPE, DELTA_SHAPE
from dragoman.protocols.openai_chat.tables import (
    END_FINISH_REASONS,
    EXECUTED_TOOLS,
    EXTRA_CONTENT,
    NAME,
    OPAQUE_FIELDS,
    REASONING_FIELDS,
    STOP_REASONS,
)

_DELTA, _CONTENT, _ANNOTATION = map(response_shape, (DELTA_SHAPE, CONTENT_SHAPE, ANNOTATION_SHAPE))

# Reasons after which the open blocks may be incomplete.
_TRUNCATING_REASONS = TRUNCATING_STOP_REASONS | {StopReason.CONTENT_FILTER}

# The official members of a delta, and of a message.
_OFFICIAL_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})
_USUAL_FIELDS = _OFFICIAL_FIELDS.union(REASONING_FIELDS)

_LOGPROBS = (("content", BlockKind.TEXT), ("refusal", BlockKind.REFUSAL))


# Of choices that have none yet, as most: they are not filled.
_NO_REASONING = ReasoningFields()
_NO_CALLS = ToolCallReader(0, IdAllocator(""), "")


class ChoiceReader(msgspec.Struct):
    """Reads one choice.

    kind: the kind of its open block, None if none is open; block: the number of that block.
    finish_reason: the last one that came, and native_finish_reason as the model's own server named it.
    sequence: the stop sequence that was reported.
    """

    index: int
    path: str
    _ids: IdAllocator
    _model: str
    _ledger: Ledger
    kind: BlockKind | None = None
    block: int = -1
    # Shared until there is something: by functions of C, because each response asks for them.
    calls: ToolCallReader = msgspec.field(default_factory=repeat(_NO_CALLS).__next__)
    reasoning: ReasoningFields = msgspec.field(default_factory=repeat(_NO_REASONING).__next__)
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    sequence: str | None = None
    _pending_citations: list[tuple[JSONObject, str]] = []  # with their path, until there is text
    _annotation_count: int = 0  # of the annotations so far
    _cited_urls: dict[str | None, None] = {}  # of the pages that are cited; an empty set takes 150 bytes more
    _executed: dict[object, JSON] = {}  # uses of the server's own tools, not yet emitted
    _extra_content: JSONObject = {}  # what the server needs back, not yet emitted

    def read_delta(self, delta: JSONObject, *, whole: bool, out: list[Event]) -> None:
        """Read a delta, or a whole message."""
        if not delta.keys() <= _OFFICIAL_FIELDS:
            self._read_extensions(delta, out)
        content = delta.get("content")
        if type(content) is str:
            if content:
                self._emit_text(events.TEXT, content, out)
        elif type(content) is list:
            note_unread(content, _CONTENT, f"{self.path}/message/content", self._ledger)
            for part in content:
                self._read_part(part, out)
        elif type(content) is dict and whole:
            # Cloudflare has read the JSON that was requested (recorded in January 2026).
            self._emit_text(events.TEXT, encode_text(content), out)
        elif content is not None:
            raise unreadable_response(f"content is {kind_of(content)}")
        refusal = delta.get("refusal")
        if type(refusal) is str and refusal:
            self._emit_text(events.REFUSAL, refusal, out)
        calls = delta.get("tool_calls")
        if calls:
            if type(calls) is dict:
                calls = [calls]  # streams of TGI before 3.0
            elif type(calls) is not list:
                raise unreadable_response(f"tool_calls is {kind_of(calls)}")
            reader = self._begin_calls(out)
            # A choice may come in several messages, see `ChatReader`.
            for position, fragment in enumerate(calls, len(reader.calls)):
                reader.read_fragment(fragment, out, default_index=position if whole else None)
        legacy = delta.get("function_call")
        # It says nothing at servers that send the empty value of every member.
        if legacy is not None and has_content(legacy):
            if not calls:
                # One call without id and index.
                self._begin_calls(out).read_fragment({"index": 0, "function": legacy}, out)
            elif legacy not in [call.get("function") for call in objects_in(calls)]:
                self._ledger.dropped(
                    f"{self.path}/message/function_call", "not among the tool calls next to it"
                )

    def _begin_calls(self, out: list[Event]) -> ToolCallReader:
        self._end_block(out)
        self._emit_deferred(out)
        if self.calls is _NO_CALLS:
            self.calls = ToolCallReader(self.index, self._ids, self._model)
        return self.calls

    def _read_extensions(self, delta: JSONObject, out: list[Event]) -> None:
        """Read the members outside of the official delta: reasoning, annotations, and unknown ones."""
        if any(map(delta.get, REASONING_FIELDS)):
            members = readable_members(delta, self.path, self._ledger)
            if members:
                if self.kind is not events.REASONING:
                    self._open(events.REASONING, out)
                self._emit_reasoning(self.reasoning.add(members), out)
            if delta.keys() <= _USUAL_FIELDS:
                return
        annotations = delta.get("annotations")
        if type(annotations) is list:
            self._read_annotations(annotations, out)
        elif has_content(annotations):  # GitHub Copilot's, about the code in the text (recorded in 2024)
            self._ledger.dropped(f"{self.path}/message/annotations", "not an array")
        extra_content = delta.get(EXTRA_CONTENT)
        if type(extra_content) is dict:
            self._extra_content.update(extra_content)
        executed = delta.get(EXECUTED_TOOLS)
        if executed is not None:
            for use in executed if type(executed) is list else [executed]:
                # A tool is reported when it starts and, with the same index, when it has ended.
                index = use.get("index") if type(use) is dict else None
                number = index if type(index) is int else object()
                before = self._executed.get(number)
                self._executed[number] = use if before is None else {**before, **use}
        for key in OPAQUE_FIELDS:
            value = delta.get(key)
            if has_content(value):
                out.append(
                    events.Opaque(
                        NAME, key, value, f"{self.path}/message/{key}", self.index, round_trip=False
                    )
                )
        note_unread(delta, _DELTA, self.path, self._ledger, ("message",))

    def _read_part(self, part: JSON, out: list[Event]) -> None:
        """Read a part of content that is a list, as Mistral's servers send it."""
        kind = part.get("type") if type(part) is dict else None
        if kind == "thinking":
            if self.kind is not events.REASONING:
                self._open(events.REASONING, out)
            self._emit_reasoning(self.reasoning.add_part(part), out)
            return
        text = entry_text(part)
        if text:
            self._emit_text(events.TEXT, text, out)
        elif kind != "text":
            path = f"{self.path}/message/content"
            out.append(events.Opaque(NAME, str(kind), part, path, self.index, round_trip=False))

    def _emit_text(self, kind: BlockKind, text: str, out: list[Event]) -> None:
        if self.kind is not kind:
            self._open(kind, out)
        if self._pending_citations and kind is events.TEXT:
            self._emit_citations(out)
        out.append(events.TextDelta(self.block, text))

    def _emit_reasoning(self, text: str, out: list[Event]) -> None:
        if text:
            self.reasoning.emitted.append(text)
            out.append(events.ReasoningDelta(self.block, text))

    def cite_pages(self, pages: list[JSONObject], out: list[Event]) -> None:
        """Cite the pages that a server lists next to its choices, unless they are cited already."""
        self._add_citations(
            [
                page
                for page in pages
                if read_url_citation(page.get("url_citation"))[0] not in self._cited_urls
            ],
            "",
            out,
        )

    def _read_annotations(self, annotations: list[JSON], out: list[Event]) -> None:
        path = f"{self.path}/message/annotations"
        for native in annotations:
            note_unread(native, _ANNOTATION, child(path, self._annotation_count), self._ledger)
            self._annotation_count += 1
        self._add_citations([native for native in annotations if type(native) is dict], path, out)

    def _add_citations(self, annotations: list[JSONObject], path: str, out: list[Event]) -> None:
        """Attach the annotations at `path` to the open text, or keep them until there is one."""
        if not annotations:
            return
        self._pending_citations += [(native, path) for native in annotations]
        self._cited_urls.update(
            (read_url_citation(each.get("url_citation"))[0], None) for each in annotations
        )
        if self.kind is events.TEXT:
            self._emit_citations(out)

    def _emit_citations(self, out: list[Event]) -> None:
        for native, path in self._pending_citations:
            found = read_url_citation(native.get("url_citation"))
            out.append(events.Annotation(self.block, NAME, native, *found, path))
        self._pending_citations.clear()

    def read_logprobs(self, logprobs: JSONObject, out: list[Event], start: int) -> None:
        """Put log probabilities before the text that they are about, which is in `out` from `start` on."""
        blocks = {each.kind: each.block for each in out[start:] if type(each) is events.BlockStarted}
        if self.kind is not None:
            blocks[self.kind] = self.block
        for member, kind in _LOGPROBS:
            tokens = logprobs.get(member)
            if type(tokens) is not list or not tokens:
                continue
            block = blocks.get(kind)
            if block is None:
                # Tokens of reasoning or of a call.
                path = f"{self.path}/logprobs/{member}"
                self._ledger.dropped(path, "log probabilities of something other than text")
                continue
            event = events.Logprobs(
                block, [_complete_token(token) for token in tokens if type(token) is dict]
            )
            texts = (
                at
                for at, each in enumerate(out[start:], start)
                if isinstance(each, events.TextDelta) and each.block == block
            )
            out.insert(next(texts, len(out)), event)

    def _open(self, kind: BlockKind, out: list[Event]) -> None:
        """Open a block of this kind."""
        if self.kind is not None:
            self._end_block(out)
        if self._executed or self._extra_content:
            self._emit_deferred(out)
        if self.calls.calls:
            self.calls.end_complete(out)
        self.kind = kind
        self.block = self._ids.next_block()
        if kind is events.REASONING:
            self.reasoning = ReasoningFields()
        out.append(events.BlockStarted(self.block, kind, self.index))

    def _end_block(self, out: list[Event], *, complete: bool = True) -> None:
        if self.kind is None:
            return
        if self.kind is events.REASONING:
            out.append(
                events.SignatureDelta(self.block, Signature(NAME, self.reasoning.native(), self._model))
            )
        out.append(events.BlockEnded(self.block, complete))
        self.kind = None

    def _emit_deferred(self, out: list[Event]) -> None:
        """Emit what waits for the block to end: uses of the server's own tools, and members that it needs back."""
        if self._executed:
            path = f"{self.path}/message/{EXECUTED_TOOLS}"
            executed = list(self._executed.values())
            search = _read_search(executed)
            if search is not None:
                self._ledger.altered(path, "reported as a web search: only its queries and pages were kept")
            out.append(
                events.Opaque(
                    NAME, EXECUTED_TOOLS, executed, path, self.index, round_trip=False, search=search
                )
            )
            self._executed.clear()
        if self._extra_content:
            out += signature_events({EXTRA_CONTENT: self._extra_content}, self.index, self._ids, self._model)
            self._extra_content = {}

    def _stopped(self) -> events.Stopped:
        """Return why the choice stopped.

        Some servers never say it. If they ended the response itself, by [DONE], a whole body or the usage that comes
        last, it is complete, because one that was cut has none of these.
        """
        if self.finish_reason is None:
            self._ledger.altered(
                f"{self.path}/finish_reason", "the upstream did not report one: read as the end of the turn"
            )
        finish = (self.finish_reason or "stop").lower()
        reason = STOP_REASONS.get(finish, events.END)
        if finish not in STOP_REASONS and finish not in END_FINISH_REASONS:
            self._ledger.altered(
                f"{self.path}/finish_reason", "an unknown finish reason was read as the end of the turn"
            )
        if reason in (events.END, events.TOOL_USE):
            # We have seen "stop" after a forced function call, and servers that never send "tool_calls".
            reason = events.TOOL_USE if self.calls.calls else events.END
            # OpenRouter reports a call that the output limit cut as "tool_calls" (recorded in 2026).
            native = STOP_REASONS.get((self.native_finish_reason or "").lower())
            if native is StopReason.MAX_TOKENS and self.calls.has_partial_arguments():
                reason = native
        if reason is events.END and self.sequence is not None:
            reason = StopReason.STOP_SEQUENCE
        return events.Stopped(reason, self.finish_reason, self.index, self.sequence)

    def end(self, out: list[Event]) -> None:
        """End all blocks and the choice, because the response ends."""
        stopped = self._stopped()
        cut = stopped.reason in _TRUNCATING_REASONS
        self._end_block(out, complete=not cut)
        if self.calls.calls:
            self.calls.end(cut, out)
        if self._executed or self._extra_content:
            self._emit_deferred(out)
        if self._pending_citations:
            self._ledger.dropped(f"{self.path}/message/annotations", "there is no text to cite")
        out.append(stopped)


def _complete_token(token: JSONObject) -> JSONObject:
    """Add the members of a token that strict clients require."""
    if "bytes" in token and "top_logprobs" in token:
        return token
    return {"bytes": None, **token, "top_logprobs": token.get("top_logprobs") or []}


def _read_search(executed: list[JSON]) -> Search | None:
    """Return the web search in a list of executed tools (Groq), None if none has found anything yet."""
    queries: list[str] = []
    sources: list[Source] = []
    for tool in objects_in(executed):
        pages = object_or_empty(tool.get("search_results")).get("results")
        if type(pages) is not list or not pages:
            continue
        arguments = tool.get("arguments")
        text = arguments.encode("utf-8", "surrogatepass") if type(arguments) is str else b""
        query = (object_or_none(text) or {}).get("query")
        if type(query) is str:
            queries.append(query)
        for page in objects_in(pages):
            if type(page.get("url")) is str:
                title = page.get("title")
                sources.append(Source(page["url"], title if type(title) is str else None))
    return Search(tuple(queries), tuple(sources)) if sources else None
