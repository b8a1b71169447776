"""Read the output items of a response as events.

Every item has the same four steps: open (added), its deltas, done (the finished item) and close (the end of the
response). Each keeps the text that it has emitted, so that a source that repeats it adds nothing, and a longer one adds
the rest. Text that contradicts the emitted text adds nothing, and is recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from dragoman._ir import events
from dragoman._ir.events import Event, ReasoningForm, Search, Signature, Source, ToolHead, ToolKind
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import note_unread, response_shape
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import (
    JSON,
    JSONObject,
    decode,
    encode_text,
    is_object_text,
    objects_in,
    text_or_none,
)
from dragoman.protocols._openai.citations import read_url_citation
from dragoman.protocols.openai_responses.request_tool_items_in import search_queries
from dragoman.protocols.openai_responses.shapes import ANNOTATION_SHAPE
from dragoman.protocols.openai_responses.tables import NAME

_ANNOTATION = response_shape(ANNOTATION_SHAPE)

NextNumber = Callable[[], int]

# So many of the parts that were not found yet are looked at for each part of a finished item: servers keep their order.
_NEXT_PARTS = 16


class _EmittedText:
    """The text that a block, or a part of it, has emitted so far.

    ended: True once its block is closed. compared: True once a finished text that differs was compared with it.
    before: the part in its earlier block, if that has ended.
    """

    __slots__ = ("block", "compared", "ended", "pieces")

    def __init__(self, block: int, before: _EmittedText | None = None) -> None:
        self.block = block
        self.pieces: list[str] = [] if before is None else before.pieces
        self.compared: bool = before is not None and before.compared
        self.ended = False

    @property
    def text(self) -> str:
        """The emitted text. It is joined once, because up to four events repeat it."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class _PartTexts(dict[int, _EmittedText]):
    """The parts of one item that have emitted text, by index, in order of arrival.

    announced: index of the part announced last, None if the server announces none.
    """

    __slots__ = ("announced",)

    def __init__(self) -> None:
        self.announced: int | None = None

    def resolve_index(self, index: int) -> int:
        """Return the index of the part that an event is about.

        vLLM announces one part and counts the indexes of its events on (vllm-project/vllm#45742, read 2026-11-22), so
        there are no parts but the announced ones.
        """
        return index if self.announced is None or index in self else self.announced

    def match_parts(self, texts: list[JSON]) -> list[int]:
        """Return for each part of a finished item the index under which its text came, else an unused one.

        Parts are matched by order, not by index, because the indexes of vLLM's events count on across items
        (see resolve_index). A part that contradicts the emitted texts is matched last.
        """
        if not self:
            return [*range(len(texts))]  # as in each whole response
        emitted = OrderedDict((index, each.text) for index, each in self.items())
        found: dict[int, int] = {}
        for certain in (True, False):
            for number, text in enumerate(texts):
                if number in found or type(text) is not str or not text:
                    continue
                fits = (
                    index
                    for index, emitted_text in islice(emitted.items(), _NEXT_PARTS)
                    if not certain or text.startswith(emitted_text)
                )
                match = next(fits, None)
                if match is not None:
                    del emitted[match]
                    found[number] = match
        next_index = max(self, default=-1) + 1
        unused = (number if number not in self else next_index + number for number in range(len(texts)))
        return [found.get(number, index) for number, index in enumerate(unused)]


class OutputItem:
    """One output item. Items without blocks use this class itself: they are emitted whole when they are done.

    announced: False if only deltas have come of it so far.
    """

    __slots__ = ("announced", "finished", "ids", "index", "kind", "ledger", "model", "number")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        self.index = index
        self.kind = text_or_none(item.get("type")) or "item"
        self.ids = {"id": text_or_none(item.get("id")), "call_id": text_or_none(item.get("call_id"))}
        self.number = number
        self.model = model
        self.ledger = ledger
        self.announced = True
        self.finished = False

    def missing_text(self, emitted: _EmittedText | None, text: JSON) -> JSON:
        """Return what a finished text has beyond the emitted one. One that contradicts it adds nothing."""
        if emitted is None or type(text) is not str:
            return text
        # Known without joining a long text for a short one.
        if (not emitted.pieces or text.startswith(emitted.pieces[0])) and text.startswith(emitted.text):
            return text[len(emitted.text) :]
        if text and not emitted.compared:  # once, so that many finished texts do not join a long one each
            emitted.compared = True
            if not emitted.text.startswith(text) and _meaning(text) != _meaning(emitted.text):
                self.ledger.altered(
                    f"/output/{self.index}", "what was streamed is kept: the finished text differs"
                )
        return None

    def open_pieces(self, block: int) -> list[str] | None:
        """Return the text so far of the open part that is this block, None if the item has none."""
        return None

    def open(self, item: JSONObject, out: list[Event]) -> None:
        """Read the item as it was added."""

    def announce(self, index: int) -> None:
        """Note that a content part was announced. It has no text yet."""

    def done(self, item: JSONObject, out: list[Event]) -> None:
        """Read the finished item."""
        if not self.finished:
            self.finish(item, out)
            self.finished = True

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        search = _search_of(item) if self.kind == "web_search_call" else None
        out.append(events.Opaque(NAME, self.kind, item, f"/output/{self.index}", search=search))

    def close(self, out: list[Event], complete: bool) -> None:
        """End the item with the response. `complete` is False if the response was cut."""
        if not self.finished:
            self.end_unfinished(out, complete)
            self.finished = True

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        self.ledger.dropped(f"/output/{self.index}", f"the {self.kind} item was never completed")


def _meaning(text: str) -> JSON:
    """Return a value that is equal for texts that differ in blanks only, or in how the same JSON is written.

    Servers strip a finished text (mlx-node/mlx-node#45, read 2026-12-01), and may encode arguments once more.
    """
    try:
        return decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return "".join(text.split())


def _search_of(item: JSONObject) -> Search | None:
    """Return the queries and results of a web search, None for the opening of a page."""
    action = item.get("action")
    if type(action) is not dict or action.get("type") != "search":
        return None
    urls = [text_or_none(source.get("url")) for source in objects_in(action.get("sources"))]
    return Search(tuple(search_queries(action)), tuple([Source(url) for url in urls if url is not None]))


# Types of parts with text. Some servers leave the type out.
_TEXT_PART_TYPES = frozenset(("output_text", "refusal", "text", None))


class MessageItem(OutputItem):
    """A message, with one block for each content part."""

    __slots__ = ("_opened", "annotations", "logprobs", "parts", "phase")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.phase = text_or_none(item.get("phase"))
        self.parts = _PartTexts()
        self.annotations: dict[int, int] = {}  # index of a part -> how many were emitted
        self.logprobs: dict[int, int] = {}
        self._opened: _EmittedText | None = None  # the open part

    def open_pieces(self, block: int) -> list[str] | None:
        emitted = self._opened
        return emitted.pieces if emitted is not None and emitted.block == block else None

    def announce(self, index: int) -> None:
        self.parts.announced = index

    def add_text(
        self, index: int, text: JSON, out: list[Event], refusal: bool, logprobs: JSON = None
    ) -> None:
        if type(text) is not str or not (text or logprobs):
            return
        emitted = self._part(index, out, refusal)
        if logprobs:
            self._emit_logprobs(index, objects_in(logprobs), out)
        if text:
            emitted.pieces.append(text)
            out.append(events.TextDelta(emitted.block, text))

    def text_done(
        self, index: int, text: JSON, out: list[Event], refusal: bool, logprobs: JSON = None
    ) -> None:
        """Read the whole text of a part. Of its log probabilities the deltas may have had the first."""
        self.add_text(index, self.missing_text(self.parts.get(index), text), out, refusal)
        if logprobs:
            self._emit_logprobs(index, objects_in(logprobs)[self.logprobs.get(index, 0) :], out)

    def _emit_logprobs(self, index: int, tokens: list[JSONObject], out: list[Event]) -> None:
        emitted = self.parts.get(index)
        if tokens and emitted is not None and not emitted.ended:
            self.logprobs[index] = self.logprobs.get(index, 0) + len(tokens)
            out.append(events.Logprobs(emitted.block, [*tokens]))

    def add_annotation(self, index: int, annotation: JSONObject, out: list[Event]) -> None:
        emitted = self.parts.get(index)
        if emitted is None or emitted.ended:
            return  # the finished part repeats it
        number = self.annotations.get(index, 0)
        self.annotations[index] = number + 1
        path = f"/output/{self.index}/content/{index}/annotations"
        note_unread(annotation, _ANNOTATION, child(path, number), self.ledger)
        out.append(
            events.Annotation(
                emitted.block,
                NAME,
                annotation,
                *read_url_citation(annotation),
                path,
            )
        )

    def part_done(self, index: int, part: JSONObject, out: list[Event]) -> None:
        """Read a finished part. Its block stays open, because only the finished item shows if the model was cut off."""
        self.text_done(index, _part_text(part), out, part.get("type") == "refusal", part.get("logprobs"))
        annotations = objects_in(part.get("annotations"))[self.annotations.get(index, 0) :]
        emitted = self.parts.get(index)
        if annotations and (emitted is None or emitted.ended):
            self.ledger.dropped(
                f"/output/{self.index}/content/{index}/annotations", "there is no open text to cite"
            )
            return
        for annotation in annotations:
            self.add_annotation(index, annotation, out)

    def note_part(self, index: int, part: JSONObject) -> None:
        kind = part.get("type")
        if type(kind) is not str or kind not in _TEXT_PART_TYPES:
            path = f"/output/{self.index}/content/{index}"
            self.ledger.unknown_kind(path, "a content part of an unknown type")

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        complete = item.get("status") != "incomplete"
        text = item.get("content")
        # A list in the protocol; servers that take it from the form of requests send a text.
        content = [{"type": "text", "text": text}] if type(text) is str else objects_in(text)
        indexes = self.parts.match_parts([_part_text(part) for part in content])
        for number, (index, part) in enumerate(zip(indexes, content, strict=True)):
            self.note_part(number, part)
            self.part_done(index, part, out)
        self.end_unfinished(out, complete)

    def close(self, out: list[Event], complete: bool) -> None:
        self.end_unfinished(out, complete)  # text may come after the finished item

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        emitted, self._opened = self._opened, None
        if emitted is not None:
            emitted.ended = True
            out.append(events.BlockEnded(emitted.block, complete))

    def _part(self, index: int, out: list[Event], refusal: bool) -> _EmittedText:
        """Return the open part. The parts before it end when it opens."""
        emitted = self.parts.get(index)
        if emitted is None or emitted.ended:
            self.end_unfinished(out, True)
            emitted = self._opened = self.parts[index] = _EmittedText(self.number(), emitted)
            kind = events.REFUSAL if refusal else events.TEXT
            out.append(events.BlockStarted(emitted.block, kind, item_id=self.ids["id"], phase=self.phase))
        return emitted


def _part_text(part: JSONObject) -> JSON:
    return part.get("refusal" if part.get("type") == "refusal" else "text")


class ReasoningItem(OutputItem):
    """A reasoning item, with one block. Its parts are the summaries and the visible texts."""

    __slots__ = ("_last", "_part", "block", "summaries", "texts")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.block: int | None = None
        self.summaries = _PartTexts()
        self.texts = _PartTexts()
        self._last: _EmittedText | None = None
        self._part = -1

    def open_pieces(self, block: int) -> list[str] | None:
        """Return the text so far of the part that had the last delta."""
        last = None if self.finished or block != self.block else self._last
        return None if last is None else last.pieces

    def announce(self, index: int) -> None:
        self.texts.announced = index

    def parts(self, summary: bool) -> _PartTexts:
        return self.summaries if summary else self.texts

    def add_text(self, index: int, text: JSON, out: list[Event], summary: bool) -> None:
        if type(text) is not str or not text or self.finished:
            return
        parts = self.parts(summary)
        emitted = parts.get(index)
        if emitted is None:
            emitted = parts[index] = _EmittedText(self._open(out))
        if emitted is not self._last:
            # Text of an earlier index is another part, because a part that has ended gets no more text.
            self._last, self._part = emitted, self._part + 1
        emitted.pieces.append(text)
        form = ReasoningForm.SUMMARY if summary else ReasoningForm.FULL
        out.append(events.ReasoningDelta(emitted.block, text, self._part, form))

    def add_missing_text(self, index: int, text: JSON, out: list[Event], summary: bool) -> None:
        self.add_text(index, self.missing_text(self.parts(summary).get(index), text), out, summary)

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        for name in ("summary", "content"):
            summary = name == "summary"
            texts = [part.get("text") for part in objects_in(item.get(name))]
            for index, text in zip(self.parts(summary).match_parts(texts), texts, strict=True):
                self.add_missing_text(index, text, out, summary)
        block = self._open(out)
        out.append(events.SignatureDelta(block, Signature(NAME, item, self.model)))
        out.append(events.BlockEnded(block, item.get("status") != "incomplete"))

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        if self.block is not None:
            out.append(events.BlockEnded(self.block, False))  # without its finished item it has no signature

    def _open(self, out: list[Event]) -> int:
        if self.block is None:
            self.block = self.number()
            out.append(events.BlockStarted(self.block, events.REASONING, item_id=self.ids["id"]))
        return self.block


class CallItem(OutputItem):
    """A call of a function or a custom tool."""

    __slots__ = ("custom", "emitted", "started")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.custom = self.kind == "custom_tool_call"
        self.emitted = _EmittedText(number())
        self.started = False

    def open_pieces(self, block: int) -> list[str] | None:
        return self.emitted.pieces if block == self.emitted.block and not self.finished else None

    def open(self, item: JSONObject, out: list[Event]) -> None:
        name = text_or_none(item.get("name"))
        if name is not None and not self.started:
            self._start(item, name, out)

    def _start(self, item: JSONObject, name: str, out: list[Event]) -> None:
        self.started = True
        # The result must name its call; some servers send only the item's id.
        ids = {field: text_or_none(item.get(field)) or known for field, known in self.ids.items()}
        call_id = ids["call_id"] or ids["id"] or f"call_{self.index}"
        kind = ToolKind.CUSTOM if self.custom else ToolKind.FUNCTION
        head = ToolHead(call_id, name, kind, text_or_none(item.get("namespace")), ids["id"])
        out.append(events.BlockStarted(self.emitted.block, events.TOOL_CALL, tool=head, item_id=head.item_id))
        if self.emitted.text:
            out.append(events.ArgumentsDelta(self.emitted.block, self.emitted.text))
        caller = item.get("caller")
        if type(caller) is dict and caller.get("type") != "direct":
            self.ledger.dropped(
                f"/output/{self.index}/caller", "other protocols have no field for the caller of a tool"
            )

    def add_text(self, text: JSON, out: list[Event]) -> None:
        if type(text) is not str or not text or self.finished:
            return
        self.emitted.pieces.append(text)
        if self.started:
            out.append(events.ArgumentsDelta(self.emitted.block, text))

    def add_missing_text(self, text: JSON, out: list[Event]) -> None:
        self.add_text(self.missing_text(self.emitted, text), out)

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        if not self.started:
            self._start(item, text_or_none(item.get("name")) or "unknown", out)
        text = item.get("input" if self.custom else "arguments")
        # Some servers send the object itself.
        if type(text) is dict and not self.emitted.text:
            text = encode_text(text)
        self.add_missing_text(text, out)
        self._end(out, item.get("status") != "incomplete")

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        if self.started:
            self._end(out, complete)

    def _end(self, out: list[Event], complete: bool) -> None:
        """End the block. A call that was cut by the output limit must not look complete."""
        whole = complete or (not self.custom and is_object_text(self.emitted.text))
        out.append(events.BlockEnded(self.emitted.block, whole))


_CLASSES: dict[str, type[OutputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "custom_tool_call": CallItem,
}


def new_item(item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> OutputItem:
    """Return the reader of an item of this type. `number` returns the number of the next block."""
    return _CLASSES.get(text_or_none(item.get("type")) or "", OutputItem)(item, index, number, model, ledger)
