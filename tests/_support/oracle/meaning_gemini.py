"""Meaning of Gemini responses: chunks of complete responses, whose parts are pieces to append.

Taken as given: heartbeats, candidates without an index, ids or role, calls in a chunk apart from the finish reason,
arguments in pieces, and the bare form of an error.
"""

import json
import re
from typing import Any

from oracle.frames import as_object, lenient_frames
from oracle.meaning import Block, Failure, Kind, Meaning, Stop, Usage, grow, whole_number

STOPS = {"STOP": Stop.END, "MAX_TOKENS": Stop.LENGTH, "CONTINUATION": Stop.LENGTH}
FILTERS = {
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
BROKEN = {
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    *("MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE"),
}
STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")  # of a JSONPath
PIECE = {"partialArgs", "willContinue"}
VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class GeminiReader:
    def __init__(self) -> None:
        self.meaning = Meaning()
        self.finish: str | None = None
        self.message = ""
        self.usage: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}  # of the last call
        self.string = ""  # its last one, as far as it has come

    def chunk(self, chunk: dict[str, Any]) -> None:
        meaning = self.meaning
        if "error" in chunk:
            meaning.failure = meaning.failure or failure_of(chunk)
            return
        self.usage.update(chunk.get("usageMetadata") or {})
        feedback = chunk.get("promptFeedback") or {}
        if feedback.get("blockReason"):
            self.finish, self.message = "SAFETY", str(feedback.get("blockReasonMessage") or "")
        for candidate in chunk.get("candidates") or []:
            index = candidate.get("index") or 0
            blocks = meaning.choices.setdefault(index, [])
            for part in (candidate.get("content") or {}).get("parts") or []:
                self._part(blocks, part)
            if index == 0:
                self.finish = candidate.get("finishReason") or self.finish
                self.message = candidate.get("finishMessage") or self.message

    def _part(self, blocks: list[Block], part: dict[str, Any]) -> None:
        call = part.get("functionCall")
        if call:
            if call.get("name") or not call.keys() & PIECE:
                self.arguments = dict(call.get("args") or {})
                blocks.append(Block(Kind.CALL, "", call.get("name") or "", call.get("id") or ""))
            for piece in call.get("partialArgs") or []:
                self._assign(piece)
            blocks[-1].text = json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))
        elif isinstance(part.get("text"), str):
            grow(blocks, Kind.REASONING if part.get("thought") else Kind.TEXT, part["text"])
        elif part.keys() - {"thoughtSignature", "thought"}:
            blocks.append(Block(Kind.HOSTED, name=next(iter(part))))

    def _assign(self, piece: dict[str, Any]) -> None:
        value = next((piece[name] for name in VALUES if name in piece), None)
        if isinstance(value, str):
            self.string += value
            if piece.get("willContinue"):
                return
            value, self.string = self.string, ""
        steps = [name or int(number) for name, number in STEP.findall(piece["jsonPath"])]
        holder: Any = self.arguments
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            if isinstance(step, int):
                holder.extend([None] * (step + 1 - len(holder)))
            empty = value if after is None else [] if isinstance(after, int) else {}
            holder[step] = (holder.get(step) if isinstance(holder, dict) else holder[step]) or empty
            holder = holder[step]

    def close(self) -> Meaning:
        meaning = self.meaning
        if self.usage.keys() & {"promptTokenCount", "candidatesTokenCount"}:
            meaning.usages = [usage_of(self.usage)]
        if self.finish in BROKEN and meaning.failure is None:
            meaning.failure = Failure(self.finish.lower(), self.message or self.finish)
        if meaning.failure is not None:
            meaning.stop = Stop.ERROR
        elif self.finish is not None:
            meaning.stop = Stop.FILTER if self.finish in FILTERS else STOPS.get(self.finish, Stop.END)
            if meaning.stop is Stop.FILTER:
                meaning.explanation = self.message
        return meaning.settle()


def usage_of(usage: dict[str, Any]) -> Usage:
    def counted(*names: str) -> int | None:
        counts = [whole_number(usage.get(name)) for name in names]
        return None if counts[0] is None and counts[-1] is None else sum(each or 0 for each in counts)

    prompt = whole_number(usage.get("promptTokenCount"))
    return Usage(
        input=None if prompt is None else prompt + (whole_number(usage.get("toolUsePromptTokenCount")) or 0),
        cached=whole_number(usage.get("cachedContentTokenCount")),
        output=counted("candidatesTokenCount", "thoughtsTokenCount"),
        reasoning=whole_number(usage.get("thoughtsTokenCount")),
    )


def failure_of(body: dict[str, Any]) -> Failure:
    error = body.get("error")
    if not isinstance(error, dict):
        return Failure("", str(error or body.get("message") or ""))
    return Failure(str(error.get("status") or ""), str(error.get("message") or ""))


def read_stream(stream: bytes) -> Meaning:
    reader = GeminiReader()
    for frame in lenient_frames(stream):
        chunk = as_object(frame.data)
        if chunk is not None:
            reader.chunk(chunk)
    return reader.close()


def read_whole(body: dict[str, Any]) -> Meaning:
    reader = GeminiReader()
    reader.chunk(body)
    return reader.close()
