"""Every rule: what to do about a finding, how bad it is, and where the rule stands.

The rules come from the vendors' documents and SDKs; a comment says so where one is stricter. The links were read on
2026-11-22.

The severity follows what happened in real clients when a stream broke the rule (tried in November 2026: Claude Code,
Codex, opencode, aider, the official SDKs for Python and Node with their stream helpers, the AI SDK, LangChain,
pydantic-ai). One of them is enough for an error; where one breach of a rule is harmless and another is not, they are
two rules.
"""

from __future__ import annotations

from enum import Enum

import msgspec

_EVENT_STREAM = "https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation"
_JSON = "https://www.rfc-editor.org/rfc/rfc8259"
_HTTP = "https://www.rfc-editor.org/rfc/rfc9110"
_CHAT = "https://platform.openai.com/docs/api-reference/chat/object"
_CHAT_STREAM = "https://platform.openai.com/docs/api-reference/chat-streaming"
_MESSAGES = "https://platform.claude.com/docs/en/api/messages/create"
_MESSAGES_STREAM = "https://platform.claude.com/docs/en/build-with-claude/streaming"
_MESSAGES_ERRORS = "https://platform.claude.com/docs/en/api/errors"
_RESPONSES = "https://platform.openai.com/docs/api-reference/responses/object"
_RESPONSES_STREAM = "https://platform.openai.com/docs/api-reference/responses-streaming"
_GEMINI = "https://ai.google.dev/api/generate-content"
_GEMINI_SIGNATURES = "https://ai.google.dev/gemini-api/docs/thought-signatures"
_GEMINI_ERRORS = "https://ai.google.dev/gemini-api/docs/troubleshooting"
_OPENAI_ERRORS = "https://platform.openai.com/docs/guides/error-codes"


class RuleSeverity(Enum):
    """How bad a finding is."""

    ERROR = "error"  # a real client fails, hangs, or loses or changes content
    WARNING = "warning"  # it differs from the documents, and clients stand it


class Rule(msgspec.Struct, frozen=True):
    """A rule.

    Attributes:
        id: Its name, with its subject first.
        severity: How bad it is to break it.
        fix: What to do.
        source: A link to where it stands.
    """

    id: str
    severity: RuleSeverity
    fix: str
    source: str


_E, _W = RuleSeverity.ERROR, RuleSeverity.WARNING

# For values of the wrong shape, for each protocol: see Mismatch.kind.
_SHAPES = (
    ("required", _E, "Send the member: typed clients cannot read the object without it."),
    ("tolerated", _W, "Send the member as the documents have it; clients read the object without it."),
    ("nullable", _W, "Send the member as null."),
    ("type", _E, "Send a value of the documented type."),
    ("value", _W, "Send one of the documented values."),
    ("unknown-member", _W, "Leave the member out, or ask your clients' authors whether they ignore it."),
    ("unknown-type", _W, "Send only documented types to clients that did not request others."),
)

_ROWS = (
    (
        _EVENT_STREAM,
        ("sse-empty", _E, "Send at least one event, or an HTTP error."),
        ("sse-utf-8", _E, "Encode the stream as UTF-8, and do not cut characters."),
        ("sse-bom", _E, "Send no byte order mark: clients that do not follow the standard lose the first event."),
        ("sse-line-end", _W, "End lines with a line feed only: many clients split at two line feeds."),
        ("sse-carriage-return", _E, "End no line with a carriage return alone: Codex and opencode find no events."),
        ("sse-end", _E, "Send a blank line after the last event: the standard drops an event without it."),
        ("sse-field", _W, "Send only `event:`, `data:` and comments."),
        ("sse-space", _W, "Write one space after the colon: many clients look for `data: `."),
        ("sse-event-line", _W, "Send one `event:` line, before the `data:` line."),
        ("sse-data", _W, "Send the data in one line: many clients decode each line by itself."),
        ("sse-no-data", _E, "Send data with each event: OpenAI's SDKs parse the empty data as JSON, and fail."),
        ("sse-blank-line", _W, "Send one blank line between events."),
    ),
    (
        _JSON,
        ("json-syntax", _E, "Send one valid JSON text."),
        ("json-duplicate", _E, "Use each name once: clients differ in which value they take."),
        ("json-object", _E, "Send an object."),
    ),
    (
        _HTTP,
        ("http-status", _E, "Return 200 for a response, and 400 to 599 for an error."),
        ("http-content-type", _E, "Return text/event-stream for streams and application/json for everything else."),
        ("http-error", _E, "Reject an invalid request with an error."),
        ("http-stream", _E, "Return a stream if and only if the request has `stream: true`."),
        ("http-broken", _E, "Keep the connection open until the response is complete."),
        ("http-refused", _E, "Accept the request: it has only documented members."),
    ),
    (
        _CHAT_STREAM,
        ("chat-event-line", _W, "Send chunks without an `event:` line."),
        ("chat-after-end", _W, "Send nothing after [DONE], and nothing but [DONE] after an error."),
        ("chat-end", _E, "End the stream after the finish_reason of each choice, or with an error."),
        ("chat-done", _W, "Send `data: [DONE]` last."),
        ("chat-empty", _E, "Send at least one choice."),
        ("chat-finish", _E, "Send a finish_reason for each choice, before [DONE]."),
        ("chat-finish-again", _W, "Send one finish_reason for each choice."),
        ("chat-finish-calls", _E, "Finish with tool_calls only if there are tool calls: agents look at it."),
        # OpenAI itself does so after a call that the request forced.
        ("chat-finish-stop", _W, "Finish with tool_calls after tool calls, unless tool_choice named the function."),
        ("chat-identity", _W, "Send the same id, created and model in each chunk."),
        ("chat-usage-place", _W, "Send usage once, in a last chunk with no choices."),
        ("chat-usage-choices", _W, "Send usage in its own chunk, with no choices."),
        ("chat-usage-requested", _W, "Send usage only if the request has stream_options.include_usage."),
        ("chat-usage-missing", _E, "Send the usage chunk that stream_options.include_usage requests."),
        ("chat-usage-sum", _W, "Send totals that are the sums of their parts."),
        ("chat-no-choices", _W, "Send choices in each chunk but the one with the usage."),
        ("chat-choice-index", _E, "Number the choices from 0, without a gap."),
        ("chat-after-finish", _W, "Send no delta after the finish_reason."),
        ("chat-role", _E, "Send the role assistant in the first delta of each choice: OpenAI's SDK for Node needs it."),
        # `.stream()` of OpenAI's SDK for Python makes a message of it that no server takes in the next request.
        ("chat-role-again", _E, "Send the role once: accumulators join strings that are repeated."),
        ("chat-first-delta", _W, 'Begin each choice with content "" (null before tool calls), and no refusal.'),
        ("chat-tool-index", _E, "Number the tool calls of a choice from 0, without a gap."),
        ("chat-call-head", _E, "Send id, type and name with the first fragment of a tool call."),
        ("chat-call-again", _E, "Send id and name once: accumulators join strings that are repeated."),
        ("chat-call-id", _E, "Give each tool call a unique id."),
        ("chat-tool-calls", _W, "Leave tool_calls out where there are none."),
        ("chat-arguments", _E, "Send arguments that are a JSON object, {} at the least."),
    ),
    (
        _MESSAGES_STREAM,
        ("messages-event-line", _E, "Send `event:` with the type of the data: the vendor's SDK skips other events."),
        ("messages-after-end", _E, "Send nothing after message_stop or an error."),
        ("messages-end", _E, "End the stream with message_stop, or with an error."),
        ("messages-done", _W, "End without [DONE], which belongs to Chat Completions and is not JSON."),
        ("messages-start", _E, "Begin with one message_start."),
        ("messages-start-empty", _W, "Send message_start with an id, empty content and stop_reason null."),
        ("messages-block", _E, "Start each block, fill it, and stop it, before the next one starts."),
        ("messages-block-index", _E, "Number the blocks from 0, without a gap."),
        ("messages-block-empty", _W, "Start a block empty, and send its content as deltas."),
        ("messages-input-start", _E, "Start a tool block with input {}: Claude Code reads the input from its deltas."),
        ("messages-delta", _E, "Send in a block only deltas of the block's kind."),
        ("messages-tool-id", _E, "Give each tool block a name and a unique id."),
        ("messages-signature", _W, "Send one signature for each thinking block, after its text."),
        ("messages-text", _E, "Send no empty text block: the API refuses it when it comes back."),
        ("messages-input", _E, "Send input deltas whose sum is a JSON object, {} at the least."),
        # The vendor sends such blocks, and its SDK reads them as {}; other clients parse the sum of the deltas.
        ("messages-input-empty", _W, "Send {} as the input of a tool without arguments."),
        ("messages-stop-reason", _E, "Send the stop_reason that fits the blocks: agents look at it."),
        ("messages-stop-sequence", _W, "Send stop_sequence if and only if the stop_reason is stop_sequence."),
        ("messages-message-delta", _E, "Send message_delta after all blocks and before message_stop."),
        # The documents have "one or more"; the vendor's server sends one.
        ("messages-message-delta-again", _W, "Send one message_delta: LangChain joins their stop reasons."),
        ("messages-ping", _W, "Send ping with its type only, before the end."),
    ),
    (
        _MESSAGES_ERRORS,
        ("messages-error-type", _W, "Send the error type that belongs to the status."),
        ("messages-error-body", _E, "Send a message for people: clients show nothing else."),
    ),
    (
        _OPENAI_ERRORS,
        ("chat-error-body", _E, "Send `error` with a message for people: clients show nothing else."),
        ("responses-error-body", _E, "Send `error` with a message for people: clients show nothing else."),
    ),
    (
        _RESPONSES_STREAM,
        ("responses-event-line", _W, "Send `event:` with the type of the data."),
        ("responses-done", _W, "End without [DONE], which belongs to Chat Completions."),
        ("responses-sequence", _W, "Number the events from 0 with sequence_number, without a gap."),
        ("responses-after-end", _E, "Send nothing after completed, incomplete or failed."),
        ("responses-after-error", _W, "Send response.failed after an error, and nothing else."),
        ("responses-end", _E, "End the stream with response.completed, incomplete or failed, or with an error."),
        ("responses-start", _E, "Begin with response.created: OpenAI's SDKs fail on another event."),
        ("responses-in-progress", _W, "Send one response.created, then one response.in_progress."),
        ("responses-id", _E, "Send the same id in each snapshot of the response."),
        ("responses-snapshot", _W, "Send no usage before the end, and status in_progress."),
        ("responses-status", _W, "Send the status that fits the event."),
        ("responses-output", _E, "Send no output before the end, then the items of output_item.done, in their order."),
        ("responses-item", _E, "Add each item, fill it, and send it as done, before the next one is added."),
        ("responses-item-id", _E, "Give each item a unique id and each call a unique call_id."),
        ("responses-item-empty", _E, "Add an item empty: clients append the deltas to its content."),
        ("responses-item-added", _W, "Add an item with status in_progress."),
        ("responses-item-changed", _E, "Keep id, type, call_id and name of an item."),
        ("responses-output-index", _E, "Number the items from 0, and name in each event the index of its item."),
        ("responses-part", _E, "Add each part, fill it, and send it as done, before the next one is added."),
        ("responses-part-index", _E, "Number the parts of an item from 0, without a gap."),
        ("responses-part-empty", _W, "Add a part empty, and send its content as deltas."),
        ("responses-sum", _E, "Send in a done event exactly the sum of its deltas."),
        ("responses-text-done", _W, "Send the done event of a text once, before the done event of its part or call."),
        ("responses-annotation", _W, "Number annotations from 0, and repeat them in the done part."),
    ),
    (
        _RESPONSES,
        ("responses-error", _E, "Set error if and only if the status is failed."),
        ("responses-incomplete", _W, "Set incomplete_details if and only if the status is incomplete."),
        ("responses-usage", _E, "Report usage with each response that did not fail: opencode asks again without end."),
        ("responses-usage-sum", _W, "Send totals that are the sums of their parts."),
        ("responses-item-status", _W, "Send items with a final status in a completed response."),
        ("responses-content", _W, "Send no message and no part without content."),
        ("responses-arguments", _E, "Send arguments that are a JSON object, {} at the least."),
        ("responses-nested-error", _W, "Repeat code, message and param in the nested error, if there is one."),
    ),
    (
        # What clients stand was tried on 2026-11-23: google-genai 1.56 to 3.4, @google/genai 1.0 to 3.1, Gemini CLI
        # 0.61, @ai-sdk/google 3.0 and langchain-google-genai 4.4.
        _GEMINI,
        ("gemini-event-line", _E, "Send no `event:` line: the vendor's SDKs drop the event, or fail."),
        ("gemini-comment", _E, "Send `data: {}` as a heartbeat: google-genai and Gemini CLI fail at a comment."),
        ("gemini-done", _E, "End without [DONE]: the vendor's SDKs parse it as JSON, and fail."),
        ("gemini-line-separator", _E, "Escape U+2028, U+2029 and U+0085: google-genai before 3.0 ends a line there."),
        ("gemini-end", _E, "Send a finishReason for each candidate, or an error: a cut is silent otherwise."),
        ("gemini-after-finish", _W, "Send nothing of a candidate after its finishReason."),
        ("gemini-after-error", _E, "Send nothing after an error."),
        ("gemini-empty", _E, "Send a candidate, or the reason why the prompt was blocked."),
        ("gemini-no-candidates", _E, "Leave candidates out if there are none: google-genai 1.56 fails at []."),
        ("gemini-identity", _W, "Send the same responseId and modelVersion in each chunk."),
        ("gemini-call", _E, "Send the name with each call."),
        ("gemini-call-id", _E, "Give each call a unique id: clients find results by it."),
        ("gemini-usage-sum", _W, "Send totals that are the sums of their parts."),
    ),
    (_GEMINI_SIGNATURES, ("gemini-signature", _E, "Send base64: google-genai refuses the whole chunk otherwise.")),
    (
        _GEMINI_ERRORS,
        ("gemini-error-body", _E, "Send `error` with a message for people: clients show nothing else."),
        ("gemini-error-code", _W, "Send the HTTP status as `code`."),
        ("gemini-error-status", _W, "Send the name of the status that belongs to the code."),
    ),
)  # fmt: skip

RULES = {
    rule.id: rule
    for rule in (
        *(Rule(*row, source=source) for source, *rows in _ROWS for row in rows),
        *(
            Rule(f"{protocol}-{kind}", severity, fix, source)
            for protocol, source in (
                ("chat", _CHAT),
                ("messages", _MESSAGES),
                ("responses", _RESPONSES),
                ("gemini", _GEMINI),
            )
            for kind, severity, fix in _SHAPES
        ),
    )
}
