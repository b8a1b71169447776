"""Write events as a stream of chunks, or as one whole response, for a client.

A chunk has one more part, and the last one the ends and the usage. A call is written when its arguments are complete.
Reasoning of another vendor is shown as thoughts; its signature travels on the next call or, without one, on a last part
without text, because Gemini CLI sends back only parts with signatures (0.61.0, seen on 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Search,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject, encode
from dragoman.codec import ResponseContext
from dragoman.protocols.gemini.errors import error_frames
from dragoman.protocols.gemini.request_messages_out import arguments_object
from dragoman.protocols.gemini.signatures import SignedParts
from dragoman.protocols.gemini.tables import LOSSY_STOP_REASONS, NAME, SIGNATURE, SIGNED, STOP_REASON_NAMES
from dragoman.protocols.gemini.usage import write_usage

_HEAD, _END = b"data: ", b"\r\n\r\n"
# Characters that end a line for google-genai before 3.0 and @google/genai before 2.4, which split the stream with them
# (tried on 2026-11-22), and their escapes.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def _frame(body: bytes) -> bytes:
    if not body.isascii():
        for character, escape in _LINE_ENDS:
            body = body.replace(character, escape)
    return _HEAD + body + _END


class CandidateWriter:
    """The parts of one candidate, as they come, and its end.

    parts: those that are not written yet.
    refused: one of them is a refusal, which is plain text here.
    """

    __slots__ = (
        "_context",
        "_ledger",
        "_malformed",
        "_number",
        "_path",
        "_signatures",
        "_sources",
        "_texts",
        "members",
        "parts",
        "refused",
        "stopped",
    )

    def __init__(self, index: int, context: ResponseContext, ledger: Ledger) -> None:
        self._context = context
        self._ledger = ledger
        self._path = f"/candidates/{index}"
        self._number = 0  # of the next part
        self._signatures: list[Signature] = []  # of other vendors, which no part carries yet
        self._texts = False  # text has come since
        self._sources = Sources()
        self._malformed: str | None = None  # arguments that are no object
        self.parts = SignedParts([])
        self.members: JSONObject = {}
        self.refused = False
        self.stopped: Stopped | None = None

    def take(self) -> list[JSONObject]:
        """Return the parts that are not written yet."""
        parts, self.parts.parts = self.parts.parts, []
        return parts

    def add(self, part: JSONObject) -> None:
        self._number += 1
        self.parts.add(part)

    def text(self, text: str, *, thought: bool = False) -> None:
        self._texts = self._texts or not thought
        self.add({"text": text, "thought": True} if thought else {"text": text})

    def sign(self, signature: Signature) -> None:
        """Keep a signature for the part that it belongs to, or that carries it."""
        native = signature.native
        if signature.origin != NAME or type(native) is not dict:
            if self._texts and self._signatures:  # they are about the text before
                self.add({"text": "", SIGNATURE: self._carrier()})
            self._signatures.append(signature)
        elif native.get(SIGNED) == "text" and not self.parts.parts:
            self.parts.parts.append({"text": "", SIGNATURE: native[SIGNATURE]})  # the text has been sent
        else:
            self.parts.sign(native)

    def call(self, tool: ToolHead, text: str, complete: bool) -> None:
        """Add a call, unless its arguments are no object."""
        arguments = arguments_object(text)
        if arguments is None:
            if complete:
                self._malformed = text
            else:
                self._ledger.dropped(f"{self._path}/content/parts/{self._number}", "a call that was cut off")
            return
        part: JSONObject = {"functionCall": {"id": tool.call_id, "name": tool.name, "args": arguments}}
        if self._signatures:
            part[SIGNATURE] = self._carrier()
        self.add(part)

    def _carrier(self) -> str:
        carried, self._signatures = self._signatures, []
        self._texts = False
        return self._context.signer.wrap_list(carried)

    def end_text(self, text: str, annotations: Iterable[Annotation], path: str) -> None:
        """Note the citations of a text, the last part."""
        for each in annotations:
            where = each.path or f"{path or self._path}/annotations"
            if each.url is None:
                self._ledger.dropped(where, "only citations of web pages have a counterpart")
                continue
            if each.has_unmapped_fields():
                self._ledger.altered(where, "only the source and span of the citation were kept")
            self._sources.cite(each, text, max(self._number - 1, 0))

    def opaque(self, event: Opaque) -> None:
        """Add a part of this protocol as it came, members of the candidate, or another protocol's search."""
        if event.origin != NAME:
            if event.search is not None:
                self._sources.search(event.search)
        elif event.kind == "candidate":
            self.members.update(event.native)
        else:
            self.add(event.native)

    def end(self) -> JSONObject:
        """Return the members of the candidate besides its parts. Adds the last parts."""
        stopped = self.stopped
        reason = StopReason.END if stopped is None else stopped.reason
        if reason is StopReason.END and self.refused:
            reason = StopReason.CONTENT_FILTER
        if stopped is not None and stopped.explanation is not None and not self._number:
            self.text(stopped.explanation)
        if self._signatures:
            self.add({"text": "", SIGNATURE: self._carrier()})
        self.parts.finish()
        if reason in LOSSY_STOP_REASONS:
            self._ledger.altered(
                f"{self._path}/finishReason",
                f"the upstream stopped for {reason.value}, which is reported as STOP",
            )
        name = STOP_REASON_NAMES[reason]
        if stopped is not None and stopped.native and self._context.rewritten:
            name = stopped.native
        out: JSONObject = {"finishReason": name}
        if self._malformed is not None:
            out = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": self._malformed}
        elif stopped is not None and stopped.explanation is not None:
            out["finishMessage"] = stopped.explanation
        grounding = self._sources.metadata()
        if grounding:
            out["groundingMetadata"] = grounding
        return {**out, **self.members}


class Sources:
    """Collects searches and citations into `groundingMetadata`."""

    __slots__ = ("_chunks", "_numbers", "_queries", "_supports")

    def __init__(self) -> None:
        self._queries: list[str] = []
        self._chunks: list[JSONObject] = []
        self._numbers: dict[str, int] = {}  # of the chunks, by their URLs
        self._supports: list[JSONObject] = []

    def search(self, search: Search) -> None:
        self._queries += search.queries
        for source in search.sources:
            self._source(source.url, source.title)

    def _source(self, url: str, title: str | None) -> int:
        if url not in self._numbers:
            self._numbers[url] = len(self._chunks)
            self._chunks.append({"web": {"uri": url, "title": title or url}})
        return self._numbers[url]

    def cite(self, annotation: Annotation, text: str, part: int) -> None:
        """Add a citation. Its place counts bytes of UTF-8 in the part."""
        assert annotation.url is not None
        start, end = annotation.start or 0, annotation.end
        end = len(text) if end is None else end
        before = len(text[:start].encode("utf-8", "surrogatepass"))
        cited = text[start:end]
        size = len(cited.encode("utf-8", "surrogatepass"))
        segment: JSONObject = {"startIndex": before, "endIndex": before + size, "text": cited}
        if part:
            segment["partIndex"] = part
        index = self._source(annotation.url, annotation.title)
        self._supports.append({"segment": segment, "groundingChunkIndices": [index]})

    def metadata(self) -> JSONObject:
        members = {
            "webSearchQueries": self._queries,
            "groundingChunks": self._chunks,
            "groundingSupports": self._supports,
        }
        return {name: value for name, value in members.items() if value}


class GeminiWriter:
    """Writes one stream. The events must be legal, one block open at a time."""

    __slots__ = (
        "_annotations",
        "_block",
        "_candidates",
        "_context",
        "_ledger",
        "_members",
        "_part",
        "_pieces",
        "_tail",
        "_tokens",
        "_usage",
    )

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._context = context
        self._ledger = ledger
        self._candidates: dict[int, CandidateWriter] = {}
        self._block: BlockStarted | None = None
        self._pieces: list[str] = []  # the text of the open block
        self._annotations: list[Annotation] = []
        self._part = 0  # of the open reasoning block
        self._usage = Usage()
        self._members: JSONObject = {}  # of the response, if the upstream speaks this protocol
        self._tail = b""
        self._tokens: list[JSON] = []  # the log probabilities of the next text

    def send(self, event: Event) -> bytes:
        """Return the frames of one event."""
        return _SENDERS[type(event)](self, event)

    def send_texts(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta, texts: list[str]) -> bytes:
        if type(delta) is ArgumentsDelta:
            self._pieces += texts
            return b""
        sent = [self._text(text, type(delta) is ReasoningDelta) for text in texts]
        return b"".join(sent)

    def _candidate(self, index: int) -> CandidateWriter:
        if index not in self._candidates:
            self._candidates[index] = CandidateWriter(index, self._context, self._ledger)
        return self._candidates[index]

    def _chunk(self, candidates: list[JSONObject], **members: JSON) -> bytes:
        return _frame(encode({"candidates": candidates, **members})[:-1] + self._tail)

    def _parts(self, index: int) -> bytes:
        """Return a chunk with what is ready of a candidate."""
        parts = self._candidates[index].take()
        return self._chunk([_candidate_object(index, parts)]) if parts else b""

    def _started(self, event: Started) -> bytes:
        members = {
            "modelVersion": self._context.model,
            "responseId": self._context.response_id("", event.id),
        }
        self._tail = b"," + encode(members)[1:]
        if event.service_tier is not None:
            self._usage = Usage(service_tier=event.service_tier)
        return b""

    def _block_started(self, event: BlockStarted) -> bytes:
        self._block = event
        self._pieces, self._annotations = [], []
        self._part = 0
        candidate = self._candidate(event.choice)
        candidate.refused = candidate.refused or event.kind is BlockKind.REFUSAL
        return b""

    def _text_delta(self, event: TextDelta) -> bytes:
        return self._text(event.text, False)

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        text = event.text
        if event.part != self._part:
            text = f"\n\n{text}"  # another paragraph
            self._part = event.part
        return self._text(text, True)

    def _text(self, text: str, thought: bool) -> bytes:
        assert self._block is not None
        index = self._block.choice
        candidate = self._candidates[index]
        if not self._pieces:  # all pieces are one part
            candidate.text(text, thought=thought)
            self._pieces.append(text)
            parts = candidate.take()
        else:
            self._pieces.append(text)
            parts = [{"text": text, "thought": True} if thought else {"text": text}]
        written = _candidate_object(index, parts)
        if self._tokens:
            written["logprobsResult"] = write_logprobs(self._tokens)
            self._tokens = []
        return self._chunk([written])

    def _arguments_delta(self, event: ArgumentsDelta) -> bytes:
        self._pieces.append(event.text)
        return b""

    def _signature_delta(self, event: SignatureDelta) -> bytes:
        assert self._block is not None
        self._candidates[self._block.choice].sign(event.signature)
        return self._parts(self._block.choice)

    def _annotation(self, event: Annotation) -> bytes:
        self._annotations.append(event)
        return b""

    def _logprobs(self, event: Logprobs) -> bytes:
        self._tokens += event.tokens
        return b""

    def _block_ended(self, event: BlockEnded) -> bytes:
        block = self._block
        assert block is not None
        candidate = self._candidates[block.choice]
        if block.tool is not None:
            candidate.call(block.tool, "".join(self._pieces), event.complete)
        elif self._annotations:
            candidate.end_text("".join(self._pieces), self._annotations, block.path)
        self._pieces = []
        return self._parts(block.choice)

    def _opaque(self, event: Opaque) -> bytes:
        if event.kind == "response" and event.origin == NAME:
            self._members.update(event.native)
            return b""
        self._candidate(event.choice).opaque(event)
        return self._parts(event.choice)

    def _compacted(self, event: Compacted) -> bytes:
        self._candidate(0).text(event.text)
        return self._parts(0)

    def _add_usage(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _stopped(self, event: Stopped) -> bytes:
        self._candidate(event.choice).stopped = event
        return b""

    def _ended(self, event: Ended) -> bytes:
        ends: list[JSONObject] = []
        for index, candidate in self._candidates.items():
            end = candidate.end()
            # The vendor's newer models end with a part without text as well (recorded in 2026).
            ends.append({**_candidate_object(index, candidate.take() or [{"text": ""}]), **end})
        return self._chunk(ends, usageMetadata=write_usage(self._usage, self._ledger), **self._members)

    def _failed(self, event: Failed) -> bytes:
        return error_frames(event.error, self._context)


_SENDERS: dict[type[Event], Callable[[GeminiWriter, Any], bytes]] = {
    Started: GeminiWriter._started,
    BlockStarted: GeminiWriter._block_started,
    TextDelta: GeminiWriter._text_delta,
    ReasoningDelta: GeminiWriter._reasoning_delta,
    ArgumentsDelta: GeminiWriter._arguments_delta,
    SignatureDelta: GeminiWriter._signature_delta,
    Annotation: GeminiWriter._annotation,
    Logprobs: GeminiWriter._logprobs,
    BlockEnded: GeminiWriter._block_ended,
    Opaque: GeminiWriter._opaque,
    Compacted: GeminiWriter._compacted,
    Usage: GeminiWriter._add_usage,
    Stopped: GeminiWriter._stopped,
    Ended: GeminiWriter._ended,
    Failed: GeminiWriter._failed,
}


def _candidate_object(index: int, parts: list[JSONObject]) -> JSONObject:
    return {"content": {"parts": parts, "role": "model"}, "index": index}


def write_logprobs(tokens: list[JSON]) -> JSONObject:
    """Return log probabilities in the form of `logprobsResult`."""
    known = [token for token in tokens if type(token) is dict]
    chosen = list(map(_token, known))
    top = [
        {"candidates": [_token(each) for each in token.get("top_logprobs") or () if type(each) is dict]}
        for token in known
    ]
    out: JSONObject = {"chosenCandidates": chosen}
    if any(each["candidates"] for each in top):
        out["topCandidates"] = top
    return out


def _token(token: JSONObject) -> JSONObject:
    return {"token": token.get("token"), "logProbability": token.get("logprob")}


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the whole response."""
    candidates: dict[int, CandidateWriter] = {
        stopped.choice: CandidateWriter(stopped.choice, context, ledger) for stopped in response.stops
    }
    members: JSONObject = {}
    logprobs: dict[int, list[JSON]] = {}
    for block in response.blocks:
        if isinstance(block, Opaque) and block.kind == "response" and block.origin == NAME:
            members.update(block.native)
            continue
        candidate = candidates[0 if isinstance(block, Compacted) else block.choice]
        if isinstance(block, Compacted):
            candidate.text(block.text)
        elif isinstance(block, Opaque):
            candidate.opaque(block)
        else:
            _write_block(block, candidate)
            logprobs.setdefault(block.choice, []).extend(block.logprobs)
    written: list[JSONObject] = []
    for stopped in sorted(response.stops, key=lambda stopped: stopped.choice):
        candidate = candidates[stopped.choice]
        candidate.stopped = stopped
        end = candidate.end()
        tokens = logprobs.get(stopped.choice)
        more = {"logprobsResult": write_logprobs(tokens)} if tokens else {}
        parts = candidate.take() or [{"text": ""}]
        written.append({**_candidate_object(stopped.choice, parts), **end, **more})
    usage = response.usage
    if usage.service_tier is None and response.started.service_tier is not None:
        usage = Usage(service_tier=response.started.service_tier).updated(usage)
    return {
        "candidates": written,
        "usageMetadata": write_usage(usage, ledger),
        **members,
        "modelVersion": context.model,
        "responseId": context.response_id("", response.started.id),
    }


def _write_block(block: AssembledBlock, candidate: CandidateWriter) -> None:
    if block.tool is not None:
        candidate.call(block.tool, block.text, block.complete)
    elif block.kind is BlockKind.REASONING:
        text = "\n\n".join(part.text for part in block.reasoning)
        if text:
            candidate.text(text, thought=True)
        if block.signature is not None:
            candidate.sign(block.signature)
    else:
        candidate.refused = candidate.refused or block.kind is BlockKind.REFUSAL
        if block.text:
            candidate.text(block.text)
        if block.annotations:
            candidate.end_text(block.text, block.annotations, block.path)
