"""Every rule: what to do about a finding, how bad it is, and where the rule stands.

The rules are those of the vendors' documents and SDKs; a comment says so where one is stricter. The links were read on
2026-11-22.
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
_OPENAI_ERRORS = "https://platform.openai.com/docs/guides/error-codes"


class RuleSeverity(Enum):
    """How bad a finding is."""

    ERROR = "error"  # a client breaks, or gets something wrong
    WARNING = "warning"  # it differs from the documents


class Rule(msgspec.Struct, frozen=True):
    """A rule.

    Attributes:
        id: Its name, with its subject first.
        severity: How bad it is to break it.
        mend: What to do.
        source: A link to where it stands.
    """

    id: str
    severity: RuleSeverity
    mend: str
    source: str


_E, _W = RuleSeverity.ERROR, RuleSeverity.WARNING

# Of values that have not their shape, for each protocol: see Mismatch.kind.
_SHAPES = (
    ("required", _E, "Send the member: typed clients cannot read the object without it."),
    ("recent", _W, "Send the member: it is required since less than a year."),
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
        ("sse-bom", _W, "Send no byte order mark: clients that do not follow the standard skip the first event."),
        ("sse-line-end", _W, "End lines with a line feed only: many clients split at two line feeds."),
        ("sse-end", _E, "Send a blank line after the last event: the standard drops an event without it."),
        ("sse-field", _W, "Send only `event:`, `data:` and comments."),
        ("sse-space", _W, "Write one space after the colon: many clients look for `data: `."),
        ("sse-event-line", _W, "Send one `event:` line, before the `data:` line."),
        ("sse-data", _W, "Send the data in one line: many clients decode each line by itself."),
        ("sse-no-data", _W, "Send data with each event: the standard drops one without."),
        ("sse-blank-line", _W, "Send one blank line between events."),
    ),
    (
        _JSON,
        ("json-syntax", _E, "Send one valid JSON text."),
        ("json-duplicate", _E, "Give each name once: clients differ in which value they take."),
        ("json-object", _E, "Send an object."),
    ),
    (
        _HTTP,
        ("http-status", _E, "Return 200 for a response, and 400 to 599 for an error."),
        ("http-content-type", _E, "Return text/event-stream for streams and application/json for everything else."),
        ("http-error", _E, "Answer a wrong request with an error."),
        ("http-stream", _E, "Return a stream if and only if the request has `stream: true`."),
        ("http-broken", _E, "Keep the connection open until the response is complete."),
        ("http-refused", _E, "Accept the request: it has only documented members."),
    ),
    (
        _CHAT_STREAM,
        ("chat-event-line", _W, "Send chunks without an `event:` line."),
        ("chat-after-end", _W, "Send nothing after [DONE], and nothing but [DONE] after an error."),
        ("chat-end", _E, "End the stream with `data: [DONE]`, or with an error."),
        ("chat-empty", _E, "Send at least one choice."),
        ("chat-finish", _E, "Send one finish_reason for each choice, before [DONE]."),
        ("chat-finish-calls", _E, "Finish with tool_calls if and only if there are tool calls: agents look at it."),
        ("chat-identity", _W, "Send the same id, created and model in each chunk."),
        ("chat-usage-place", _E, "Send usage once, in a last chunk with no choices."),
        ("chat-usage-choices", _W, "Send usage in a chunk of its own, with no choices."),
        ("chat-usage-requested", _W, "Send usage only if the request has stream_options.include_usage."),
        ("chat-usage-missing", _E, "Send the usage chunk that stream_options.include_usage requests."),
        ("chat-usage-sum", _W, "Send totals that are the sums of their parts."),
        ("chat-no-choices", _W, "Send choices in each chunk but that of the usage."),
        ("chat-choice-index", _E, "Number the choices from 0, without a gap."),
        ("chat-after-finish", _E, "Send no delta after the finish_reason."),
        ("chat-role", _W, "Send the role assistant in the first delta of each choice."),
        ("chat-role-again", _E, "Send the role once: accumulators join strings that are repeated."),
        ("chat-first-delta", _W, 'Begin each choice with content "" (null before tool calls), and no refusal.'),
        ("chat-tool-index", _E, "Number the tool calls of a choice from 0, without a gap."),
        ("chat-call-head", _E, "Send id, type and name with the first fragment of a tool call."),
        ("chat-call-again", _E, "Send id and name once: accumulators join strings that are repeated."),
        ("chat-call-id", _E, "Give each tool call an id of its own."),
        ("chat-tool-calls", _W, "Leave tool_calls out where there are none."),
        ("chat-arguments", _E, "Send arguments that are a JSON object, {} at the least."),
    ),
    (
        _MESSAGES_STREAM,
        ("messages-event-line", _E, "Send `event:` with the type of the data: the vendor's SDK skips other events."),
        ("messages-after-end", _E, "Send nothing after message_stop or an error."),
        ("messages-end", _E, "End the stream with message_stop, or with an error."),
        ("messages-done", _E, "End without [DONE], which belongs to Chat Completions and is not JSON."),
        ("messages-start", _E, "Begin with one message_start."),
        ("messages-start-empty", _W, "Send message_start with an id, empty content and stop_reason null."),
        ("messages-block", _E, "Start each block, fill it, and stop it, before the next one starts."),
        ("messages-block-index", _E, "Number the blocks from 0, without a gap."),
        ("messages-block-empty", _W, "Start a block empty, and send its content as deltas."),
        ("messages-delta", _E, "Send in a block only deltas of its own kind."),
        ("messages-tool-id", _E, "Give each tool block a name, and an id of its own."),
        ("messages-signature", _E, "Send one signature for each thinking block, after its text."),
        ("messages-text", _E, "Send no empty text block: the API refuses it when it comes back."),
        ("messages-input", _E, "Send input deltas whose sum is a JSON object, {} at the least."),
        # The vendor sends such blocks, and its SDK reads them as {}; other clients parse the sum of the deltas.
        ("messages-input-empty", _W, "Send {} as the input of a tool without arguments."),
        ("messages-stop-reason", _E, "Send the stop_reason that fits the blocks: agents look at it."),
        ("messages-stop-sequence", _W, "Send stop_sequence if and only if the stop_reason is stop_sequence."),
        ("messages-message-delta", _E, "Send one message_delta, after all blocks and before message_stop."),
        ("messages-ping", _W, "Send ping with its type only, before the end."),
    ),
    (
        _MESSAGES_ERRORS,
        ("messages-error-type", _E, "Send the error type that belongs to the status."),
        ("messages-error-body", _E, "Send a message for people."),
    ),
    (
        _OPENAI_ERRORS,
        ("chat-error-body", _E, "Send `error` with message, type, param and code, and nothing beside it."),
        ("responses-error-body", _E, "Send `error` with message, type, param and code, and nothing beside it."),
    ),
    (
        _RESPONSES_STREAM,
        ("responses-event-line", _W, "Send `event:` with the type of the data."),
        ("responses-done", _W, "End without [DONE], which belongs to Chat Completions."),
        ("responses-sequence", _W, "Number the events from 0 with sequence_number, without a gap."),
        ("responses-after-end", _E, "Send nothing after completed, incomplete or failed."),
        ("responses-after-error", _W, "Send response.failed after an error, and nothing else."),
        ("responses-end", _E, "End the stream with response.completed, response.incomplete or response.failed."),
        ("responses-start", _E, "Begin with one response.created and one response.in_progress."),
        ("responses-id", _E, "Send the same id in each snapshot of the response."),
        ("responses-snapshot", _W, "Send no output and no usage before the end, and status in_progress."),
        ("responses-status", _W, "Send the status that fits the event."),
        ("responses-output", _E, "Repeat in the final output the items of output_item.done, in their order."),
        ("responses-item", _E, "Add each item, fill it, and send it as done, before the next one is added."),
        ("responses-item-id", _E, "Give each item an id and each call a call_id of its own."),
        ("responses-item-empty", _W, "Add an item empty and in_progress, and send its content as deltas."),
        ("responses-item-changed", _E, "Keep id, type, call_id and name of an item."),
        ("responses-output-index", _E, "Number the items from 0, and name in each event the index of its item."),
        ("responses-part", _E, "Add each part, fill it, and send it as done, before the next one is added."),
        ("responses-part-index", _E, "Number the parts of an item from 0, without a gap."),
        ("responses-part-empty", _W, "Add a part empty, and send its content as deltas."),
        ("responses-sum", _E, "Send in a done event exactly the sum of its deltas."),
        ("responses-text-done", _W, "Send the done event of a text once, before that of its part or call."),
        ("responses-annotation", _W, "Number annotations from 0, and repeat them in the done part."),
    ),
    (
        _RESPONSES,
        ("responses-error", _W, "Set error if and only if the status is failed."),
        ("responses-incomplete", _W, "Set incomplete_details if and only if the status is incomplete."),
        ("responses-usage", _W, "Report usage with each response that did not fail."),
        ("responses-usage-sum", _W, "Send totals that are the sums of their parts."),
        ("responses-item-status", _W, "Send items with a final status in a completed response."),
        ("responses-content", _W, "Send no message and no part without content."),
        ("responses-arguments", _E, "Send arguments that are a JSON object, {} at the least."),
        ("responses-nested-error", _W, "Repeat code, message and param in the nested error, if there is one."),
    ),
)  # fmt: skip

RULES = {
    rule.id: rule
    for rule in (
        *(Rule(*row, source=source) for source, *rows in _ROWS for row in rows),
        *(
            Rule(f"{protocol}-{kind}", severity, mend, source)
            for protocol, source in (("chat", _CHAT), ("messages", _MESSAGES), ("responses", _RESPONSES))
            for kind, severity, mend in _SHAPES
        ),
    )
}
