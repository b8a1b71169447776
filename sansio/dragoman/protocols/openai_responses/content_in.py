"""The output items of an answer on their way to events.

Strategy: every item takes the same four calls: open (added), its own deltas and rests, done (the finished item)
and close (the answer ended). Each remembers the text that it gave, so that a source that repeats it adds
nothing, and one that says more adds the rest. Text that contradicts what was given is not given again.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Logprobs,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    Search,
    Signature,
    SignatureDelta,
    Source,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.shape import note_unread
from dragoman._wire.json import JSON, JSONObject, is_object_text
from dragoman.protocols.openai_responses.checks import objects_in, text_or_none
from dragoman.protocols.openai_responses.tables import ANNOTATION_SHAPE, NAME
from dragoman.protocols.openai_responses.tool_items_in import search_queries

NextNumber = Callable[[], int]


class _EmittedText:
    """The text that one block or part of it has given so far. ended: its block is closed."""

    __slots__ = ("block", "ended", "pieces")

    def __init__(self, block: int, pieces: list[str] | None = None) -> None:
        self.block = block
        self.pieces = [] if pieces is None else pieces
        self.ended = False

    def missing_text(self, text: JSON) -> str:
        """What `text` says beyond what was given."""
        if type(text) is not str:
            return ""
        given = "".join(self.pieces)
        return text[len(given) :] if text.startswith(given) else ""


class _PartTexts(dict[int, _EmittedText]):
    """The parts of one item that have given text, by index, in the order in which they came.

    announced: the index of the part that was announced last, None where the server announces none.
    """

    __slots__ = ("announced",)

    def __init__(self) -> None:
        self.announced: int | None = None

    def resolve_index(self, index: int) -> int:
        """The index of the part that an event means. vLLM before 0.12 announces one part, and then the indexes of its
        events count on: where parts are announced, there are no others.
        """
        return index if self.announced is None or index in self else self.announced

    def match_parts(self, texts: list[JSON]) -> list[int]:
        """For each part of a finished item the index under which its text came; one of its own if it did not come.

        Parts are matched by order, not by index: the indexes of vLLM's events count on across items (vllm#45742).
        One that contradicts what came is matched last.
        """
        given = {index: "".join(each.pieces) for index, each in self.items()}
        found: dict[int, int] = {}
        for certain in (True, False):
            for number, text in enumerate(texts):
                if number in found or type(text) is not str or not text:
                    continue
                fits = (index for index, begun in given.items() if not certain or text.startswith(begun))
                place = next(fits, None)
                if place is not None:
                    del given[place]
                    found[number] = place
        free = max(self, default=-1) + 1
        own = (number if number not in self else free + number for number in range(len(texts)))
        return [found.get(number, place) for number, place in enumerate(own)]


class OutputItem:
    """One output item. Also the form of those that have no blocks: they are given whole when they are done."""

    __slots__ = ("finished", "ids", "index", "kind", "ledger", "model", "number")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        self.index = index
        self.kind = text_or_none(item.get("type")) or "item"
        self.ids = {name: text_or_none(item.get(name)) for name in ("id", "call_id")}
        self.number = number
        self.model = model
        self.ledger = ledger
        self.finished = False

    def short_delta(self, kind: str, content: int, summary: int, text: str) -> Event | None:
        """The event for a delta of an open part, None when it takes more than that."""
        return None

    def open_pieces(self, block: int) -> list[str] | None:
        """The text so far of the open part that is this block. None: the item has no such part."""
        return None

    def open(self, item: JSONObject, out: list[Event]) -> None:
        """The item as it was added."""

    def announce(self, index: int) -> None:
        """A content part was announced; it has no text yet."""

    def done(self, item: JSONObject, out: list[Event]) -> None:
        """The finished item."""
        if not self.finished:
            self.finish(item, out)
            self.finished = True

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        search = _search_of(item) if self.kind == "web_search_call" else None
        out.append(Opaque(NAME, self.kind, item, f"/output/{self.index}", search=search))

    def close(self, out: list[Event], complete: bool) -> None:
        """The answer ended; complete is False when it was cut."""
        if not self.finished:
            self.end_unfinished(out, complete)
            self.finished = True

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        self.ledger.dropped(f"/output/{self.index}", f"the {self.kind} item never came to its end")


def _search_of(item: JSONObject) -> Search | None:
    """What a web search looked for and found; None for the opening of a page."""
    action = item.get("action")
    if type(action) is not dict or action.get("type") != "search":
        return None
    urls = [text_or_none(source.get("url")) for source in objects_in(action.get("sources"))]
    return Search(tuple(search_queries(action)), tuple([Source(url) for url in urls if url is not None]))


# The types of parts that are text. Some servers leave the type out.
_PARTS = frozenset(("output_text", "refusal", "text", None))


class MessageItem(OutputItem):
    """A message: one block for each content part."""

    __slots__ = ("annotations", "item_id", "parts", "phase")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.item_id = self.ids["id"]
        self.phase = text_or_none(item.get("phase"))
        self.parts = _PartTexts()
        self.annotations: dict[int, int] = {}

    def short_delta(self, kind: str, content: int, summary: int, text: str) -> Event | None:
        given = self.parts.get(content)
        if given is None or given.ended or kind != "response.output_text.delta":
            return None
        given.pieces.append(text)
        return TextDelta(given.block, text)

    def open_pieces(self, block: int) -> list[str] | None:
        given = self._open()
        return given.pieces if given is not None and given.block == block else None

    def announce(self, index: int) -> None:
        self.parts.announced = index

    def add_text(
        self, index: int, text: JSON, out: list[Event], refusal: bool, logprobs: JSON = None
    ) -> None:
        if type(text) is not str or not text:
            return
        given = self._part(index, out, refusal)
        given.pieces.append(text)
        if logprobs:
            _give_logprobs(given.block, logprobs, out)
        out.append(TextDelta(given.block, text))

    def add_missing_text(self, index: int, text: JSON, out: list[Event], refusal: bool) -> None:
        """The whole text of a part."""
        given = self.parts.get(index)
        self.add_text(index, text if given is None else given.missing_text(text), out, refusal)

    def add_annotation(self, index: int, annotation: JSONObject, out: list[Event]) -> None:
        given = self.parts.get(index)
        if given is None or given.ended:
            return  # it comes again with the finished part
        number = self.annotations.get(index, 0)
        self.annotations[index] = number + 1
        path = f"/output/{self.index}/content/{index}/annotations"
        note_unread(annotation, ANNOTATION_SHAPE, child(path, number), self.ledger)
        start, end = annotation.get("start_index"), annotation.get("end_index")
        out.append(
            Annotation(
                given.block,
                NAME,
                annotation,
                text_or_none(annotation.get("url")),
                text_or_none(annotation.get("title")),
                start if type(start) is int else None,
                end if type(end) is int else None,
                path,
            )
        )

    def part_done(self, index: int, part: JSONObject, out: list[Event]) -> None:
        """A finished part. Its block stays open: only the finished item says whether the model was cut off in it."""
        fresh = index not in self.parts
        self.add_missing_text(index, _whole_text(part), out, part.get("type") == "refusal")
        given = self.parts.get(index)
        if given is None or given.ended:
            return
        if fresh:
            _give_logprobs(given.block, part.get("logprobs"), out)
        for annotation in objects_in(part.get("annotations"))[self.annotations.get(index, 0) :]:
            self.add_annotation(index, annotation, out)

    def note_part(self, index: int, part: JSONObject) -> None:
        kind = part.get("type")
        if type(kind) is not str or kind not in _PARTS:
            path = f"/output/{self.index}/content/{index}"
            self.ledger.add(LossCode.UNKNOWN_KIND, path, "a content part of a type that is not known")

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        complete = item.get("status") != "incomplete"
        content = objects_in(item.get("content"))
        places = self.parts.match_parts([_whole_text(part) for part in content])
        for index, (place, part) in enumerate(zip(places, content, strict=True)):
            self.note_part(index, part)
            self.part_done(place, part, out)
        self.end_unfinished(out, complete)

    def close(self, out: list[Event], complete: bool) -> None:
        self.end_unfinished(out, complete)  # also what came after the finished item

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        given = self._open()
        if given is not None:
            given.ended = True
            out.append(BlockEnded(given.block, complete))

    def _open(self) -> _EmittedText | None:
        return next((given for given in self.parts.values() if not given.ended), None)

    def _part(self, index: int, out: list[Event], refusal: bool) -> _EmittedText:
        """The open part. The parts before it have ended when it opens, whether or not that was said."""
        given = self.parts.get(index)
        if given is None or given.ended:
            self.end_unfinished(out, True)
            given = self.parts[index] = _EmittedText(self.number(), [] if given is None else given.pieces)
            kind = BlockKind.REFUSAL if refusal else BlockKind.TEXT
            out.append(BlockStarted(given.block, kind, item_id=self.item_id, phase=self.phase))
        return given


def _whole_text(part: JSONObject) -> JSON:
    return part.get("refusal" if part.get("type") == "refusal" else "text")


def _give_logprobs(block: int, value: JSON, out: list[Event]) -> None:
    tokens: list[JSON] = [*objects_in(value)]
    if tokens:
        out.append(Logprobs(block, tokens))


class ReasoningItem(OutputItem):
    """A reasoning item: one block, whose parts are the summaries and the open texts."""

    __slots__ = ("block", "item_id", "summaries", "texts")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.item_id = self.ids["id"]
        self.block: int | None = None
        self.summaries = _PartTexts()
        self.texts = _PartTexts()

    def short_delta(self, kind: str, content: int, summary: int, text: str) -> Event | None:
        given = self.summaries.get(summary)
        if given is None or kind != "response.reasoning_summary_text.delta" or self.finished:
            return None
        given.pieces.append(text)
        return ReasoningDelta(given.block, text, summary, ReasoningForm.SUMMARY)

    def open_pieces(self, block: int) -> list[str] | None:
        """Only while there is one part: a delta does not tell its part by its block."""
        parts = [*self.summaries.values(), *self.texts.values()]
        if self.finished or block != self.block or len(parts) != 1:
            return None
        return parts[0].pieces

    def announce(self, index: int) -> None:
        self.texts.announced = index

    def parts(self, summary: bool) -> _PartTexts:
        return self.summaries if summary else self.texts

    def add_text(self, index: int, text: JSON, out: list[Event], summary: bool) -> None:
        if type(text) is not str or not text or self.finished:
            return
        parts = self.parts(summary)
        given = parts.get(index)
        if given is None:
            given = parts[index] = _EmittedText(self._open(out))
        given.pieces.append(text)
        form = ReasoningForm.SUMMARY if summary else ReasoningForm.FULL
        out.append(ReasoningDelta(given.block, text, index, form))

    def add_missing_text(self, index: int, text: JSON, out: list[Event], summary: bool) -> None:
        given = self.parts(summary).get(index)
        self.add_text(index, text if given is None else given.missing_text(text), out, summary)

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        for name in ("summary", "content"):
            summary = name == "summary"
            texts = [part.get("text") for part in objects_in(item.get(name))]
            for place, text in zip(self.parts(summary).match_parts(texts), texts, strict=True):
                self.add_missing_text(place, text, out, summary)
        block = self._open(out)
        out.append(SignatureDelta(block, Signature(NAME, item, self.model)))
        out.append(BlockEnded(block, item.get("status") != "incomplete"))

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        if self.block is not None:
            out.append(BlockEnded(self.block, False))  # without its finished item there is nothing to seal

    def _open(self, out: list[Event]) -> int:
        if self.block is None:
            self.block = self.number()
            out.append(BlockStarted(self.block, BlockKind.REASONING, item_id=self.item_id))
        return self.block


class CallItem(OutputItem):
    """A call of a function or of a custom tool."""

    __slots__ = ("custom", "given", "started")

    def __init__(self, item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> None:
        super().__init__(item, index, number, model, ledger)
        self.custom = self.kind == "custom_tool_call"
        self.given = _EmittedText(number())
        self.started = False

    def short_delta(self, kind: str, content: int, summary: int, text: str) -> Event | None:
        if self.finished or not self.started:
            return None
        self.given.pieces.append(text)
        return ArgumentsDelta(self.given.block, text)

    def open_pieces(self, block: int) -> list[str] | None:
        return self.given.pieces if block == self.given.block and not self.finished else None

    def open(self, item: JSONObject, out: list[Event]) -> None:
        name = text_or_none(item.get("name"))
        if name is not None and not self.started:
            self._start(item, name, out)

    def _start(self, item: JSONObject, name: str, out: list[Event]) -> None:
        self.started = True
        # The result must name its call; some servers name the item alone.
        names = {field: text_or_none(item.get(field)) or known for field, known in self.ids.items()}
        call_id = names["call_id"] or names["id"] or f"call_{self.index}"
        kind = ToolKind.CUSTOM if self.custom else ToolKind.FUNCTION
        head = ToolHead(call_id, name, kind, text_or_none(item.get("namespace")), names["id"])
        out.append(BlockStarted(self.given.block, BlockKind.TOOL_CALL, tool=head, item_id=head.item_id))
        held = "".join(self.given.pieces)
        if held:
            out.append(ArgumentsDelta(self.given.block, held))
        caller = item.get("caller")
        if type(caller) is dict and caller.get("type") != "direct":
            self.ledger.dropped(
                f"/output/{self.index}/caller", "who called the tool has no place outside Responses"
            )

    def add_text(self, text: JSON, out: list[Event]) -> None:
        if type(text) is not str or not text or self.finished:
            return
        self.given.pieces.append(text)
        if self.started:
            out.append(ArgumentsDelta(self.given.block, text))

    def add_missing_text(self, text: JSON, out: list[Event]) -> None:
        self.add_text(self.given.missing_text(text), out)

    def finish(self, item: JSONObject, out: list[Event]) -> None:
        if not self.started:
            self._start(item, text_or_none(item.get("name")) or "unknown", out)
        self.add_missing_text(item.get("input" if self.custom else "arguments"), out)
        self._end(out, item.get("status") != "incomplete")

    def end_unfinished(self, out: list[Event], complete: bool) -> None:
        if self.started:
            self._end(out, complete)

    def _end(self, out: list[Event], complete: bool) -> None:
        """A call that was cut by the output limit must not look like a whole one."""
        whole = complete or (not self.custom and is_object_text("".join(self.given.pieces)))
        out.append(BlockEnded(self.given.block, whole))


_CLASSES: dict[str, type[OutputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "custom_tool_call": CallItem,
}


def new_item(item: JSONObject, index: int, number: NextNumber, model: str, ledger: Ledger) -> OutputItem:
    """The machine for an item of this type. `number` gives numbers for blocks."""
    return _CLASSES.get(text_or_none(item.get("type")) or "", OutputItem)(item, index, number, model, ledger)
