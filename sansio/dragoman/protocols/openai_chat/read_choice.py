"""One choice of an answer: its deltas in, its blocks out.

Strategy: Chat has deltas and nothing else: no starts, no ends. So a choice keeps one open text, refusal or
reasoning block, ends it when the kind of delta changes, and leaves tool calls to `Calls`. A whole message is read as
one large delta.
"""

from __future__ import annotations

from dragoman._ir.events import (
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import note_unread
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, kind_of
from dragoman.protocols.openai_chat.citations import read_url_citation
from dragoman.protocols.openai_chat.read_calls import IdAllocator, ToolCallReader, signature_events
from dragoman.protocols.openai_chat.read_search import merge_executed_tools, read_search
from dragoman.protocols.openai_chat.reasoning import ReasoningFields, entry_text
from dragoman.protocols.openai_chat.tables import (
    ANNOTATION_SHAPE,
    CONTENT_SHAPE,
    DELTA_FIELDS,
    END_FINISH_REASONS,
    EXECUTED_TOOLS,
    EXTRA_CONTENT,
    MESSAGE_SHAPE,
    NAME,
    OPAQUE_FIELDS,
    STOP_REASONS,
)

# Reasons after which what was open may be half.
_CUTS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.CONTENT_FILTER})
# Members that need no look beyond the official ones.
_PLAIN_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})
_LOGPROBS = (("content", BlockKind.TEXT), ("refusal", BlockKind.REFUSAL))


class ChoiceReader:
    """Reads one choice. kind is that of its open block, None when there is none; block is its number."""

    __slots__ = (
        "_annotated",
        "_carry",
        "_cites",
        "_executed",
        "_ledger",
        "_model",
        "_numbers",
        "_urls",
        "block",
        "calls",
        "finish_reason",
        "index",
        "kind",
        "path",
        "reasoning",
        "sequence",
    )

    def __init__(self, index: int, numbers: IdAllocator, model: str, ledger: Ledger) -> None:
        self.index = index
        self.path = f"/choices/{index}"
        self.kind: BlockKind | None = None
        self.block = -1
        self.reasoning = ReasoningFields()
        self.calls = ToolCallReader(index, numbers, model)
        self.finish_reason: str | None = None
        self.sequence: str | None = None
        self._numbers = numbers
        self._model = model
        self._ledger = ledger
        self._cites: list[tuple[JSONObject, str]] = []  # annotations that came before their text
        self._annotated = 0  # annotations so far
        self._urls: set[str | None] = set()  # of the pages that were cited
        self._executed: list[JSON] = []  # what the server's own tools did, not yet given
        self._carry: JSONObject = {}  # what the server wants back with the message, not yet given

    def delta(self, delta: JSONObject, *, whole: bool, out: list[Event]) -> None:
        """Take a delta, or a whole message."""
        if not delta.keys() <= _PLAIN_FIELDS:
            self._rare(delta, out)
        content = delta.get("content")
        if type(content) is str:
            if content:
                self._text(BlockKind.TEXT, content, out)
        elif type(content) is list:
            note_unread(content, CONTENT_SHAPE, f"{self.path}/message/content", self._ledger)
            for part in content:
                self._part(part, out)
        elif content is not None:
            raise unreadable_response(f"content is {kind_of(content)}")
        refusal = delta.get("refusal")
        if type(refusal) is str and refusal:
            self._text(BlockKind.REFUSAL, refusal, out)
        calls = delta.get("tool_calls")
        if calls:
            if type(calls) is not list:
                raise unreadable_response(f"tool_calls is {kind_of(calls)}")
            self._end_block(out)
            self._give_waiting(out)
            for place, fragment in enumerate(calls):
                self.calls.read_fragment(fragment, out, place=place if whole else None)
        legacy = delta.get("function_call")
        if legacy is not None:
            self._end_block(out)
            self._give_waiting(out)
            self.calls.read_legacy(legacy, out)

    def _rare(self, delta: JSONObject, out: list[Event]) -> None:
        """Members outside the official delta: reasoning, annotations, and what we do not know."""
        reasoning = (
            delta.get("reasoning_content")
            or delta.get("reasoning")
            or delta.get("reasoning_details")
            or delta.get("thinking_blocks")
        )
        if reasoning:
            self._open(BlockKind.REASONING, out)
            self._say(self.reasoning.add(delta), out)
        annotations = delta.get("annotations")
        if type(annotations) is list:
            self._annotate(annotations, out)
        carry = delta.get(EXTRA_CONTENT)
        if type(carry) is dict:
            self._carry = {**self._carry, **carry}
        for key, value in delta.items():
            if key in DELTA_FIELDS:
                continue
            path = child(f"{self.path}/message", key)
            if key == EXECUTED_TOOLS and type(value) is list:
                self._executed = merge_executed_tools([*self._executed, *value])
            elif key in OPAQUE_FIELDS:
                if value:
                    out.append(Opaque(NAME, key, value, path, self.index, round_trip=False))
            else:
                note_unread({key: value}, MESSAGE_SHAPE, f"{self.path}/message", self._ledger)

    def _part(self, part: JSON, out: list[Event]) -> None:
        """A part of content that is a list, as Mistral's servers send it."""
        kind = part.get("type") if type(part) is dict else None
        if kind == "thinking":
            self._open(BlockKind.REASONING, out)
            self._say(self.reasoning.add_part(part), out)
            return
        text = entry_text(part)
        if text:
            self._text(BlockKind.TEXT, text, out)
        elif kind != "text":
            path = f"{self.path}/message/content"
            out.append(Opaque(NAME, str(kind), part, path, self.index, round_trip=False))

    def _text(self, kind: BlockKind, text: str, out: list[Event]) -> None:
        self._open(kind, out)
        if self._cites and kind is BlockKind.TEXT:
            self._put_cites(out)
        out.append(TextDelta(self.block, text))

    def _say(self, text: str, out: list[Event]) -> None:
        if text:
            self.reasoning.emitted.append(text)
            out.append(ReasoningDelta(self.block, text))

    def cite_pages(self, pages: list[JSONObject], out: list[Event]) -> None:
        """Take the pages that a server lists beside its answer, as far as they were not cited yet."""
        self._cite([page for page in pages if read_url_citation(page)[0] not in self._urls], "", out)

    def _annotate(self, annotations: list[JSON], out: list[Event]) -> None:
        path = f"{self.path}/message/annotations"
        for native in annotations:
            note_unread(native, ANNOTATION_SHAPE, child(path, self._annotated), self._ledger)
            self._annotated += 1
        self._cite([native for native in annotations if type(native) is dict], path, out)

    def _cite(self, annotations: list[JSONObject], path: str, out: list[Event]) -> None:
        """Take annotations, which stand at `path`: they go to the open text, or wait for one."""
        if not annotations:
            return
        self._cites += [(native, path) for native in annotations]
        self._urls.update([read_url_citation(each)[0] for each in annotations])
        if self.kind is BlockKind.TEXT:
            self._put_cites(out)

    def _put_cites(self, out: list[Event]) -> None:
        for native, path in self._cites:
            out.append(Annotation(self.block, NAME, native, *read_url_citation(native), path))
        self._cites.clear()

    def logprobs(self, logprobs: JSONObject, out: list[Event], start: int) -> None:
        """Log probabilities come before the text that they are about, which is in `out` from `start` on."""
        for member, kind in _LOGPROBS:
            tokens = logprobs.get(member)
            if type(tokens) is not list or not tokens:
                continue
            if self.kind is kind:
                event = Logprobs(self.block, [_token(token) for token in tokens if type(token) is dict])
                ours = (at for at in range(start, len(out)) if _fills(out[at], self.block))
                out.insert(next(ours, len(out)), event)
            else:
                # Tokens of reasoning or of a call: the official answer has them for text alone.
                path = f"{self.path}/logprobs/{member}"
                self._ledger.dropped(path, "log probabilities of something other than text")

    def _open(self, kind: BlockKind, out: list[Event]) -> None:
        """Make sure that a block of this kind is open."""
        if self.kind is kind:
            return
        self._end_block(out)
        self._give_waiting(out)
        self.calls.end_complete(out)
        self.kind = kind
        self.block = self._numbers.next_block()
        if kind is BlockKind.REASONING:
            self.reasoning = ReasoningFields()
        out.append(BlockStarted(self.block, kind, self.index))

    def _end_block(self, out: list[Event], *, complete: bool = True) -> None:
        if self.kind is None:
            return
        if self.kind is BlockKind.REASONING:
            out.append(SignatureDelta(self.block, Signature(NAME, self.reasoning.native(), self._model)))
        out.append(BlockEnded(self.block, complete))
        self.kind = None

    def _give_waiting(self, out: list[Event]) -> None:
        """Give what waited for the block to end: what the server's own tools did, and what it wants back."""
        if self._executed:
            path = f"{self.path}/message/{EXECUTED_TOOLS}"
            search = read_search(self._executed)
            if search is not None:
                self._ledger.altered(path, "told as a web search: its words and pages alone")
            out.append(
                Opaque(
                    NAME, EXECUTED_TOOLS, self._executed, path, self.index, round_trip=False, search=search
                )
            )
            self._executed = []
        if self._carry:
            out += signature_events({EXTRA_CONTENT: self._carry}, self.index, self._numbers, self._model)
            self._carry = {}

    def stopped(self) -> Stopped:
        """How the choice stopped."""
        word = (self.finish_reason or "stop").lower()
        reason = STOP_REASONS.get(word, StopReason.END)
        if word not in STOP_REASONS and word not in END_FINISH_REASONS:
            self._ledger.altered(
                f"{self.path}/finish_reason", "an unknown reason was taken for the end of the turn"
            )
        if reason in (StopReason.END, StopReason.TOOL_USE):
            # A forced function call ends with "stop", and some servers never say "tool_calls".
            reason = StopReason.TOOL_USE if self.calls.calls else StopReason.END
        if reason is StopReason.END and self.sequence is not None:
            reason = StopReason.STOP_SEQUENCE
        return Stopped(reason, self.finish_reason, self.index, self.sequence)

    def end(self, out: list[Event]) -> None:
        """The answer is over: end all blocks, and the choice."""
        stopped = self.stopped()
        cut = stopped.reason in _CUTS
        self._end_block(out, complete=not cut)
        self.calls.end(cut, out)
        self._give_waiting(out)
        if self._cites:
            self._ledger.dropped(f"{self.path}/message/annotations", "there is no text to cite")
        out.append(stopped)


def _token(token: JSONObject) -> JSONObject:
    """A token with all the members that strict clients demand."""
    if "bytes" in token and "top_logprobs" in token:
        return token
    return {"bytes": None, **token, "top_logprobs": token.get("top_logprobs") or []}


def _fills(event: Event, block: int) -> bool:
    return isinstance(event, TextDelta) and event.block == block


def unreadable_response(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(what, status=502)
