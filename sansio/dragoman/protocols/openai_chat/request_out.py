"""Write the body for a Chat Completions upstream.

The conversation is cut into assistant turns and everything between them, because Chat is the strictest about turns. One
assistant message holds all calls of a turn, and "messages with role 'tool' must be a response to a preceding message
with 'tool_calls'" (ogx-ai/ogx#6367). So all results between two turns come first, then the media that they held (a tool
message has only text), then the rest, in one user message: "conversation roles must alternate user and assistant"
(llama.cpp#19851). Texts are one string where possible, because many servers accept nothing else: "invalid type:
sequence, expected a string" (DeepSeek, qwen-code#2320). Requests that came as Chat keep their members
(`Capabilities.relay` "rewrite").

All three threads were read on 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.losses import Ledger
from dragoman._ir.native import overlaid
from dragoman._ir.request import Media, Message, Part, Request, Text, ToolResult
from dragoman._wire.exceptions import RequestRefused, dotted_path
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols._openai.tool_results import mark_error
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities
from dragoman.protocols.openai_chat.request_messages_out import (
    TEXT_PART_KEYS,
    PartWriter,
    is_document_url,
    write_simple_turn,
    write_turn,
)
from dragoman.protocols.openai_chat.request_settings import (
    REASONING_SETTINGS,
    write_reasoning,
    write_response_format,
    write_settings,
)
from dragoman.protocols.openai_chat.tables import REJECTED_PARAMS
from dragoman.protocols.openai_chat.tools import deep_merge, write_tools


def write_request(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Return the body to send. Losses are recorded in `ledger`.

    Raises RequestRefused (400) for settings without which the request would mean something else.
    """
    for param in filter(request.params.__contains__, REJECTED_PARAMS):
        if request.params[param]:
            path = request.path_of(param)
            raise RequestRefused(
                f"{dotted_path(path)} needs a server that stores conversations; this upstream speaks Chat Completions:"
                " send the whole conversation instead",
                path=path,
                code="unsupported_value",
            )
    settings = request.changed_settings(_FITTED_PARAMS) if request.native else request
    messages = MessageWriter(request, capabilities, ledger).write(request.messages)
    out: JSONObject = {"model": request.model, "messages": messages}
    if request.stream:
        out["stream"] = True
        # Always requested. A writer for a client that did not request it leaves it out.
        out["stream_options"] = {"include_usage": True}
    if request.tools or request.tool_choice is not None:
        write_tools(request, capabilities, out, ledger)
    if request.response_format is not None:
        write_response_format(request.response_format, settings, messages, out, ledger)
    if request.reasoning is not None:
        write_reasoning(request.reasoning, request, capabilities, out, ledger)
    write_settings(settings, capabilities, out, ledger)
    if not request.native:
        return out
    for name, value in (request.extra or {}).items():
        if f"/{name}" in _WRITTEN:
            out[name] = deep_merge(out.get(name), value)
    return request.native_body(out, _WRITTEN, ("/response_format",))


# Settings that are fitted to the upstream even if no pass has changed them, and the members that are always written.
_FITTED_PARAMS = ("max_output_tokens", "prompt_cache_options")
_WRITTEN = [
    f"/{name}"
    for name in (
        "functions",
        "function_call",
        "max_tokens",
        "max_completion_tokens",
        "parallel_tool_calls",
        "prompt_cache_options",
        "tools",
        "tool_choice",
        "web_search_options",
        *REASONING_SETTINGS,
    )
]


# Inserted where an upstream requires another order of turns than the client's.
_BRIDGE_TEXT = "I have the results."

# A message with other members than these is not merged with another one.
_MERGEABLE = {"role", "content", "name"}


class MessageWriter:
    """Writes the messages of one request."""

    def __init__(self, request: Request, capabilities: Capabilities, ledger: Ledger) -> None:
        self._native = bool(request.native)
        self._capabilities = capabilities
        self._ledger = ledger
        self._writer = PartWriter(request, capabilities, ledger)
        # True if no turn needs reasoning or signatures.
        self._simple_turns = capabilities.reasoning_back == "never" and not capabilities.thought_signatures
        self._started = False  # some message was not a system message
        self._out: list[JSONObject] = []

    def write(self, messages: Sequence[Message]) -> list[JSONObject]:
        """Return the wire messages of a conversation."""
        out = self._out
        run: list[Message] = []
        simple_turns, simple_others = self._simple_turns and not self._native, not self._native
        turns: list[bool | None] = [message.role == "assistant" for message in messages]
        turns.append(None)
        after, number = turns[0], 0
        before: bool | None = None  # the message before is an assistant's, None if there is none
        for message in messages:
            number += 1
            is_turn, after = after, turns[number]
            if (
                before is not is_turn
                and after is not is_turn
                and (simple_turns if is_turn else simple_others and message.role == "user")
            ):  # as nearly all are
                simple: JSONObject | None
                if message.plain_text:
                    simple = {"role": message.role, "content": message.plain_text}
                elif is_turn:
                    simple = write_simple_turn((message,), self._writer)
                else:
                    simple = _simple_message(message, "user")
                if simple is not None:
                    self._started = True
                    out.append(simple)
                    before = is_turn
                    continue
            run.append(message)
            before = is_turn
            if after is not is_turn or (is_turn and messages[number].name != message.name):
                (self._write_assistant_turn if is_turn else self._write_between_turns)(run)
                run = []
                before = out[-1]["role"] == "assistant" if out else None
        return out

    def _write_assistant_turn(self, run: Sequence[Message]) -> None:
        """Write a run of assistant messages as one, unless nothing is left of it."""
        self._started = True
        body: JSONObject | None = None
        if self._simple_turns and self._native:
            body = run[0].native if len(run) == 1 and self._writer.keeps(run[0]) else None
        elif self._simple_turns and len(run) > 1:  # of one message write() has tried it
            body = write_simple_turn(run, self._writer)
        if body is None:
            body = write_turn(run, self._writer)
        if body is not None:
            self._out.append(body)

    def _write_between_turns(self, run: Sequence[Message]) -> None:
        """Write the messages between two assistant turns: results, then their media, then the rest in order."""
        results: list[JSONObject] = []
        media: list[JSONObject] = []
        rest: list[tuple[JSONObject, Message]] = []
        for message in run:
            parts = message.parts
            role: str = message.role
            if role == "user":
                self._started = True
            else:
                role = self._system_role(message)
            simple = None if self._native else _simple_message(message, role)
            if simple is not None:
                if simple["role"] == "tool":
                    results.append(simple)
                else:
                    rest.append((simple, message))
                continue
            if message.role == "user":
                result_parts = [part for part in parts if type(part) is ToolResult]
                if result_parts:
                    for result in result_parts:
                        results.append(self._write_result(result, message, media))
                    if len(result_parts) == len(parts):
                        continue
                    parts = tuple([part for part in parts if type(part) is not ToolResult])
            body = self._write_plain(message, role, parts)
            if body is not None:
                rest.append((body, message))
        self._out += results
        if media:
            self._add({"role": "user", "content": media}, run[0])
        for body, message in rest:
            self._add(body, message)

    def _add(self, body: JSONObject, message: Message) -> None:
        """Append a message, or merge it into the last one if the upstream requires that."""
        before = self._out[-1] if self._out else None
        if before is None or before["role"] == "assistant":
            self._out.append(body)
        elif before["role"] == "tool" and body["role"] == "user" and self._capabilities.turn_order != "any":
            self._add_to_result(before, body, message)
        elif self._can_merge(before, body):
            if before["role"] != body["role"]:
                self._ledger.altered(f"{message.path}/role", f"sent within a {before['role']} message")
            parts = [*_as_parts(before["content"]), *_as_parts(body["content"])]
            before["content"] = self._writer.write_content(parts)
        else:
            self._out.append(body)

    def _can_merge(self, before: JSONObject, body: JSONObject) -> bool:
        """True if two messages become one: two of the user, or two of the system.

        Servers with "System message must be at the beginning" (llama.cpp#27367, read 2026-11-22) refuse a second one
        as well.
        """
        if before.get("name") != body.get("name") or not before.keys() | body.keys() <= _MERGEABLE:
            return False
        roles = {before["role"], body["role"]}
        return roles == {"user"} or (roles <= {"system", "developer"} and not self._capabilities.mid_system)

    def _add_to_result(self, result: JSONObject, body: JSONObject, message: Message) -> None:
        """Put a user message into a tool result.

        Mistral: "Unexpected role 'user' after role 'tool'" (avante#2695, read 2026-11-22).
        """
        parts = _as_parts(body["content"])
        if any(part["type"] != "text" for part in parts):
            why = "the upstream does not accept a user message after a tool result: an assistant message was inserted"
            self._ledger.repaired(message.path, why)
            self._out += [{"role": "assistant", "content": _BRIDGE_TEXT}, body]
            return
        self._ledger.altered(
            message.path, "appended to the tool result: the upstream does not accept a user message after it"
        )
        if message.role == "user":
            _tag_texts(parts, "user")
        result["content"] = self._writer.write_content([*_as_parts(result["content"]), *parts])

    def _system_role(self, message: Message) -> str:
        if self._started and not self._capabilities.mid_system:
            path = f"{message.path}/role"
            self._ledger.altered(
                path, "sent as marked user text: the upstream does not accept the system role here"
            )
            return "user"
        # "With o1 models and newer, use `developer` messages for this purpose instead" of system messages
        # (openai-python 3.54.0). Servers without this role take them as system messages.
        if message.role == "developer" and self._capabilities.developer_role:
            return "developer"
        return "system"

    def _write_plain(self, message: Message, role: str, parts: Sequence[Part]) -> JSONObject | None:
        """Return a message of any role but assistant and tool, None if nothing of it is left."""
        if self._writer.keeps(message) and message.native is not None and role == message.native["role"]:
            return dict(message.native)
        content: list[JSONObject] = []
        for part in parts:
            self._writer.write_part(part, role, content)
        if not content:
            return None
        if role == "user" and message.role != "user":
            _tag_texts(content, "system")
        body: JSONObject = {"role": role, "content": self._writer.write_content(content)}
        self._writer.write_message_fields(message, body)
        return body

    def _write_result(self, result: ToolResult, message: Message, media: list[JSONObject]) -> JSONObject:
        """Return a tool message. Media that it cannot hold are appended to `media`."""
        if result.plain_text and not self._native:
            return _plain_result(result)
        if message.native is not None and self._writer.keeps(message):
            return dict(message.native)
        content: list[JSONObject] = []
        images = self._capabilities.tool_images
        for part in result.parts:
            if (
                not isinstance(part, Media)
                or part.source == "text"
                or (part.kind == "image" and images)
                or (self._native and is_document_url(part))
            ):
                self._writer.write_part(part, "user", content)
                continue
            self._writer.write_part(part, "user", media)
            content.append({"type": "text", "text": f"[{part.kind}: see the next message]"})
            self._ledger.altered(part.path, "moved out of the tool result into a user message after it")
        if result.is_error:
            mark_error(result, content, "text", self._ledger)
        body: JSONObject = {"role": "tool", "tool_call_id": result.call_id}
        mark = result.cache
        if mark is not None:
            texts = [part for part in content if part.get("type") == "text"]
            if texts:
                self._writer.write_mark(mark, texts[-1])
            else:
                self._ledger.dropped(mark.path, "the result has no text to put the cache mark on")
        body["content"] = self._writer.write_content(content)
        self._writer.write_message_fields(message, body)
        return overlaid(body, result) if self._native else body


def _simple_message(message: Message, role: str) -> JSONObject | None:
    """Return the wire message for one plain text or one plain result, None for any other message.

    Nearly all messages in other protocols are like that. role: the one that is sent, or "user" for a result.
    """
    parts = message.content
    if len(parts) != 1 or message.name is not None:
        return None
    part = parts[0]
    if type(part) is ToolResult and part.plain_text:
        return _plain_result(part)
    if (
        type(part) is Text
        and part.text
        and part.cache is None
        and part.citations is None
        and (role != "user" or message.role == role)
    ):
        return {"role": role, "content": part.text}
    return None


def _plain_result(result: ToolResult) -> JSONObject:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.plain_text}


def _as_parts(content: JSON) -> list[JSONObject]:
    if content == "":
        return []
    return [{"type": "text", "text": content}] if type(content) is str else content


def _tag_texts(content: list[JSONObject], tag: str) -> None:
    """Put tags around texts that go into a message of another role."""
    for part in content:
        if part.keys() >= TEXT_PART_KEYS:
            part["text"] = f"<{tag}>\n{part['text']}\n</{tag}>"
