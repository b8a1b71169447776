"""Meaning of Chat Completions responses, with all that compatible servers make of them.

Taken as given: content as a list of parts, reasoning under three names, tool fragments without index or
with an index used again for a new id, roles and names in every delta, usage anywhere, an error object
inside a normal chunk, no finish_reason, no [DONE].
"""

from typing import Any

from oracle.frames import as_object, lenient_frames
from oracle.meaning import Block, Failure, Kind, Meaning, Stop, Usage, grow, whole_number

STOPS = {
    "stop": Stop.END,
    "eos": Stop.END,
    "end_turn": Stop.END,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "tool_calls": Stop.TOOL,
    "function_call": Stop.TOOL,
    "content_filter": Stop.FILTER,
    "error": Stop.ERROR,
}


class ChatReader:
    def __init__(self) -> None:
        self.meaning = Meaning()
        self.finish: str | None = None
        self.usage: dict[str, Any] | None = None
        self.closing = False  # something came that only comes at the end
        self.slots: dict[tuple[int, Any], Block] = {}

    def chunk(self, chunk: dict[str, Any], *members: str) -> None:
        error = chunk.get("error")
        if error:
            self.meaning.failure = self.meaning.failure or failure_of(chunk)
        choices = chunk.get("choices") or []
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
            self.closing = self.closing or not choices
        for choice in choices:
            index = choice.get("index") or 0
            blocks = self.meaning.choices.setdefault(index, [])
            first, second = members or ("delta", "message")
            self._message(index, blocks, choice.get(first) or choice.get(second) or {})
            finish = choice.get("finish_reason")
            if index == 0:
                # An empty finish_reason is null; the last real one wins.
                self.finish = finish or self.finish
                if isinstance(choice.get("stop_reason"), str):
                    self.meaning.stop_sequence = choice["stop_reason"]

    def _message(self, index: int, blocks: list[Block], message: dict[str, Any]) -> None:
        grow(blocks, Kind.REASONING, reasoning_text(message))
        content = message.get("content")
        if isinstance(content, str):
            grow(blocks, Kind.TEXT, content)
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                texts = (
                    [each.get("text") or "" for each in inner] if isinstance(inner, list) else [inner or ""]
                )
                grow(blocks, Kind.REASONING, "".join(texts))
            else:
                grow(blocks, Kind.TEXT, part.get("text") or "")
        if isinstance(message.get("refusal"), str):
            grow(blocks, Kind.REFUSAL, message["refusal"])
        for position, fragment in enumerate(message.get("tool_calls") or []):
            self._fragment(index, position, blocks, fragment)
        if isinstance(message.get("function_call"), dict):
            self._fragment(index, 0, blocks, {"index": 0, "function": message["function_call"]})

    def _fragment(self, choice: int, position: int, blocks: list[Block], fragment: dict[str, Any]) -> None:
        custom = fragment.get("custom")
        inner = custom or fragment.get("function") or {}
        call_id = fragment.get("id") or ""
        index = fragment.get("index")
        key: tuple[int, Any] = (choice, index if index is not None else ("position", position))
        call = self.slots.get(key)
        # A new id at a used index is a new call; without an index only the id decides.
        if call is None or (call_id and call.id and call_id != call.id):
            call = Block(Kind.CALL, id=call_id, custom=bool(custom))
            blocks.append(call)
            self.slots[key] = call
        call.id = call.id or call_id
        call.name = call.name or inner.get("name") or ""
        arguments = inner.get("input" if custom else "arguments")
        call.text += arguments if isinstance(arguments, str) else ""

    def close(self, *, done: bool) -> Meaning:
        meaning = self.meaning
        if self.usage is not None:
            meaning.usages = [usage_of(self.usage)]
        if meaning.failure is not None:
            meaning.stop = Stop.ERROR
        elif self.finish is not None:
            meaning.stop = STOPS.get(self.finish, Stop.END)
            if meaning.stop is Stop.END and meaning.stop_sequence is not None:
                meaning.stop = Stop.SEQUENCE
        elif done or self.closing:
            meaning.stop = Stop.END
        return meaning.settle()


def reasoning_text(message: dict[str, Any]) -> str:
    """The thinking text under whichever name came; servers that send two names send it twice."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    details = message.get("reasoning_details") or []
    text = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
    blocks = message.get("thinking_blocks") or []
    return text or "".join(block.get("thinking") or "" for block in blocks)


def usage_of(usage: dict[str, Any]) -> Usage:
    input_tokens = whole_number(usage.get("prompt_tokens"))
    output = whole_number(usage.get("completion_tokens"))
    before = usage.get("prompt_tokens_details") or {}
    after = usage.get("completion_tokens_details") or {}
    reasoning = whole_number(after.get("reasoning_tokens"))
    total = whole_number(usage.get("total_tokens"))
    if (
        input_tokens is not None
        and output is not None
        and reasoning
        and (total == input_tokens + output + reasoning or (reasoning > output and "market_cost" in usage))
    ):
        output += reasoning  # counted outside completion_tokens, as the total shows, or the prices of Vercel's router
    cached = (
        before.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("num_cached_tokens"),
        usage.get("cache_read_input_tokens"),
    )
    written = (before.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"))
    return Usage(
        input=input_tokens,
        cached=next((n for n in map(whole_number, cached) if n is not None), None),
        cache_write=next((n for n in map(whole_number, written) if n is not None), None),
        output=output,
        reasoning=reasoning,
    )


def failure_of(body: dict[str, Any]) -> Failure:
    error = body.get("error")
    if isinstance(error, dict):
        return Failure(str(error.get("code") or error.get("type") or ""), str(error.get("message") or ""))
    return Failure(str(body.get("code") or ""), str(error or body.get("detail") or body.get("message") or ""))


def read_stream(stream: bytes) -> Meaning:
    reader = ChatReader()
    for frame in lenient_frames(stream):
        if frame.data == "[DONE]":
            return reader.close(done=True)
        chunk = as_object(frame.data)
        if chunk is not None:
            reader.chunk(chunk)
    return reader.close(done=False)


def read_whole(body: dict[str, Any]) -> Meaning:
    reader = ChatReader()
    reader.chunk(body, "message", "delta")
    return reader.close(done=True)
