"""The messages of a request, printed for a Chat Completions upstream.

Strategy: a writer collects the wire messages. Texts are one string, because many servers take nothing else ("invalid
type: sequence, expected a string"); lists of parts are for images and marks. "A message with role tool must be a
response to a preceding message with tool_calls": so all results of a stretch between two assistant turns come
first, then the media that they held (a tool message is text only), then what else was said, in one message of the
user's: "conversation roles must alternate user and assistant".
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Media, Message, Part, Request, Text, ToolResult
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Target
from dragoman.protocols.openai_chat.write_parts import PLAIN_TEXT, PartWriter
from dragoman.protocols.openai_chat.write_turns import short_turn, write_turn

# What is said where an upstream's order of turns wants another role than the client's.
_BEGINS = "(The assistant speaks first.)"
_BETWEEN = "I have the results."


# A message that has more than these stays one of its own.
_JOINED = {"role", "content", "name"}


class MessageWriter:
    """Collects wire messages. Feed it assistant runs and the runs between them, in order; then call finish()."""

    __slots__ = ("_exact", "_ledger", "_out", "_own", "_parts", "_short_turns", "_spoken", "_target")

    def __init__(self, request: Request, own: bool, target: Target, ledger: Ledger) -> None:
        self._own = own
        self._target = target
        self._ledger = ledger
        self._parts = PartWriter(request, own, target, ledger)
        self._exact = self._parts.exact
        # Nothing has to be added to them.
        self._short_turns = not own and target.reasoning_back == "never" and not target.thought_signatures
        self._spoken = False  # something other than system text has been said
        self._out: list[JSONObject] = []

    def finish(self) -> list[JSONObject]:
        """All wire messages."""
        self._parts.keep_last_marks()
        return self._out

    def assistant(self, run: Sequence[Message], in_loop: bool) -> None:
        """One assistant message of a run of them. Nothing is written when nothing is left of it.

        in_loop: the user has not spoken since.
        """
        self._spoken = True
        body = short_turn(run) if self._short_turns else None
        if body is None:
            body = write_turn(run, self._parts, in_loop)
        if body is not None:
            if self._target.turn_order == "alternate" and not self._exact and self._is_first():
                self._out.append({"role": "user", "content": _BEGINS})
                self._ledger.add(
                    LossCode.REPAIRED,
                    run[0].path,
                    "the upstream wants a user's turn first: one was put there",
                )
            self._out.append(body)

    def _is_first(self) -> bool:
        return not self._out or self._out[-1]["role"] in ("system", "developer")

    def others(self, run: Sequence[Message]) -> None:
        """Messages between two assistant turns: results first, then their media, then the rest in order."""
        if len(run) == 1 and run[0].role == "user" and not self._own:
            short = _short(run[0])
            if short is not None:
                self._spoken = True
                self._add(short, run[0])
                return
        results: list[JSONObject] = []
        shown: list[JSONObject] = []
        rest: list[tuple[JSONObject, Message]] = []
        for message in run:
            parts = message.parts
            role: str = message.role
            if role == "user":
                self._spoken = True
                short = None if self._own else _short(message)
                if short is not None:
                    if short["role"] == "tool":
                        results.append(short)
                    else:
                        rest.append((short, message))
                    continue
                found = [part for part in parts if type(part) is ToolResult]
                if found:
                    for result in found:
                        results.append(self._result(result, message, shown))
                    parts = tuple(part for part in parts if type(part) is not ToolResult)
                    if not parts:
                        continue
            else:
                role = self._system_role(message)
            body = self._plain(message, role, parts)
            if body is not None:
                rest.append((body, message))
        self._out += results
        if shown:
            self._add({"role": "user", "content": shown}, run[0])
        for body, message in rest:
            self._add(body, message)

    def _add(self, body: JSONObject, message: Message) -> None:
        """Put what was said between two assistant turns behind what is there, or into it."""
        before = self._out[-1] if self._out and not self._exact else None
        if before is None or before["role"] == "assistant":
            self._out.append(body)
        elif before["role"] == "tool" and body["role"] == "user" and self._target.turn_order != "any":
            self._add_to_result(before, body, message)
        elif self._joins(before, body):
            if before["role"] != body["role"]:
                self._ledger.altered(f"{message.path}/role", f"sent within a {before['role']} message")
            one, two = before["content"], body["content"]
            if type(one) is str and type(two) is str:
                before["content"] = f"{one}\n\n{two}"
            else:
                before["content"] = [*_as_parts(one), *_as_parts(two)]
        else:
            self._out.append(body)

    def _joins(self, before: JSONObject, body: JSONObject) -> bool:
        """Whether two messages become one. "System message must be at the beginning": servers that take none later
        on take no second one either.
        """
        if before.get("name") != body.get("name") or not before.keys() | body.keys() <= _JOINED:
            return False
        roles = {before["role"], body["role"]}
        return roles == {"user"} or (roles <= {"system", "developer"} and not self._target.mid_system)

    def _add_to_result(self, result: JSONObject, body: JSONObject, message: Message) -> None:
        """Put what the user says into a tool's result: "Unexpected role 'user' after role 'tool'"."""
        parts = _as_parts(body["content"])
        if any(part["type"] != "text" for part in parts):
            why = "the upstream takes no user's turn after a tool's result: an assistant's was put between"
            self._ledger.add(LossCode.REPAIRED, message.path, why)
            self._out += [{"role": "assistant", "content": _BETWEEN}, body]
            return
        self._ledger.altered(
            message.path, "sent behind the tool's result: the upstream takes no user's turn there"
        )
        if message.role == "user":
            _enclose(parts, "user")
        result["content"] = self._parts.content([*_as_parts(result["content"]), *parts])

    def _system_role(self, message: Message) -> str:
        if self._spoken and not self._exact and not self._target.mid_system:
            path = f"{message.path}/role"
            self._ledger.altered(path, "system text in mid-conversation is sent as user text")
            return "user"
        # "With o1 models and newer, use developer messages for this purpose instead": where they are not known, the
        # purpose is system's. Messages has one place for both, too.
        if message.role == "developer" and self._target.developer_role:
            return "developer"
        return "system"

    def _plain(self, message: Message, role: str, parts: Sequence[Part]) -> JSONObject | None:
        """A message of any role but assistant and tool, None when nothing of it is left."""
        content: list[JSONObject] = []
        for part in parts:
            self._parts.part(part, message, content)
        if not content and not self._exact:
            return None
        if role == "user" and message.role != "user":
            _enclose(content, "system")
        body: JSONObject = {"role": role, "content": self._parts.content(content)}
        self._parts.envelope(message, body)
        return body

    def _result(self, result: ToolResult, message: Message, shown: list[JSONObject]) -> JSONObject:
        """One tool message. Media that it cannot hold are appended to `shown`."""
        content: list[JSONObject] = []
        for part in result.parts:
            if self._exact or not isinstance(part, Media) or part.source == "text" or self._takes(part):
                self._parts.part(part, message, content)
                continue
            before = len(shown)
            self._parts.part(part, message, shown)
            if len(shown) > before:
                content.append({"type": "text", "text": f"[{part.kind}: see the next message]"})
                self._ledger.altered(part.path, "moved out of the tool result into a user message after it")
        if result.is_error:
            _prefix(content, "Error: ")
            self._ledger.altered(f"{result.path}/is_error", "said by the prefix `Error: `")
        body: JSONObject = {"role": "tool", "tool_call_id": result.call_id}
        mark = result.cache
        if mark is not None and not (self._exact and mark.path == f"{result.path}/cache_control"):
            texts = [part for part in content if part.get("type") == "text"]
            if texts:
                self._parts.mark(mark, None, texts[-1])
            else:
                self._ledger.dropped(mark.path, "the result has no text to carry a cache mark")
        body["content"] = self._parts.content(content)
        self._parts.envelope(message, body)
        if self._own:
            body.update(result.extra or {})
            raw = self._parts.raw(message)
            if self._exact and raw["role"] == "function":  # the legacy form, paired by name
                del body["tool_call_id"]
                body.update(role="function", name=raw["name"])
        return body

    def _takes(self, part: Media) -> bool:
        return part.kind == "image" and self._target.tool_images


def _short(message: Message) -> JSONObject | None:
    """The wire message of a foreign client's user who gives one plain text or one plain result.

    None when there is more to the message. Nearly all messages between assistant turns are like that.
    """
    parts = message.parts
    if len(parts) != 1 or message.name is not None or message.phase is not None:
        return None
    part = parts[0]
    if type(part) is ToolResult:
        if len(part.parts) == 1 and part.cache is None and not part.is_error:
            text = part.parts[0]
            if type(text) is Text and text.cache is None and text.citations is None:
                return {"role": "tool", "tool_call_id": part.call_id, "content": text.text}
    elif type(part) is Text and part.cache is None and part.citations is None:
        return {"role": "user", "content": part.text}
    return None


def _as_parts(content: JSON) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if type(content) is str else content


def _enclose(content: list[JSONObject], tag: str) -> None:
    """Mark texts, so that the model can tell who says them."""
    for part in content:
        if part.keys() >= PLAIN_TEXT:
            part["text"] = f"<{tag}>\n{part['text']}\n</{tag}>"


def _prefix(content: list[JSONObject], text: str) -> None:
    if content and content[0].get("type") == "text":
        content[0]["text"] = text + content[0]["text"]
    else:
        content.insert(0, {"type": "text", "text": text.rstrip(": ")})
