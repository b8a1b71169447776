"""Observe a relayed stream: its usage, its error and its end.

Each chunk has the usage so far, so the last one counts, and a relay passes only the first and the last frames.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSON, object_or_none, read_count
from dragoman._wire.sse import Frame
from dragoman.codec import RelayObserver, ResponseContext
from dragoman.protocols.gemini.checks import objects
from dragoman.protocols.gemini.errors import error_frames, parse_error
from dragoman.protocols.gemini.usage import UsageMetadataReader


class GeminiObserver(RelayObserver):
    """Observes one stream; see `RelayObserver` for the attributes.

    `ended` is set by a finish reason, or by the reason for which the prompt was blocked, and unset by content of a
    candidate that is not finished. Only the end of the body finishes the stream.
    """

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._counts = UsageMetadataReader(Ledger(), same_protocol=True)
        self._finished: set[int | None] = set()  # the indexes of candidates

    def observe(self, frame: Frame) -> None:
        chunk = object_or_none(frame.data)
        if chunk is None:
            return
        if "error" in chunk or frame.event == b"error":
            self.error = self.error or parse_error(chunk, None)
            return
        usage = chunk.get("usageMetadata")
        if type(usage) is dict:
            self.usage = self._counts.read(usage)
        feedback = chunk.get("promptFeedback")
        if type(feedback) is dict and feedback.get("blockReason"):
            self.ended = True
        for candidate in objects(chunk.get("candidates")):
            index = read_count(candidate, "index")
            if _has_content(candidate.get("content")):
                self.content_started = True
                self.ended = self.ended and index in self._finished
            if candidate.get("finishReason"):
                self.ended = True
                self._finished.add(index)

    def fail(self, error: WireError) -> bytes:
        return error_frames(error, self._context)


def _has_content(content: JSON) -> bool:
    """True if a part has a value; `thought` only says of what kind its text is."""
    parts = objects(content.get("parts")) if type(content) is dict else []
    return any(value for part in parts for name, value in part.items() if name != "thought")
