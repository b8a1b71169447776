"""Read chunks of an upstream's stream, or a whole response, into events.

Each chunk is a complete response with the next parts of its candidates and the usage so far. Only the end of the body
is the end: some models have a finish reason in every chunk. A whole response is read as one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir import events
from dragoman._ir.events import Event, Failed, StopReason
from dragoman._ir.fast_path import Delta, DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.shape import extra_members, note_unread, response_shape
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import JSONObject, decode, kind_of, read_count, text_or_none
from dragoman._wire.limits import CHOICES
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.gemini.checks import enum_name, objects
from dragoman.protocols.gemini.errors import parse_error
from dragoman.protocols.gemini.response_content_in import Blocks, CandidateReader
from dragoman.protocols.gemini.shapes import RESPONSE_SHAPE, WRITTEN_RESPONSE_SHAPE
from dragoman.protocols.gemini.tables import BLOCK_REASONS, NAME
from dragoman.protocols.gemini.usage import UsageMetadataReader

_RESPONSE = response_shape(RESPONSE_SHAPE)

# Nearly all chunks have no other members than these.
_CHUNK_MEMBERS = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"})


class GeminiReader:
    """Reads one stream."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._ledger = ledger
        self._blocks = Blocks(context, context.request.protocol == NAME)
        self._counts = UsageMetadataReader(ledger, self._blocks.same_protocol)
        self._candidates: dict[int, CandidateReader] = {}
        self._blocked: events.Stopped | None = None
        self._started = self._ended = False

    def read(self, frame: Frame) -> Sequence[Event]:
        """Return the events of one frame. Raises RemoteProtocolError (502)."""
        data = frame.data
        if self._ended or not data.strip() or data.startswith(b"[DONE]"):  # other gateways send that
            return ()
        value = decode(data)
        chunks = objects(value)
        if not chunks:
            raise unreadable_response(f"a chunk is {kind_of(value)}")
        out: list[Event] = []
        for chunk in chunks:
            if not self._ended:
                self.read_chunk(chunk, out, fails=frame.event == b"error")
        return out

    def eof(self) -> Sequence[Event]:
        """Return the ends of the candidates and of the response.

        Raises RemoteProtocolError (502) if a candidate has no finish reason.
        """
        if self._ended:
            return ()
        candidates = [self._candidates[index] for index in sorted(self._candidates)]
        if self._blocked is not None and 0 not in self._candidates:
            self._ended = True
            return self._blocked, events.ENDED
        if not candidates or candidates[0].index != 0:
            raise _truncated("without any candidates")
        if [candidate for candidate in candidates if candidate.finish_reason is None]:
            raise _truncated("without its finish reason")
        self._ended = True
        out: list[Event] = []
        for candidate in candidates:
            if not candidate.end(out):
                return out
        return [*out, events.ENDED]

    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        """Return how to read later frames. On Vertex AI only the last one has counts."""
        candidate = next(each for each in self._candidates.values() if each.block == delta.block)
        if candidate.signed is not None:
            return None
        on_texts = candidate.texts.extend if isinstance(delta, events.TextDelta) else None
        return DeltaTemplate(b"text", on_texts, counts=b"usageMetadata")

    def read_chunk(self, chunk: JSONObject, out: list[Event], *, fails: bool = False) -> None:
        """Read one chunk. fails: it is an error, whatever it looks like."""
        if fails or "error" in chunk:
            self._ended = True
            out.append(Failed(parse_error(chunk, None)))
            return
        if not self._started:
            if not chunk:
                return  # a heartbeat
            self._started = True
            self._blocks.model = text_or_none(chunk.get("modelVersion")) or ""
            out.append(events.Started(text_or_none(chunk.get("responseId")) or "", self._blocks.model))
        if not chunk.keys() <= _CHUNK_MEMBERS:
            self._read_members(chunk, out)
        usage = chunk.get("usageMetadata")
        if type(usage) is dict:
            before, found = self._counts.usage, self._counts.read(usage)
            if found is not before and found != before:
                out.append(found)
        for position, candidate in enumerate(objects(chunk.get("candidates"))):
            index = read_count(candidate, "index")
            if index is None:
                index = position
            reader = self._candidates.get(index)
            if reader is None:
                CHOICES.check(len(self._candidates) + 1, "/candidates")
                reader = CandidateReader(index, f"/candidates/{index}", self._blocks, self._ledger)
                self._candidates[index] = reader
            reader.read(candidate, out)

    def _read_members(self, chunk: JSONObject, out: list[Event]) -> None:
        """Read why the prompt was blocked, and note or keep the members that nothing else reads."""
        feedback = chunk.get("promptFeedback")
        if type(feedback) is dict and (reason := enum_name(feedback.get("blockReason"), BLOCK_REASONS)):
            message = text_or_none(feedback.get("blockReasonMessage"))
            if message and not self._blocks.same_protocol:
                self._ledger.dropped("/promptFeedback/blockReason", "only its message was sent")
            feedback["blockReason"] = reason
            explanation = message or f"the prompt was blocked: {reason}"
            self._blocked = events.Stopped(
                StopReason.CONTENT_FILTER, reason, explanation=explanation, details=feedback
            )
        if not self._blocks.same_protocol:
            note_unread(chunk, _RESPONSE, "", self._ledger)
        else:
            extra = extra_members(chunk, WRITTEN_RESPONSE_SHAPE) or {}
            out += [
                events.Opaque(NAME, "response", {name: value}, f"/{name}", round_trip=False)
                for name, value in extra.items()
            ]


def read_whole(body: JSONObject, context: ResponseContext, ledger: Ledger) -> list[Event]:
    """Return the events of a whole response. Raises RemoteProtocolError (502) if it is none."""
    reader = GeminiReader(context, ledger)
    out: list[Event] = []
    reader.read_chunk(body, out)
    return [*out, *reader.eof()]


def _truncated(how: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the upstream's response ended {how}", status=502, code="truncated")
