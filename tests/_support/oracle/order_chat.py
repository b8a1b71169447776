"""The order a Chat Completions stream must keep, as a client's accumulator sees it.

Repeated strings are concatenated by accumulators, so role, call id and call name come once; `usage` is
overwritten by every chunk, so it comes in one last chunk; the stream ends with `[DONE]` or with an error
frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oracle.frames import Frame, as_object

DONE = "[DONE]"
CALLED = {"tool_calls", "function_call"}
# A turn that ran into one of these may have been cut inside a call.
CUT_SHORT = {"length", "content_filter"}


@dataclass(slots=True)
class Call:
    id: str
    custom: bool
    text: str = ""


@dataclass(slots=True)
class Choice:
    started: bool = False
    finish: str | None = None
    calls: list[Call] = field(default_factory=list)


class ChatOrder:
    """Feed frames in order, then ask `close()` for all problems."""

    def __init__(self, *, include_usage: bool) -> None:
        self.include_usage = include_usage
        self.problems: list[str] = []
        self.choices: dict[int, Choice] = {}
        self.identity: tuple[Any, ...] | None = None
        self.ended: str | None = None  # "done" or "error"
        self.usage_seen = False

    def feed(self, number: int, frame: Frame) -> None:
        where = f"frame {number}"
        if frame.event is not None:
            self.problems.append(f"{where}: order: Chat frames have no `event:` line")
        if self.ended:
            self.problems.append(f"{where}: order: something follows the {self.ended} frame")
        if frame.data == DONE:
            self._done(where)
            return
        chunk = as_object(frame.data)
        if chunk is None:
            return  # reported by the type check
        if "error" in chunk:
            self.ended = "error"
            return
        self._chunk(where, chunk)

    def _done(self, where: str) -> None:
        if not self.ended:
            for index, choice in self.choices.items():
                if choice.finish is None:
                    self.problems.append(f"{where}: order: [DONE] before choice {index} has a finish_reason")
            if not self.choices:
                self.problems.append(f"{where}: order: [DONE] without any choice")
        self.ended = "done"

    def _chunk(self, where: str, chunk: dict[str, Any]) -> None:
        identity = tuple(chunk.get(name) for name in ("id", "created", "model"))
        if self.identity is None:
            self.identity = identity
            if not identity[0]:
                self.problems.append(f"{where}: order: empty id")
        elif identity != self.identity:
            self.problems.append(f"{where}: order: id, created or model changed within the stream")
        choices = chunk.get("choices") or []
        usage = chunk.get("usage")
        if self.usage_seen:
            self.problems.append(f"{where}: order: a chunk follows the usage chunk")
        if usage is not None:
            self._usage(where, usage, choices)
        elif not choices:
            self.problems.append(f"{where}: order: a chunk without choices that is no usage chunk")
        for entry in choices:
            if isinstance(entry, dict):
                self._choice(where, entry)

    def _usage(self, where: str, usage: Any, choices: list[Any]) -> None:
        self.usage_seen = True
        if not self.include_usage:
            self.problems.append(f"{where}: order: usage that was not asked for")
        if choices:
            self.problems.append(f"{where}: order: usage in a chunk that has choices")
        if any(choice.finish is None for choice in self.choices.values()):
            self.problems.append(f"{where}: order: usage before the end of all choices")
        self.problems += [f"{where}: {problem}" for problem in usage_sums(usage)]

    def _choice(self, where: str, entry: dict[str, Any]) -> None:
        index = entry.get("index")
        if not isinstance(index, int):
            return
        where = f"{where}: choice {index}"
        if index not in self.choices:
            if index != len(self.choices):
                self.problems.append(f"{where}: order: choice indexes are not contiguous from 0")
            self.choices[index] = Choice()
        choice = self.choices[index]
        delta = entry.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if choice.finish is not None and set(delta) - {"audio"}:
            self.problems.append(f"{where}: order: a delta after finish_reason")
        self._role(where, choice, delta)
        calls = delta.get("tool_calls")
        if calls is not None and not calls:
            self.problems.append(f"{where}: order: empty tool_calls list")
        for fragment in calls or []:
            if isinstance(fragment, dict):
                self._fragment(where, choice, fragment)
        finish = entry.get("finish_reason")
        if finish is not None:
            self._finish(where, choice, finish)

    def _role(self, where: str, choice: Choice, delta: dict[str, Any]) -> None:
        if choice.started:
            if "role" in delta:
                self.problems.append(f"{where}: order: role is repeated")
            return
        choice.started = True
        if delta.get("role") != "assistant":
            self.problems.append(f"{where}: order: the first delta has no role assistant")
        opening = delta.get("content", "absent")
        if opening != "" and not (opening is None and delta.get("tool_calls")):
            self.problems.append(f"{where}: order: the first delta's content is not empty")
        if delta.get("refusal") is not None:
            self.problems.append(f"{where}: order: the first delta's refusal is not null")

    def _fragment(self, where: str, choice: Choice, fragment: dict[str, Any]) -> None:
        index = fragment.get("index")
        if not isinstance(index, int):
            return
        where = f"{where}: tool call {index}"
        custom = fragment.get("custom")
        inner = custom if isinstance(custom, dict) else fragment.get("function")
        inner = inner if isinstance(inner, dict) else {}
        if index == len(choice.calls):
            self._opened(where, choice, fragment, inner)
        elif 0 <= index < len(choice.calls):
            for name, value in (("id", fragment.get("id")), ("name", inner.get("name"))):
                if value is not None:
                    self.problems.append(f"{where}: order: {name} is repeated")
        else:
            self.problems.append(f"{where}: order: tool call indexes are not contiguous from 0")
            return
        arguments = inner.get("input" if custom is not None else "arguments")
        choice.calls[index].text += arguments if isinstance(arguments, str) else ""

    def _opened(self, where: str, choice: Choice, fragment: dict[str, Any], inner: dict[str, Any]) -> None:
        call_id = fragment.get("id")
        if not call_id:
            self.problems.append(f"{where}: order: opened without an id")
        elif call_id in {call.id for call in choice.calls}:
            self.problems.append(f"{where}: order: id {call_id!r} is used twice")
        if not inner.get("name"):
            self.problems.append(f"{where}: order: opened without a name")
        if fragment.get("type") not in ("function", "custom"):
            self.problems.append(f"{where}: order: opened without a type")
        choice.calls.append(Call(str(call_id), "custom" in fragment))

    def _finish(self, where: str, choice: Choice, finish: str) -> None:
        if choice.finish is not None:
            self.problems.append(f"{where}: order: a second finish_reason")
        choice.finish = finish
        texts = [None if call.custom else call.text for call in choice.calls]
        self.problems += [f"{where}: {problem}" for problem in finish_problems(finish, texts)]

    def close(self) -> list[str]:
        if self.ended is None:
            self.problems.append("order: the stream ends with neither [DONE] nor an error")
        return self.problems


def finish_problems(finish: str, arguments: list[str | None]) -> list[str]:
    """Does a finish_reason fit the calls? `arguments` has None for custom calls, which are free text."""
    problems = []
    if arguments and finish not in CALLED | CUT_SHORT:
        problems.append(f"order: finish_reason {finish!r} although the turn ends with tool calls")
    if finish in CALLED and not arguments:
        problems.append("order: finish_reason tool_calls without a tool call")
    if finish not in CUT_SHORT and "" in arguments:
        problems.append("order: a call's arguments are empty text, not even {}")
    return problems


def usage_sums(usage: Any) -> list[str]:
    """A total that is not the sum of its parts, or a part that is more than its whole."""
    if not isinstance(usage, dict):
        return []
    details = {
        "prompt_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        "completion_tokens": (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    }
    problems = [
        f"usage.{name}: less than its part {part}"
        for name, part in details.items()
        if isinstance(part, int) and part > usage.get(name, 0)
    ]
    if usage.get("total_tokens") != usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0):
        problems.append("usage.total_tokens: not the sum of prompt and completion tokens")
    return problems


def whole_problems(body: dict[str, Any]) -> list[str]:
    """The same rules for a response that was not streamed."""
    problems: list[str] = []
    choices = body.get("choices") or []
    if not choices:
        problems.append("order: no choices")
    for number, choice in enumerate(choices):
        if choice.get("index") != number:
            problems.append(f"choice {number}: order: choice indexes are not contiguous from 0")
        calls = choice.get("message", {}).get("tool_calls")
        if calls is not None and not calls:
            problems.append(f"choice {number}: order: empty tool_calls list")
        ids = [call.get("id") for call in calls or []]
        if not all(ids) or len(set(ids)) != len(ids):
            problems.append(f"choice {number}: order: tool call ids are empty or used twice")
        texts = [call["function"].get("arguments") if "function" in call else None for call in calls or []]
        problems += [
            f"choice {number}: {problem}" for problem in finish_problems(choice.get("finish_reason"), texts)
        ]
    return problems + (usage_sums(body["usage"]) if body.get("usage") else [])
