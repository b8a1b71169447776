"""Chat Completions: the shapes of its documents, and the order of a stream as a client's accumulator needs it.

Accumulators join strings that are repeated, so role, call id and name come once; each chunk overwrites the usage, so
it comes last.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.losses import child
from dragoman._wire.json import JSON, JSONObject
from dragoman.lint.framing import PlacedFrame
from dragoman.lint.report import Report, add_mismatches, arguments_problem, count, members, objects, string
from dragoman.lint.shapes import Shapes

_DONE = "[DONE]"
_CALLED = ("tool_calls", "function_call")
# A turn that ran into one of these may have been cut inside a call.
_CUT_SHORT = ("length", "content_filter")
_FINISHES = (*_CALLED, *_CUT_SHORT, "stop")
_USAGE_PARTS = (
    ("prompt_tokens", "prompt_tokens_details", "cached_tokens"),
    ("completion_tokens", "completion_tokens_details", "reasoning_tokens"),
)

# reasoning_content, reasoning, reasoning_details and thinking_blocks are no members of OpenAI's, but so widespread that
# clients read them; so are stop_reason of a choice and server_tool_use_details of the usage. Fragments of custom calls
# are not in the documents of the stream, only in the message's. Clients show the message of an error, and make
# up ids and times for chunks without. Whole responses are validated by pydantic-ai, which fails without an
# id (pydantic-ai#2996, read 2026-11-28), and for a time that is no number.
SHAPES = Shapes("""
Chunk: id~ str, choices [ChunkChoice], created~ int, model~ str, object "chat.completion.chunk", moderation? any, obfuscation? str, service_tier? "auto" "default" "flex" "scale" "priority" "fast", system_fingerprint? str, usage? Usage
ChunkChoice: delta Delta, index int, finish_reason? "stop" "length" "tool_calls" "content_filter" "function_call", logprobs? Logprobs, stop_reason? any
Delta: audio? obj, content? str, function_call? FunctionFragment, refusal? str, role? "developer" "system" "user" "assistant" "tool", tool_calls? [CallFragment], annotations? [Annotation], reasoning_content? str, reasoning? str, reasoning_details? [ReasoningDetail], thinking_blocks? [obj]
CallFragment: index int, id? str, type? "function" "custom", function? FunctionFragment, custom? CustomFragment
FunctionFragment: arguments? str, name? str
CustomFragment: input? str, name? str
Completion: id str, choices [Choice], created int, model str, object "chat.completion", metadata? obj, moderation? any, service_tier? "auto" "default" "flex" "scale" "priority" "fast", system_fingerprint? str, usage? Usage
Choice: finish_reason "stop" "length" "tool_calls" "content_filter" "function_call", index int, logprobs Logprobs?, message Message, stop_reason? any
Message: content str?, refusal str?, role "assistant", annotations? [Annotation], audio? Audio, function_call? FunctionCall, tool_calls? [Call], reasoning_content? str, reasoning? str, reasoning_details? [ReasoningDetail], thinking_blocks? [obj]
Call = FunctionToolCall | CustomToolCall
FunctionToolCall: id str, type "function", function FunctionCall
CustomToolCall: id str, type "custom", custom CustomCall
FunctionCall: arguments str, name str
CustomCall: input str, name str
Audio: id str, data str, expires_at int, transcript str
Annotation: type "url_citation", url_citation URLCitation
URLCitation: end_index int, start_index int, title str, url str
Logprobs: content? [TokenLogprob], refusal? [TokenLogprob]
TokenLogprob: token str, bytes [int]?, logprob num, top_logprobs [TopLogprob]
TopLogprob: token str, bytes [int]?, logprob num
ReasoningDetail = ReasoningText | ReasoningSummary | ReasoningEncrypted
ReasoningText: type "reasoning.text", text? str, signature? str, format? str, id? str, index? int
ReasoningSummary: type "reasoning.summary", summary str, signature? str, format? str, id? str, index? int
ReasoningEncrypted: type "reasoning.encrypted", data str, signature? str, format? str, id? str, index? int
Usage: completion_tokens int, prompt_tokens int, total_tokens int, completion_tokens_details? CompletionDetails, prompt_tokens_details? PromptDetails, server_tool_use_details? obj
CompletionDetails: accepted_prediction_tokens? int, audio_tokens? int, reasoning_tokens? int, rejected_prediction_tokens? int, text_tokens? int
PromptDetails: audio_tokens? int, cache_write_tokens? int, cached_tokens? int, image_tokens? int, text_tokens? int
Error: error ErrorObject
ErrorObject: message str, type~ str, param~ str?, code~ str?, misalignment? obj
""")  # noqa: E501 -- each object is one line


class _Call(msgspec.Struct):
    custom: bool
    text: str = ""


class _Choice(msgspec.Struct):
    started: bool = False
    finish: str | None = None
    calls: list[_Call] = []
    call_ids: set[str] = set()


class ChatStream:
    """Checks a stream: call read() with each event, and close() at the end.

    usage_requested: the request has `stream_options.include_usage`; None if that is unknown.
    call_forced: the `tool_choice` of the request names a function.
    """

    def __init__(
        self, report: Report, *, usage_requested: bool | None = None, call_forced: bool = False
    ) -> None:
        self._report = report
        self._usage_requested = usage_requested
        self._call_forced = call_forced
        self._choices: dict[int, _Choice] = {}
        self._identity: tuple[JSON, ...] | None = None
        self._end = ""  # what ended the stream
        self._usage_seen = False

    def read(self, frame: PlacedFrame) -> None:
        """Check one event."""
        report = self._report
        if frame.event is not None:
            report.add("chat-event-line", "an `event:` line")
        if self._end:
            report.add("chat-after-end", f"something follows the {self._end}")
        if frame.data == _DONE:
            self._done()
            return
        chunk = report.read_object()
        if chunk is None:
            return
        if chunk.get("error") is not None and "choices" not in chunk:
            self._end = "error"
            check_error(chunk, report)
            return
        add_mismatches(report, "chat", SHAPES.check("Chunk", chunk))
        self._chunk(chunk)

    def close(self) -> None:
        """Check the end of the stream."""
        if self._end:
            return
        if not self._choices or any(choice.finish is None for choice in self._choices.values()):
            self._report.add("chat-end", "the stream ends without a finish_reason, [DONE] or an error")
            return
        self._report.add("chat-done", "the stream ends without [DONE]")
        self._check_usage()

    def _done(self) -> None:
        if not self._end:
            for index, choice in self._choices.items():
                if choice.finish is None:
                    self._report.add("chat-finish", f"[DONE] before choice {index} has a finish_reason")
            if not self._choices:
                self._report.add("chat-empty", "[DONE] without any choice")
            self._check_usage()
        self._end = _DONE

    def _check_usage(self) -> None:
        if self._usage_requested and not self._usage_seen:
            self._report.add("chat-usage-missing", "the usage that was requested has not come")

    def _chunk(self, chunk: JSONObject) -> None:
        report = self._report
        identity = tuple(chunk.get(name) for name in ("id", "created", "model"))
        if self._identity is None:
            self._identity = identity
            if not identity[0]:
                report.add("chat-identity", "an empty id", "/id")
        elif identity != self._identity:
            report.add("chat-identity", "id, created or model changed within the stream", "/id")
        choices, usage = objects(chunk.get("choices")), chunk.get("usage")
        # OpenAI sends the result of a moderation in its own chunk, also after the usage.
        is_moderation = chunk.get("moderation") is not None and not choices
        if self._usage_seen and not is_moderation:
            report.add("chat-usage-place", "a chunk follows the usage chunk")
        if usage is not None:
            self._usage(members(usage), has_choices=bool(choices))
        elif not choices and not is_moderation:
            report.add("chat-no-choices", "a chunk without choices that is not a usage chunk")
        for number, entry in choices:
            if type(entry.get("index")) is int:
                self._choice(entry["index"], entry, f"/choices/{number}")

    def _usage(self, usage: JSONObject, *, has_choices: bool) -> None:
        self._usage_seen = True
        if self._usage_requested is False:
            self._report.add("chat-usage-requested", "usage that was not requested", "/usage")
        if has_choices:
            self._report.add("chat-usage-choices", "usage in a chunk that has choices", "/usage")
        if any(choice.finish is None for choice in self._choices.values()):
            self._report.add("chat-usage-place", "usage before the end of all choices", "/usage")
        _check_sums(usage, self._report)

    def _choice(self, index: int, entry: JSONObject, place: str) -> None:
        report = self._report
        if index not in self._choices:
            if index != len(self._choices):
                report.add("chat-choice-index", "choice indexes are not contiguous from 0", f"{place}/index")
            self._choices[index] = _Choice()
        choice, delta = self._choices[index], members(entry.get("delta"))
        place_of_delta = f"{place}/delta"
        if choice.finish is not None and delta.keys() - {"audio"}:
            report.add("chat-after-finish", "a delta after finish_reason", place_of_delta)
        self._role(choice, delta, place_of_delta)
        if delta.get("tool_calls") == []:
            report.add("chat-tool-calls", "an empty tool_calls list", f"{place_of_delta}/tool_calls")
        for number, fragment in objects(delta.get("tool_calls")):
            # Without an index, which is a finding of the shape, a fragment is a whole call.
            given = fragment.get("index")
            call = given if type(given) is int else len(choice.calls)
            self._fragment(choice, call, fragment, f"{place_of_delta}/tool_calls/{number}")
        if (finish := string(entry.get("finish_reason"))) != "":
            if choice.finish is not None:
                report.add("chat-finish-again", "a second finish_reason", f"{place}/finish_reason")
            choice.finish = finish
            texts = [None if call.custom else call.text for call in choice.calls]
            _check_finish(finish, texts, f"{place}/finish_reason", report, call_forced=self._call_forced)

    def _role(self, choice: _Choice, delta: JSONObject, place: str) -> None:
        report = self._report
        if choice.started:
            if delta.get("role") is not None:
                report.add("chat-role-again", "role is repeated", f"{place}/role")
            return
        choice.started = True
        if delta.get("role") != "assistant":
            report.add("chat-role", "the first delta has no role assistant", place)
        opening = delta.get("content", "absent")
        if opening != "" and not (opening is None and delta.get("tool_calls")):
            report.add("chat-first-delta", "the first delta's content is not empty", f"{place}/content")
        if delta.get("refusal") is not None:
            report.add("chat-first-delta", "the first delta's refusal is not null", f"{place}/refusal")

    def _fragment(self, choice: _Choice, index: int, fragment: JSONObject, place: str) -> None:
        custom = type(fragment.get("custom")) is dict
        inner = members(fragment.get("custom" if custom else "function"))
        if index == len(choice.calls):
            self._open_call(choice, fragment, inner, place, custom=custom)
        elif 0 <= index < len(choice.calls):
            for name, value in (("id", fragment.get("id")), ("name", inner.get("name"))):
                if value is not None:
                    self._report.add("chat-call-again", f"{name} is repeated", place)
        else:
            detail = "tool call indexes are not contiguous from 0"
            self._report.add("chat-tool-index", detail, f"{place}/index")
            return
        choice.calls[index].text += string(inner.get("input" if custom else "arguments"))

    def _open_call(
        self, choice: _Choice, fragment: JSONObject, inner: JSONObject, place: str, *, custom: bool
    ) -> None:
        report, call_id = self._report, string(fragment.get("id"))
        if not call_id:
            report.add("chat-call-head", "a tool call is opened without an id", place)
        elif call_id in choice.call_ids:
            report.add("chat-call-id", f"the id {call_id[:60]!a} is used twice", f"{place}/id")
        if not inner.get("name"):
            report.add("chat-call-head", "a tool call is opened without a name", place)
        if fragment.get("type") is None:
            report.add("chat-call-head", "a tool call is opened without a type", place)
        choice.call_ids.add(call_id)
        choice.calls.append(_Call(custom))


def check_whole(body: JSONObject, report: Report, *, call_forced: bool = False) -> None:
    """Check a whole response. call_forced: see ChatStream."""
    add_mismatches(report, "chat", SHAPES.check("Completion", body))
    choices = objects(body.get("choices"))
    if not choices:
        report.add("chat-empty", "no choices", "/choices")
    for number, choice in choices:
        place = f"/choices/{number}"
        if choice.get("index") != number:
            report.add("chat-choice-index", "choice indexes are not contiguous from 0", f"{place}/index")
        listed = members(choice.get("message")).get("tool_calls")
        if listed == []:
            report.add("chat-tool-calls", "an empty tool_calls list", f"{place}/message/tool_calls")
        calls = [call for _, call in objects(listed)]
        ids = [string(call.get("id")) for call in calls]
        if not all(ids) or len(set(ids)) != len(ids):
            report.add("chat-call-id", "tool call ids are empty or used twice", f"{place}/message/tool_calls")
        texts = [
            string(members(call.get("function")).get("arguments")) if "function" in call else None
            for call in calls
        ]
        finish = string(choice.get("finish_reason"))
        _check_finish(finish, texts, child(place, "finish_reason"), report, call_forced=call_forced)
    if body.get("usage") is not None:
        _check_sums(members(body["usage"]), report)


def check_error(body: JSONObject, report: Report, protocol: str = "chat") -> None:
    """Check an error, in a stream or as the body of a response. protocol: of the rules; OpenAI's have one form."""
    add_mismatches(report, protocol, SHAPES.check("Error", body))
    if not string(members(body.get("error")).get("message")):
        report.add(f"{protocol}-error-body", "an error without a message", "/error")


def _check_finish(
    finish: str, arguments: list[str | None], place: str, report: Report, *, call_forced: bool
) -> None:
    """Check that a finish_reason fits the calls. arguments: None for a custom call, which is free text."""
    if finish and finish not in _FINISHES:  # opencode asks again without end
        report.add("chat-finish", f"an unknown finish_reason {finish[:40]!a}", place)
    if finish == "stop" and arguments and not call_forced:
        report.add("chat-finish-stop", "finish_reason stop although the turn ends with tool calls", place)
    if finish in _CALLED and not arguments:
        report.add("chat-finish-calls", "finish_reason tool_calls without a tool call", place)
    if finish not in _CUT_SHORT:
        for problem in filter(None, (arguments_problem(text) for text in arguments if text is not None)):
            report.add("chat-arguments", f"a call's arguments are {problem}")


def _check_sums(usage: JSONObject, report: Report) -> None:
    for name, details, part in _USAGE_PARTS:
        if count(members(usage.get(details)).get(part)) > count(usage.get(name)):
            detail = f"{name} is less than its part {part}"
            report.add("chat-usage-sum", detail, f"/usage/{details}/{part}")
    if count(usage.get("total_tokens")) != count(usage.get("prompt_tokens")) + count(
        usage.get("completion_tokens")
    ):
        detail = "total_tokens is not the sum of prompt and completion tokens"
        report.add("chat-usage-sum", detail, "/usage/total_tokens")
