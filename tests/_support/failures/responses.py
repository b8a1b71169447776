"""Responses as neutral blocks, and the streams in which upstreams of each protocol send them.

The streams are as the vendors send them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oracle import CHAT, GEMINI, MESSAGES, RESPONSES
from oracle import samples as s

Json = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """Text."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """Reasoning. signature: what only its vendor can read, "" for none."""

    text: str
    signature: str = "c2VhbGVk"


@dataclass(frozen=True)
class Call:
    """A call of a function. fragments: of its arguments, as they stream."""

    id: str
    name: str = "add"
    fragments: tuple[str, ...] = ('{"a": ', "1}")

    @property
    def arguments(self) -> str:
        return "".join(self.fragments)


Block = Text | Reasoning | Call


@dataclass(frozen=True)
class Cost:
    """Tokens: `prompt` has the cached and the written ones in it, `completion` the reasoning."""

    prompt: int = 9
    completion: int = 4
    cached: int = 0
    written: int = 0
    reasoning: int = 0

    @property
    def chat(self) -> Json:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.written},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }

    @property
    def messages(self) -> Json:
        return {
            "input_tokens": self.prompt - self.cached - self.written,
            "cache_read_input_tokens": self.cached,
            "cache_creation_input_tokens": self.written,
            "output_tokens": self.completion,
            "output_tokens_details": {"thinking_tokens": self.reasoning},
        }

    @property
    def gemini(self) -> Json:
        return {
            "promptTokenCount": self.prompt,
            "cachedContentTokenCount": self.cached,
            "candidatesTokenCount": self.completion - self.reasoning,
            "thoughtsTokenCount": self.reasoning,
            "totalTokenCount": self.prompt + self.completion,
        }

    @property
    def responses(self) -> Json:
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.written},
            "output_tokens": self.completion,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.completion,
        }


COST = Cost()
# Stop reasons in each protocol's values.
CHAT_ENDS = {"end": "stop", "tool": "tool_calls", "length": "length", "filter": "content_filter"}
MESSAGES_ENDS = {"end": "end_turn", "tool": "tool_use", "length": "max_tokens", "filter": "refusal"}
GEMINI_ENDS = {"end": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
RESPONSES_ENDS = {"length": "max_output_tokens", "filter": "content_filter"}


def payloads(protocol: str, *blocks: Block, stop: str = "", cost: Cost = COST) -> list[s.Payload]:
    """The frames of a response with these blocks. stop: end, tool, length or filter; by default as the blocks say."""
    stop = stop or ("tool" if any(isinstance(block, Call) for block in blocks) else "end")
    return _RENDER[protocol](blocks, stop, cost)


def stream(protocol: str, *blocks: Block, stop: str = "", cost: Cost = COST) -> bytes:
    """The bytes of `payloads`."""
    return s.render(protocol, payloads(protocol, *blocks, stop=stop, cost=cost))


def frames(data: bytes) -> list[bytes]:
    """The frames of a stream, each with its blank line."""
    return [frame + b"\n\n" for frame in data.split(b"\n\n")[:-1]]


def begun(data: bytes, word: str) -> list[bytes]:
    """The frames of a stream up to the first with this word in it."""
    written, listed = json.dumps(word)[1:-1].encode(), frames(data)
    return listed[: next(number for number, frame in enumerate(listed) if written in frame) + 1]


def _chat(blocks: Sequence[Block], stop: str, cost: Cost) -> list[s.Payload]:
    out: list[s.Payload] = [s.chunk({"role": "assistant", "content": "", "refusal": None})]
    calls = 0
    for block in blocks:
        if isinstance(block, Text):
            out.append(s.chunk({"content": block.text}))
        elif isinstance(block, Reasoning):
            out.append(s.chunk({"reasoning_content": block.text}))
        else:
            out.append(s.chunk(s.call(calls, block.id, block.name)))
            out += [s.chunk(s.call(calls, arguments=fragment)) for fragment in block.fragments]
            calls += 1
    return [*out, s.chunk({}, CHAT_ENDS[stop]), {**s.chunk(), "usage": cost.chat}, "[DONE]"]


def _messages(blocks: Sequence[Block], stop: str, cost: Cost) -> list[s.Payload]:
    at_start = {**s.MESSAGES_USAGE, **cost.messages, "output_tokens": 1}
    out: list[s.Payload] = [{"type": "message_start", "message": s.message(usage=at_start)}]
    for index, block in enumerate(blocks):
        if isinstance(block, Text):
            out += [
                s.start(index, type="text", text="", citations=None),
                s.delta(index, "text_delta", text=block.text),
            ]
        elif isinstance(block, Reasoning):
            out.append(s.start(index, type="thinking", thinking="", signature=""))
            if block.text:
                out.append(s.delta(index, "thinking_delta", thinking=block.text))
            out.append(s.delta(index, "signature_delta", signature=block.signature))
        else:
            out.append(s.start(index, type="tool_use", id=block.id, name=block.name, input={}, caller=None))
            out += [s.delta(index, "input_json_delta", partial_json=fragment) for fragment in block.fragments]
        out.append(s.stop(index))
    ending = {"stop_reason": MESSAGES_ENDS[stop], "stop_sequence": None, "stop_details": None}
    out.append({"type": "message_delta", "delta": {**ending, "container": None}, "usage": cost.messages})
    return [*out, {"type": "message_stop"}]


def _responses(blocks: Sequence[Block], stop: str, cost: Cost) -> list[s.Payload]:
    out: list[s.Payload] = [
        {"type": "response.created", "response": s.response()},
        {"type": "response.in_progress", "response": s.response()},
    ]
    output: list[Json] = []
    for index, block in enumerate(blocks):
        events, item = _ITEMS[type(block)](index, block)
        out += events
        output.append(item)
    status = "incomplete" if stop in RESPONSES_ENDS else "completed"
    final = s.response(status, output=output, usage=cost.responses)
    if status == "incomplete":
        final["incomplete_details"] = {"reason": RESPONSES_ENDS[stop]}
    return [*out, {"type": f"response.{status}", "response": final}]


def _gemini(blocks: Sequence[Block], stop: str, cost: Cost) -> list[s.Payload]:
    out: list[s.Payload] = []
    for block in blocks:
        if isinstance(block, Text):
            out.append(s.parts({"text": block.text}))
        elif isinstance(block, Reasoning):
            signed = {"thoughtSignature": block.signature} if block.signature else {}
            out.append(s.parts({"text": block.text, "thought": True, **signed}))
        else:
            out.append(s.parts(s.function_call(block.id, block.name, json.loads(block.arguments))))
    return [*out, s.parts({"text": ""}, finish=GEMINI_ENDS[stop], usage=cost.gemini)]


def _message_item(index: int, block: Text) -> tuple[list[s.Payload], Json]:
    at = {"content_index": 0}
    key = f"msg_{index}"
    part = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
    item = {"id": key, "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return [
        s.item("added", index, **{**item, "status": "in_progress", "content": []}),
        s.at("content_part.added", index, key, **at, part={**part, "text": ""}),
        s.at("output_text.delta", index, key, **at, delta=block.text, logprobs=[]),
        s.at("output_text.done", index, key, **at, text=block.text, logprobs=[]),
        s.at("content_part.done", index, key, **at, part=part),
        s.item("done", index, **item),
    ], item


def _reasoning_item(index: int, block: Reasoning) -> tuple[list[s.Payload], Json]:
    key = f"rs_{index}"
    at = {"summary_index": 0}
    part = {"type": "summary_text", "text": block.text}
    item = {"id": key, "type": "reasoning", "summary": [part] if block.text else []}
    text_events = [
        s.at("reasoning_summary_part.added", index, key, **at, part={**part, "text": ""}),
        s.at("reasoning_summary_text.delta", index, key, **at, delta=block.text),
        s.at("reasoning_summary_text.done", index, key, **at, text=block.text),
        s.at("reasoning_summary_part.done", index, key, **at, part=part),
    ]
    wrapped = {**item, "encrypted_content": block.signature} if block.signature else item
    added = s.item("added", index, **{**item, "summary": []})
    return [added, *(text_events if block.text else []), s.item("done", index, **wrapped)], wrapped


def _call_item(index: int, block: Call) -> tuple[list[s.Payload], Json]:
    key = f"fc_{index}"
    head = {"id": key, "type": "function_call", "call_id": block.id, "name": block.name}
    events: list[s.Payload] = [s.item("added", index, **head, arguments="", status="in_progress")]
    events += [
        s.at("function_call_arguments.delta", index, key, delta=fragment) for fragment in block.fragments
    ]
    item = {**head, "arguments": block.arguments, "status": "completed"}
    done = s.at("function_call_arguments.done", index, key, arguments=block.arguments)
    return [*events, done, s.item("done", index, **item)], item


_ITEMS: dict[type[Block], Any] = {Text: _message_item, Reasoning: _reasoning_item, Call: _call_item}
_RENDER = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}
