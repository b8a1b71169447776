"""Write events as a stream of chunks, or as one whole response, for a client.

A chunk has one more part, and the last one the ends and the usage. A call is written when its arguments are complete.
Reasoning of another vendor is shown as thoughts; its signature travels on the next call or, without one, on a last part
without text, because Gemini CLI sends back only parts with signatures (0.61.0, seen on 2026-11-22).
"""

from __future__ import annotations

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock, AssembledResponse, Fold
from dragoman._ir.events import Event, Opaque, Signature, Usage
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger
from dragoman._ir.tools import arguments_object
from dragoman._ir.wrapped_signatures import SEPARATOR
from dragoman._wire.json import JSON, JSONObject, encode, encode_strings
from dragoman.codec import ResponseContext
from dragoman.protocols.gemini.checks import objects
from dragoman.protocols.gemini.errors import error_frames, escaped
from dragoman.protocols.gemini.offsets import Offsets
from dragoman.protocols.gemini.signatures import SignedParts
from dragoman.protocols.gemini.tables import LOSSY_STOP_REASONS, NAME, SIGNATURE, SIGNED, STOP_REASON_NAMES
from dragoman.protocols.gemini.usage import write_usage

# Characters of a cited text that are sent once more: all citations may be of the whole text.
_MOST_CITED = 2000


def _frame(body: bytes) -> bytes:
    return b"data: " + escaped(body) + b"\r\n\r\n"


class Sources(msgspec.Struct):
    """Collects searches and citations into `groundingMetadata`."""

    _queries: list[str] = []
    _chunks: list[JSONObject] = []
    _numbers: dict[str, int] = {}  # of the chunks, by their URLs
    _supports: list[JSONObject] = []

    def search(self, search: events.Search) -> None:
        self._queries += search.queries
        for source in search.sources:
            self._source(source.url, source.title)

    def _source(self, url: str, title: str | None) -> int:
        number = self._numbers.setdefault(url, len(self._chunks))
        if number == len(self._chunks):
            self._chunks.append({"web": {"uri": url, "title": title or url}})
        return number

    def cite(self, url: str, annotation: events.Annotation, text: str, offsets: Offsets, part: int) -> None:
        """Add a citation. Its place counts bytes of UTF-8 in the part."""
        start = min(max(annotation.start or 0, 0), len(text))
        end = len(text) if annotation.end is None else min(max(annotation.end, start), len(text))
        segment: JSONObject = {"startIndex": offsets.to_bytes(start), "endIndex": offsets.to_bytes(end)}
        if end - start <= _MOST_CITED:
            segment["text"] = text[start:end]
        if part:
            segment["partIndex"] = part
        index = self._source(url, annotation.title)
        self._supports.append({"segment": segment, "groundingChunkIndices": [index]})

    def metadata(self) -> JSONObject:
        members = {
            "webSearchQueries": self._queries,
            "groundingChunks": self._chunks,
            "groundingSupports": self._supports,
        }
        return {name: value for name, value in members.items() if value}


class CandidateWriter(msgspec.Struct):
    """The parts of one candidate, as they come, and its end.

    parts: those that are not written yet.
    members: of the candidate, if the upstream speaks this protocol.
    """

    _index: int
    _context: ResponseContext
    _ledger: Ledger
    parts: SignedParts = msgspec.field(default_factory=SignedParts)
    members: JSONObject = {}
    _number: int = 0  # of the next part
    _refused: bool = False
    _signatures: list[Signature] = []  # of other vendors, which no part carries yet
    _texts: bool = False  # text has come since
    _sources: Sources = msgspec.field(default_factory=Sources)
    _malformed: str | None = None  # arguments that are no object
    logprobs: list[JSON] = []  # that are not written yet

    def take(self) -> list[JSONObject]:
        """Return the parts that are not written yet."""
        parts, self.parts.parts = self.parts.parts, []
        return parts

    def _add(self, part: JSONObject) -> None:
        self._number += 1
        self.parts.add(part)

    def text(self, text: str, *, thought: bool = False) -> None:
        self._texts = self._texts or not thought
        self._add(_text_part(text, thought=thought))

    def add(self, block: AssembledBlock | Opaque | events.Compacted, *, streamed: bool = False) -> None:
        """Add a block. streamed: its text has been added."""
        if not isinstance(block, AssembledBlock):
            self._add_whole(block)
        elif block.tool is not None:
            self._call(block.tool, block.text, block.complete)
        else:
            self._refused = self._refused or block.kind is events.REFUSAL
            text = "\n\n".join(part.text for part in block.reasoning) or block.text
            if not streamed:
                self.logprobs += block.logprobs
                if text:
                    self.text(text, thought=block.kind is events.REASONING)
            if block.signature is not None:
                self._sign(block.signature)
            if block.annotations:
                self._cite(block)

    def _add_whole(self, event: Opaque | events.Compacted) -> None:
        if isinstance(event, events.Compacted):
            self.text(event.text)
        elif event.origin != NAME:
            self._sources.search(event.search or events.Search(()))
        elif event.kind == "candidate":
            self.members.update(event.native)
        else:
            self._add(event.native)

    def _sign(self, signature: Signature) -> None:
        """Keep a signature for the part that it belongs to, or that carries it."""
        native = signature.native
        if signature.origin != NAME or type(native) is not dict:
            if self._texts:  # the signatures so far are about it
                self._add({"text": "", SIGNATURE: self._carrier()})
            self._signatures.append(signature)
        elif native.get(SIGNED) == "text" and not self.parts.parts:
            self.parts.parts.append({"text": "", SIGNATURE: native[SIGNATURE]})  # the text has been sent
        else:
            self.parts.sign(native)

    def _call(self, tool: events.ToolHead, text: str, complete: bool) -> None:
        """Add a call, unless its arguments are no object."""
        arguments = arguments_object(text)
        if arguments is not None:
            part: JSONObject = {"functionCall": {"id": tool.call_id, "name": tool.name, "args": arguments}}
            if self._signatures:
                part[SIGNATURE] = self._carrier()
            self._texts = False
            self._add(part)
        elif complete:
            self._malformed = text
        else:
            path = f"/candidates/{self._index}/content/parts/{self._number}"
            self._ledger.dropped(path, "a call that was cut off")

    def _carrier(self) -> str:
        carried, self._signatures = self._signatures or [SEPARATOR], []
        self._texts = False
        return self._context.signer.wrap_list(carried)

    def _cite(self, block: AssembledBlock) -> None:
        offsets = Offsets(block.text)
        for annotation in block.annotations:
            path = annotation.path or f"{block.path or f'/candidates/{self._index}'}/annotations"
            url = annotation.cited_url(path, self._ledger)
            if url is not None:
                self._sources.cite(url, annotation, block.text, offsets, max(self._number - 1, 0))

    def end(self, stopped: events.Stopped) -> JSONObject:
        """Return the members of the candidate besides its parts. Adds the last parts."""
        reason, explanation = stopped.reason, stopped.explanation
        if reason is events.END and self._refused:
            reason = events.CONTENT_FILTER
        if explanation is not None and not self._number:
            self.text(explanation)
        if self._signatures:
            self._add({"text": "", SIGNATURE: self._carrier()})
        self.parts.parts = self.parts.finish()
        if reason in LOSSY_STOP_REASONS:
            path = f"/candidates/{self._index}/finishReason"
            self._ledger.altered(path, f"the upstream stopped for {reason.value}, which is reported as STOP")
        if stopped.sequence:
            self._ledger.dropped("/stop_sequence", "Gemini has no field for the stop sequence that matched")
        native = stopped.native if self._context.rewritten else None
        out: JSONObject = {"finishReason": native or STOP_REASON_NAMES.get(reason, "STOP")}
        if self._malformed is not None:
            out = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": self._malformed}
        elif explanation is not None:
            out["finishMessage"] = explanation
        grounding = self._sources.metadata()
        return {**out, **({"groundingMetadata": grounding} if grounding else {}), **self.members}


class ResponseWriter:
    """What streams and whole responses share: the candidates, and the end of the response."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._context = context
        self._ledger = ledger
        self._candidates: dict[int, CandidateWriter] = {}
        self._members: JSONObject = {}  # of the response, if the upstream speaks this protocol

    def candidate(self, index: int) -> CandidateWriter:
        if index not in self._candidates:
            self._candidates[index] = CandidateWriter(index, self._context, self._ledger)
        return self._candidates[index]

    def add(self, block: AssembledBlock | Opaque | events.Compacted, *, streamed: bool = False) -> None:
        """Add a block, or a member of the response. streamed: its text has been added."""
        if type(block) is Opaque and block.kind == "response" and block.origin == NAME:
            self._members.update(block.native)
        else:
            self.candidate(getattr(block, "choice", 0)).add(block, streamed=streamed)

    def identity(self, response_id: str) -> JSONObject:
        """Return the members that every chunk has."""
        return {"modelVersion": self._context.model, "responseId": self._context.response_id("", response_id)}

    def end(self, response: AssembledResponse) -> JSONObject:
        """Return the response with the parts that are not written yet, and all ends."""
        candidates: list[JSONObject] = []
        for stopped in sorted(response.stops, key=lambda stopped: stopped.choice):
            candidate = self.candidate(stopped.choice)
            end = candidate.end(stopped)
            if candidate.logprobs:
                end["logprobsResult"] = _logprobs(candidate.logprobs, self._ledger)
            # The vendor's newer models end with a part without text as well (recorded in 2026).
            candidates.append({**_candidate(stopped.choice, candidate.take() or [{"text": ""}]), **end})
        usage = Usage(service_tier=response.started.service_tier).updated(response.usage)
        return {
            "candidates": candidates,
            "usageMetadata": write_usage(usage, self._ledger),
            **self._members,
            **self.identity(response.started.id),
        }


class GeminiWriter(ResponseWriter):
    """Writes one stream. The events must be legal, one block open at a time."""

    # Of the open block, set by its start:
    _index: int  # of its candidate
    _is_new: bool  # no text has been sent
    _part: int  # of reasoning
    _around: list[bytes]  # what is before and after a further piece of its text

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        super().__init__(context, ledger)
        self._fold = Fold()
        self._tail = b""  # of each chunk
        self._tokens: list[JSON] = []  # the log probabilities of the next text

    def send(self, event: Event) -> bytes:
        """Return the frames of one event."""
        self._fold.send(event)
        if type(event) is events.TextDelta or type(event) is events.ReasoningDelta:
            return self._text(event)
        if type(event) is events.Failed:
            return error_frames(event.error, self._context)
        if type(event) is events.BlockEnded:
            block = self._fold.finished(event.block)
            self.add(block, streamed=True)
            return self._chunk(block.choice)
        if type(event) is Opaque or type(event) is events.Compacted:
            self.add(event)
            return self._chunk(getattr(event, "choice", 0))
        if type(event) is events.Ended:
            return _frame(encode(self.end(self._fold.response())))
        if type(event) is events.BlockStarted:
            self._index, self._is_new, self._part, self._around = event.choice, True, 0, []
        elif type(event) is events.Logprobs:
            self._tokens += event.tokens
        return b""

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        self._fold.send_texts(delta, texts)
        if isinstance(delta, events.ArgumentsDelta):
            return b""
        before, after = self._around or self._frame_around(delta)
        # What is around them is escaped already. No byte of JSON is 0.
        return before + escaped(b"\0".join(encode_strings(texts))).replace(b"\0", after + before) + after

    def _text(self, event: events.TextDelta | events.ReasoningDelta) -> bytes:
        text, is_new = event.text, self._is_new
        if type(event) is events.ReasoningDelta and event.part != self._part:
            self._part = event.part
            text = text if is_new else f"\n\n{text}"  # another paragraph
        if is_new or self._tokens:
            self._is_new = False
            if not is_new:
                return self._chunk(self._index, [{"text": text}])
            # All pieces are one part.
            self.candidate(self._index).text(text, thought=isinstance(event, events.ReasoningDelta))
            return self._chunk(self._index)
        before, after = self._around or self._frame_around(event)
        return before + escaped(encode(text)) + after

    def _frame_around(self, delta: events.TextDelta | events.ReasoningDelta) -> list[bytes]:
        """Return what is before and after a further piece of the open block's text."""
        part = _text_part("", thought=isinstance(delta, events.ReasoningDelta))
        self._around = self._chunk(self._index, [part]).split(b'""', 1)
        return self._around

    def _chunk(self, index: int, parts: list[JSONObject] | None = None) -> bytes:
        """Return a chunk with parts of a candidate, by default those that are not written yet."""
        parts = self.candidate(index).take() if parts is None else parts
        if not parts:
            return b""
        candidate = _candidate(index, parts)
        if self._tokens:
            candidate["logprobsResult"] = _logprobs(self._tokens, self._ledger)
            self._tokens = []
        if not self._tail:
            self._tail = b"," + encode(self.identity(self._fold.response().started.id))[1:]
        return _frame(encode({"candidates": [candidate]})[:-1] + self._tail)


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the whole response."""
    writer = ResponseWriter(context, ledger)
    for block in response.blocks:
        writer.add(block)
    return writer.end(response)


def _text_part(text: str, *, thought: bool) -> JSONObject:
    return {"text": text, "thought": True} if thought else {"text": text}


def _candidate(index: int, parts: list[JSONObject]) -> JSONObject:
    return {"content": {"parts": parts, "role": "model"}, "index": index}


def _logprobs(tokens: list[JSON], ledger: Ledger) -> JSONObject:
    """Return log probabilities in the form of `logprobsResult`."""
    known = objects(tokens)
    if any(token.get("bytes") is not None for token in known):
        ledger.altered("/logprobs", "without the bytes of the tokens")
    top = [list(map(_token, objects(token.get("top_logprobs")))) for token in known]
    out: JSONObject = {"chosenCandidates": list(map(_token, known))}
    if any(top):
        out["topCandidates"] = [{"candidates": each} for each in top]
    return out


def _token(token: JSONObject) -> JSONObject:
    return {"token": token.get("token"), "logProbability": token.get("logprob")}
