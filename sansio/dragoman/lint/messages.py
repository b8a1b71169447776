"""Anthropic Messages: the shapes of its documents, and the order of a stream.

Clients keep one current block, so blocks come one after the other; message_delta has the stop reason and the usage, and
message_stop is last. An error may end the stream anywhere.
"""

from __future__ import annotations

import msgspec

from dragoman._wire.json import JSON, JSONObject
from dragoman.lint.framing import PlacedFrame
from dragoman.lint.report import (
    LintFinding,
    Report,
    add_mismatches,
    arguments_problem,
    members,
    objects,
    string,
)
from dragoman.lint.shapes import Shapes

# Which deltas a block may get; a block that is not listed comes whole in its start event.
_DELTAS = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
    "server_tool_use": ("input_json_delta",),
    "mcp_tool_use": ("input_json_delta",),
    "compaction": ("compaction_delta",),
}
_TOOLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# A turn that ended so may have been cut inside its last tool input.
_CUT_SHORT = ("max_tokens", "model_context_window_exceeded", "refusal", "pause_turn")
_STOPS = (*_CUT_SHORT, "end_turn", "stop_sequence", "tool_use", "compaction")

# The error types that a status may have.
_ERROR_TYPES = {
    400: ("invalid_request_error",),
    401: ("authentication_error",),
    402: ("billing_error",),
    403: ("permission_error",),
    404: ("not_found_error",),
    409: ("conflict_error", "memory_path_conflict_error"),
    412: ("memory_precondition_failed_error",),
    413: ("request_too_large",),
    422: ("invalid_request_error",),
    429: ("rate_limit_error",),
    500: ("api_error",),
    502: ("api_error",),
    503: ("api_error", "overloaded_error"),
    504: ("timeout_error",),
    529: ("overloaded_error",),
}

# What only the beta surface has is here too: a client gets it only with a beta header.
SHAPES = Shapes("""
Event = MessageStart | MessageDelta | MessageStop | BlockStart | BlockDelta | BlockStop | Ping
MessageStart: type "message_start", message Message
MessageDelta: type "message_delta", delta EndDelta, usage DeltaUsage, context_management? ContextManagement
MessageStop: type "message_stop"
BlockStart: type "content_block_start", index int, content_block Block
BlockDelta: type "content_block_delta", index int, delta Delta
BlockStop: type "content_block_stop", index int
Ping: type "ping"
EndDelta: container Container?, stop_details StopDetails?, stop_reason "end_turn" "max_tokens" "stop_sequence" "tool_use" "pause_turn" "refusal" "model_context_window_exceeded" "compaction"?, stop_sequence str?
DeltaUsage: cache_creation_input_tokens int?, cache_read_input_tokens int?, input_tokens int?, output_tokens int, output_tokens_details? OutputDetails, server_tool_use? ServerToolUsage, iterations? [obj], fallback_credit? obj
Message: id str, type "message", role~ "assistant", container Container?, content [Block], diagnostics obj?, model~ str, stop_details StopDetails?, stop_reason "end_turn" "max_tokens" "stop_sequence" "tool_use" "pause_turn" "refusal" "model_context_window_exceeded" "compaction"?, stop_sequence str?, usage Usage, context_management? ContextManagement, input_transformations? [obj]
ContextManagement: applied_edits [obj]
Container: id str, expires_at str, skills? [obj]
StopDetails: type "refusal", category "cyber" "bio" "frontier_llm" "reasoning_extraction" "general_harms"?, explanation str?, fallback_credit_token? str, fallback_has_prefill_claim? bool, recommended_model? str
Usage: cache_creation CacheCreation?, cache_creation_input_tokens int?, cache_read_input_tokens int?, inference_geo str?, input_tokens int, output_tokens int, output_tokens_details? OutputDetails, server_tool_use? ServerToolUsage, service_tier? "standard" "priority" "batch", speed? "standard" "fast", iterations? [obj], fallback_credit? obj
CacheCreation: ephemeral_1h_input_tokens~ int, ephemeral_5m_input_tokens~ int
ServerToolUsage: web_fetch_requests~ int, web_search_requests~ int
OutputDetails: thinking_tokens~ int
Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ServerToolUseBlock | MCPToolUseBlock | SearchResultBlock | ServerResultBlock | MCPResultBlock | ContainerUploadBlock | CompactionBlock | FallbackBlock | MCPListingBlock
TextBlock: type "text", citations? [Citation], text str
ThinkingBlock: type "thinking", signature~ str, thinking str
RedactedThinkingBlock: type "redacted_thinking", data str
ToolUseBlock: type "tool_use", id str, caller Caller?, input obj, name str, toolset_name? str
ServerToolUseBlock: type "server_tool_use", id str, caller Caller?, input obj, name "web_search" "web_fetch" "code_execution" "bash_code_execution" "text_editor_code_execution" "tool_search_tool_regex" "tool_search_tool_bm25" "advisor"
MCPToolUseBlock: type "mcp_tool_use", id str, input obj, name str, server_name str
SearchResultBlock: type "web_search_tool_result" "web_fetch_tool_result", caller Caller?, content obj | [SearchResult], tool_use_id str
SearchResult: type "web_search_result", encrypted_content str, page_age str?, title str, url str
ServerResultBlock: type "code_execution_tool_result" "bash_code_execution_tool_result" "text_editor_code_execution_tool_result" "tool_search_tool_result" "advisor_tool_result", content obj, tool_use_id str
MCPResultBlock: type "mcp_tool_result", content str | [TextBlock], is_error bool, tool_use_id str
ContainerUploadBlock: type "container_upload", file_id str
CompactionBlock: type "compaction", content str?, encrypted_content str?, signature? str, tool_changes? [obj]
FallbackBlock: type "fallback", from obj, to obj, trigger obj
MCPListingBlock: type "mcp_tool_listing", mcp_server_name str, tools [obj]
Caller: type "direct" "code_execution_20250825" "code_execution_20260120", tool_id? str
Delta = TextDelta | InputDelta | CitationsDelta | ThinkingDelta | SignatureDelta | CompactionDelta
TextDelta: type "text_delta", text str
InputDelta: type "input_json_delta", partial_json str
CitationsDelta: type "citations_delta", citation Citation
ThinkingDelta: type "thinking_delta", thinking str, estimated_tokens? int
SignatureDelta: type "signature_delta", signature str
CompactionDelta: type "compaction_delta", content str?, encrypted_content str?
Citation = CharLocation | PageLocation | BlockLocation | WebSearchLocation | SearchResultLocation
CharLocation: type "char_location", cited_text str, document_index int, document_title str?, end_char_index int, file_id str?, start_char_index int
PageLocation: type "page_location", cited_text str, document_index int, document_title str?, end_page_number int, file_id str?, start_page_number int
BlockLocation: type "content_block_location", cited_text str, document_index int, document_title str?, end_block_index int, file_id str?, start_block_index int
WebSearchLocation: type "web_search_result_location", cited_text str, encrypted_index str, title str?, url str
SearchResultLocation: type "search_result_location", cited_text str, end_block_index int, search_result_index int, source str, start_block_index int, title str?
Error: type "error", error ErrorObject, request_id? str
ErrorObject: type "invalid_request_error" "authentication_error" "billing_error" "permission_error" "not_found_error" "rate_limit_error" "timeout_error" "api_error" "overloaded_error" "request_too_large" "conflict_error" "memory_path_conflict_error" "memory_precondition_failed_error", message str, details? obj
""")  # noqa: E501 -- each object is one line


class _Block(msgspec.Struct):
    kind: str
    start: JSONObject
    text: str = ""
    signed: bool = False

    @property
    def comes_whole(self) -> bool:
        """Its input is in its start: so do calls that code made."""
        return bool(self.start.get("input")) and not self.text


class MessagesStream:
    """Checks a stream: call read() with each event, and close() at the end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._phase = "before"  # before, open, stopped, ended
        self._blocks: list[_Block] = []
        self._open = False  # the last block is
        self._tool_ids: set[str] = set()
        self._cut: list[LintFinding] = []  # of the last tool input: only a turn that was cut excuses them
        self._stop: list[
            LintFinding
        ] = []  # of the last message_delta: it has the stop reason that clients keep
        self._steps = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def read(self, frame: PlacedFrame) -> None:
        """Check one event."""
        report = self._report
        if frame.data == "[DONE]":
            report.add("messages-done", "[DONE] does not belong here")
            return
        event = report.read_object()
        if event is None:
            return
        kind = string(event.get("type"))
        if frame.event is None:
            report.add("messages-event-line", "no `event:` line")
        elif frame.event != kind:
            detail = f"`event: {frame.event[:40]}` is not the data's type"
            report.add("messages-event-line", detail, "/type")
        if kind == "error":
            check_error(event, report)
        elif kind == "ping" and event.keys() != {"type"}:
            report.add("messages-ping", "a ping with other members")
        else:
            add_mismatches(report, "messages", SHAPES.check("Event", event))
        if self._phase == "ended":
            # Clients that have seen the end ignore a ping, but take everything else for a new message.
            report.add(
                "messages-ping" if kind == "ping" else "messages-after-end",
                "something follows the end of the stream",
            )
        elif kind == "error":
            self._phase = "ended"
        elif kind in self._steps:
            self._steps[kind](event)

    def close(self) -> None:
        """Check the end of the stream."""
        if self._phase != "ended":
            self._report.add("messages-end", "the stream ends with neither message_stop nor an error")

    def _message_start(self, event: JSONObject) -> None:
        report, message = self._report, members(event.get("message"))
        if self._phase != "before":
            report.add("messages-start", "a second message_start")
        self._phase = "open"
        if message.get("content"):
            report.add("messages-start-empty", "content is not empty", "/message/content")
        if message.get("stop_reason") is not None:
            report.add("messages-start-empty", "stop_reason is already set", "/message/stop_reason")
        if not message.get("id"):
            report.add("messages-start-empty", "an empty id", "/message/id")

    def _block_start(self, event: JSONObject) -> None:
        report, start = self._report, members(event.get("content_block"))
        self._check_place()
        if self._open:
            report.add("messages-block", "the block before is still open")
        if event.get("index") != len(self._blocks):
            report.add("messages-block-index", "block indexes are not contiguous from 0", "/index")
        block = _Block(string(start.get("type")), start)
        self._blocks.append(block)
        self._open = True
        for name in ("text", "thinking", "signature"):
            if start.get(name):
                detail = f"a {block.kind[:40]} block does not start empty"
                report.add("messages-block-empty", detail, f"/content_block/{name}")
        if block.kind in _TOOLS:
            self._check_tool(start)

    def _check_tool(self, start: JSONObject) -> None:
        report = self._report
        caller = members(start.get("caller")).get("type", "direct")
        # Calls made by code come whole; clients read a direct call's input only from its deltas.
        if start.get("input") and caller == "direct":
            detail = "a tool block does not start with input {}"
            report.add("messages-input-start", detail, "/content_block/input")
        if not start.get("id") or not start.get("name"):
            report.add("messages-tool-id", "a tool block without id or name", "/content_block")
        tool_id = string(start.get("id"))
        if tool_id in self._tool_ids:
            report.add("messages-tool-id", "a tool id is used twice", "/content_block/id")
        self._tool_ids.add(tool_id)

    def _current(self, event: JSONObject) -> _Block | None:
        """Return the open block if the event is about it."""
        self._check_place()
        if self._open and event.get("index") == len(self._blocks) - 1:
            return self._blocks[-1]
        self._report.add("messages-block", "no such block is open", "/index")
        return None

    def _block_delta(self, event: JSONObject) -> None:
        block, delta = self._current(event), members(event.get("delta"))
        if block is None:
            return
        report, kind = self._report, string(delta.get("type"))
        if kind not in _DELTAS.get(block.kind, ()):
            report.add("messages-delta", f"{kind[:40]} in a {block.kind[:40]} block", "/delta/type")
        if block.signed:
            report.add("messages-signature", "a delta after the signature")
        if kind == "signature_delta":
            block.signed = True
            if not delta.get("signature"):
                report.add("messages-signature", "an empty signature", "/delta/signature")
        block.text += string(delta.get("text") or delta.get("partial_json") or delta.get("thinking"))

    def _block_stop(self, event: JSONObject) -> None:
        block = self._current(event)
        if block is None:
            return
        self._open = False
        if block.kind == "text" and not block.text:
            self._report.add("messages-text", "a text block without text")
        if block.kind == "thinking" and not block.signed:
            self._report.add("messages-signature", "a thinking block without a signature")
        if block.kind in _TOOLS and not block.comes_whole:
            self._report.again(self._cut)  # only the last block of a turn can be the one that was cut
            self._cut = self._report.held(lambda report: _check_input(block.text, report))

    def _message_delta(self, event: JSONObject) -> None:
        report, delta = self._report, members(event.get("delta"))
        if self._phase == "stopped":
            report.add("messages-message-delta-again", "a second message_delta")
        else:
            self._check_place()
        reason = delta.get("stop_reason")
        self._phase = "stopped"
        if self._open and not (self._blocks[-1].kind in _TOOLS and reason in _CUT_SHORT):
            report.add("messages-block", "a block is still open")
        if reason not in _CUT_SHORT:
            report.again(self._cut)
        kinds = [block.kind for block in self._blocks]
        sequence = delta.get("stop_sequence")
        self._stop = report.held(lambda held: _check_stop(reason, sequence, kinds, "/delta", held))

    def _message_stop(self, event: JSONObject) -> None:
        if self._phase != "stopped":
            self._report.add("messages-message-delta", "no message_delta came before")
        self._report.again(self._stop)
        self._phase = "ended"

    def _check_place(self) -> None:
        if self._phase == "before":
            self._report.add("messages-start", "message_start has not come yet")
        elif self._phase == "stopped":
            self._report.add("messages-message-delta", "the message_delta has already come")


def check_whole(body: JSONObject, report: Report) -> None:
    """Check a whole response."""
    add_mismatches(report, "messages", SHAPES.check("Message", body))
    blocks = objects(body.get("content"))
    kinds = [string(block.get("type")) for _, block in blocks]
    _check_stop(body.get("stop_reason"), body.get("stop_sequence"), kinds, "", report)
    ids = [string(block.get("id")) for _, block in blocks if block.get("type") in _TOOLS]
    if not all(ids) or len(set(ids)) != len(ids):
        report.add("messages-tool-id", "tool ids are empty or used twice", "/content")
    for number, block in blocks:
        if block.get("type") == "text" and not block.get("text"):
            report.add("messages-text", "a text block without text", f"/content/{number}")
        if block.get("type") == "thinking" and not block.get("signature"):
            report.add("messages-signature", "an empty signature", f"/content/{number}")


def check_error(body: JSONObject, report: Report, status: int | None = None) -> None:
    """Check an error, in a stream or as the body of a response with a status."""
    add_mismatches(report, "messages", SHAPES.check("Error", body))
    error = members(body.get("error"))
    if not string(error.get("message")):
        report.add("messages-error-body", "an error without a message", "/error")
    kind, allowed = string(error.get("type")), _ERROR_TYPES.get(status or 0)
    if allowed is not None and kind not in allowed:
        detail = f"{kind[:60]!a} with status {status}, expected {' or '.join(allowed)}"
        report.add("messages-error-type", detail, "/error/type")


def _check_input(text: str, report: Report) -> None:
    """Check that the sum of a tool's input deltas is one JSON object."""
    if not text:
        report.add("messages-input-empty", "a tool block without input")
        return
    if problem := arguments_problem(text):
        report.add("messages-input", f"the sum of the input deltas is {problem}")


def _check_stop(reason: JSON, sequence: JSON, kinds: list[str], place: str, report: Report) -> None:
    """Check that a stop reason fits the blocks. place: of the object that has it."""
    if reason is None:
        report.add("messages-stop-reason", "no stop_reason", place)
    elif reason not in _STOPS:  # opencode asks again without end
        report.add(
            "messages-stop-reason", f"an unknown stop_reason {string(reason)[:40]!a}", f"{place}/stop_reason"
        )
    if "tool_use" in kinds and reason in ("end_turn", "stop_sequence"):
        detail = f"stop_reason {reason} although the turn ends with tool calls"
        report.add("messages-stop-reason", detail, f"{place}/stop_reason")
    if reason == "tool_use" and "tool_use" not in kinds:
        report.add("messages-stop-reason", "tool_use without a tool call", f"{place}/stop_reason")
    if (reason == "stop_sequence") != (sequence is not None):
        detail = "stop_sequence is set if and only if it is the stop_reason"
        report.add("messages-stop-sequence", detail, f"{place}/stop_sequence")
