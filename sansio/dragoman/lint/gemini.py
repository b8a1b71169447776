"""Gemini: the shapes of its documents, and the order of a stream.

Each event is a complete response with the next parts. Nothing but the end of the body ends a stream, so the finish
reason of each candidate is what tells a whole response from one that was cut. Clients read the stream by rules of their
own, not by the standard: what others skip, such as a comment, ends theirs with an error.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode

from dragoman._wire.json import JSON, JSONObject
from dragoman.lint.framing import PlacedFrame
from dragoman.lint.report import Report, add_mismatches, count, members, objects, string
from dragoman.lint.shapes import Shapes

# Lines that clients do not skip, and characters that end a line for some of them.
_COMMENT = re.compile(rb"(?m)^:")
_LINE_SEPARATORS = re.compile("\u2028|\u2029|\u0085".encode())
# Parts of the total.
_COUNTS = ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
# google.rpc.Code by the HTTP status that it is sent with.
_STATUS_NAMES = {
    400: ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"),
    401: ("UNAUTHENTICATED",),
    403: ("PERMISSION_DENIED",),
    404: ("NOT_FOUND",),
    409: ("ABORTED", "ALREADY_EXISTS"),
    429: ("RESOURCE_EXHAUSTED",),
    499: ("CANCELLED",),
    500: ("INTERNAL", "UNKNOWN", "DATA_LOSS"),
    501: ("UNIMPLEMENTED",),
    503: ("UNAVAILABLE",),
    504: ("DEADLINE_EXCEEDED",),
}

SHAPES = Shapes("""
Response: candidates? [Candidate], promptFeedback? Feedback, usageMetadata? Usage, modelVersion~ str, responseId~ str, createTime? str, modelStatus? obj
Feedback: blockReason? str, blockReasonMessage? str, safetyRatings? [obj]
Candidate: content? Content, index? int, finishReason? "FINISH_REASON_UNSPECIFIED" "STOP" "MAX_TOKENS" "SAFETY" "RECITATION" "LANGUAGE" "OTHER" "BLOCKLIST" "PROHIBITED_CONTENT" "SPII" "MALFORMED_FUNCTION_CALL" "IMAGE_SAFETY" "UNEXPECTED_TOOL_CALL" "IMAGE_PROHIBITED_CONTENT" "NO_IMAGE" "IMAGE_RECITATION" "IMAGE_OTHER" "TOO_MANY_TOOL_CALLS" "MISSING_THOUGHT_SIGNATURE" "MALFORMED_RESPONSE" "MODEL_ARMOR" "ESCALATION" "CONTINUATION" "PUP_LIMITED_DISABLED", finishMessage? str, safetyRatings? [obj], citationMetadata? obj, groundingMetadata? obj, urlContextMetadata? obj, avgLogprobs? num, logprobsResult? obj, tokenCount? int, continuationToken? str
Content: role~ "model", parts? [Part]
Part: text? str, thought? bool, thoughtSignature? str, functionCall? Call, inlineData? Blob, fileData? obj, functionResponse? obj, executableCode? obj, codeExecutionResult? obj, toolCall? obj, toolResponse? obj, audioTranscription? obj, videoMetadata? obj, mediaResolution? obj, partMetadata? obj
Call: id~ str, name? str, args? obj, partialArgs? [obj], willContinue? bool
Blob: mimeType str, data str, displayName? str
Usage: promptTokenCount? int, cachedContentTokenCount? int, candidatesTokenCount? int, thoughtsTokenCount? int, toolUsePromptTokenCount? int, totalTokenCount? int, promptTokensDetails? [obj], cacheTokensDetails? [obj], candidatesTokensDetails? [obj], toolUsePromptTokensDetails? [obj], serviceTier? str, trafficType? str
Error: error ErrorObject
ErrorObject: code int, message str, status~ str, details? [obj], errors? [obj]
""")  # noqa: E501 -- each object is one line


class GeminiStream:
    """Checks a stream: call read() with each event, and close() at the end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._finished: dict[int, bool] = {}
        self._blocked = self._failed = False
        self._identity: tuple[JSON, ...] | None = None

    def read_bytes(self, stream: bytes) -> None:
        """Check the parts that no event carries."""
        for pattern, rule, detail in (
            (_COMMENT, "gemini-comment", "a comment"),
            (_LINE_SEPARATORS, "gemini-line-separator", "a character that ends a line for some clients"),
        ):
            if (match := pattern.search(stream)) is not None:
                self._report.at_byte(rule, match.start(), detail)

    def read(self, frame: PlacedFrame) -> None:
        """Check one event."""
        report = self._report
        if frame.event is not None:
            report.add("gemini-event-line", "an `event:` line")
        if frame.data == "[DONE]":
            report.add("gemini-done", "[DONE] does not belong here")
            return
        chunk = report.read_object()
        if chunk is None:
            return
        if self._failed:
            report.add("gemini-after-error", "something follows an error")
        if "error" in chunk:
            self._failed = True
            check_error(chunk, report)
        elif chunk:  # {} is a heartbeat
            self._chunk(chunk)

    def close(self) -> None:
        """Check the end of the stream."""
        if self._failed or self._blocked:
            return
        if not self._finished:
            self._report.add("gemini-empty", "the stream ends without a candidate or an error")
        elif not all(self._finished.values()):
            self._report.add("gemini-end", "the stream ends without a finishReason or an error")

    def _chunk(self, chunk: JSONObject) -> None:
        report = self._report
        identity = tuple(chunk.get(name) for name in ("responseId", "modelVersion"))
        if self._identity not in (None, identity):
            report.add("gemini-identity", "responseId or modelVersion changed within the stream")
        self._identity = identity
        _check_response(chunk, report)
        self._blocked = self._blocked or bool(members(chunk.get("promptFeedback")).get("blockReason"))
        for number, candidate in objects(chunk.get("candidates")):
            index = count(candidate.get("index"))
            if self._finished.get(index):
                report.add("gemini-after-finish", "a chunk after finishReason", f"/candidates/{number}")
            finished = bool(candidate.get("finishReason"))
            self._finished[index] = self._finished.get(index, False) or finished


def check_whole(body: JSONObject, report: Report) -> None:
    """Check a whole response."""
    _check_response(body, report)
    candidates = objects(body.get("candidates"))
    if not candidates and not members(body.get("promptFeedback")).get("blockReason"):
        report.add("gemini-empty", "neither candidates nor the reason why the prompt was blocked")
    for number, candidate in candidates:
        if not candidate.get("finishReason"):
            report.add("gemini-end", "a candidate without a finishReason", f"/candidates/{number}")


def _check_response(body: JSONObject, report: Report) -> None:
    add_mismatches(report, "gemini", SHAPES.check("Response", body))
    if body.get("candidates") == []:
        report.add("gemini-no-candidates", "an empty list of candidates", "/candidates")
    ids: set[str] = set()
    for number, candidate in objects(body.get("candidates")):
        parts = members(candidate.get("content")).get("parts")
        for at, part in objects(parts):
            _check_part(part, f"/candidates/{number}/content/parts/{at}", ids, report)
    usage = members(body.get("usageMetadata"))
    if "totalTokenCount" in usage and "promptTokenCount" in usage:
        if count(usage["totalTokenCount"]) != sum(count(usage.get(name)) for name in _COUNTS):
            detail = "totalTokenCount is not the sum of its parts"
            report.add("gemini-usage-sum", detail, "/usageMetadata/totalTokenCount")
        if count(usage.get("cachedContentTokenCount")) > count(usage["promptTokenCount"]):
            detail = "promptTokenCount is less than its part cachedContentTokenCount"
            report.add("gemini-usage-sum", detail, "/usageMetadata/cachedContentTokenCount")


def _check_part(part: JSONObject, place: str, ids: set[str], report: Report) -> None:
    call = members(part.get("functionCall"))
    call_id = string(call.get("id"))
    if call and not call.get("name") and not call.keys() & {"partialArgs", "willContinue"}:
        report.add("gemini-call", "a call without a name", f"{place}/functionCall")
    if call_id and call_id in ids:
        report.add("gemini-call-id", f"the id {call_id[:60]!a} is used twice", f"{place}/functionCall/id")
    ids.add(call_id)
    signature = string(part.get("thoughtSignature"))
    padded = signature + "=" * (-len(signature) % 4)
    try:
        b64decode(
            padded.encode("ascii"), altchars=b"-_" if set(signature) & set("-_") else None, validate=True
        )
    except (binascii.Error, UnicodeEncodeError):
        report.add("gemini-signature", "a thoughtSignature that is not base64", f"{place}/thoughtSignature")


def check_error(body: JSONObject, report: Report, status: int | None = None) -> None:
    """Check an error, in a stream or as the body of a response. status: of the response."""
    add_mismatches(report, "gemini", SHAPES.check("Error", body))
    error = members(body.get("error"))
    if not string(error.get("message")):
        report.add("gemini-error-body", "an error without a message", "/error")
    code = error.get("code")
    if status is not None and code != status:
        report.add("gemini-error-code", f"code is not the status {status}", "/error/code")
    names = _STATUS_NAMES.get(count(code))
    if names is not None and error.get("status") not in names:
        report.add("gemini-error-status", f"status is not {' or '.join(names)}", "/error/status")
