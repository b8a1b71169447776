"""`dragoman.lint` over the recordings: an error is something that a real client fails on, and nothing else is one.

Each stream was also put to the official SDKs with their stream helpers, the AI SDK, LangChain and pydantic-ai; the
reasons say what they did. A row is for one recording, or for all that break a rule in the same way.
"""

# ruff: noqa: E501 -- the tables are read by row

import corpus
import pytest

from dragoman import lint

CUT = "the stream was cut on purpose"
SEVERAL = "several responses in one file: OpenAI's and Anthropic's SDKs fail at the second one"
HAND_MADE = "made by hand: empty ids, a text without its part, no final output; OpenAI's SDKs fail"

# Of streams: recording, or "" for all; rules; reason.
STREAMS = (
    ("", "chat-role-again", "the stream helper of OpenAI's SDK for Python joins the roles to `assistantassistant`, which the next request sends"),
    ("chat/reasoning_content_04", "chat-role", "no delta has a role: the stream helper of OpenAI's SDK for Node fails"),
    ("chat/reasoning_field_02", "chat-role", "no delta has a role: the stream helper of OpenAI's SDK for Node fails"),
    ("chat/logprobs_reasoning_details_no_finish_reason_01", "chat-finish", "finish_reason is missing: OpenAI's SDK for Node and the AI SDK fail"),
    ("chat/tool_no_args_tool_call_no_finish_reason_01", "chat-finish", "finish_reason is missing: OpenAI's SDK for Node and the AI SDK fail"),
    ("chat/tool_no_args_tool_call_01", "chat-arguments", "arguments are null: OpenAI's SDKs give the caller null or an empty text, which is no JSON"),
    ("chat/tool_no_index_tool_call_02", "chat-required chat-call-head", "a call without index and type: OpenAI's SDKs and the AI SDK fail or lose it"),
    ("chat/content_list_01", "chat-type", "content is a list: OpenAI's SDK for Node writes [object Object], the AI SDK fails"),
    ("chat/derived_eof_midline_01", "chat-end json-syntax sse-end", CUT),
    ("chat/derived_eof_midtool_01", "chat-end", CUT),
    ("messages/derived_eof_midtool_01", "messages-end", CUT),
    ("messages/duplicate_message_start_01", "messages-start", "message_start comes twice: Anthropic's SDK for Node fails"),
    ("messages/duplicate_message_start_code_execution_container_tool_no_args_01", "messages-after-end", SEVERAL),
    ("messages/duplicate_message_start_toolsearch_regex_parallel_tools_tool_use_01", "messages-after-end", SEVERAL),
    ("messages/fallback_01", "sse-end", "the file lost its last line: Anthropic's SDK for Node does not see message_stop, and fails"),
    ("messages/tool_use_max_tokens_02", "sse-end", "the file lost its last lines: Anthropic's SDK for Node does not see message_stop, and fails"),
    ("gemini/derived_cut_midline_01", "gemini-end json-syntax sse-end", CUT),
    ("gemini/derived_eof_no_finish_01", "gemini-end", CUT),
    ("gemini/derived_error_raw_01", "gemini-end sse-end", "the error is no event: the vendor's SDKs do not see it"),
    ("responses/derived_eof_midtext_01", "responses-end", CUT),
    ("responses/derived_eof_midtool_01", "responses-end", CUT),
    ("responses/encrypted_content_reasoning_summary_parallel_tools_function_call_01", "responses-after-end", SEVERAL),
    ("responses/function_call_02", "responses-id responses-item-id responses-part responses-sum responses-output", HAND_MADE),
    ("responses/image_generation_call_reasoning_01", "responses-output", "the image in output_item.done was shortened to one character: pydantic-ai fails on it"),
)  # fmt: skip
# Of error responses: the host, rules, reason.
ERRORS = (
    ("api.mistral.ai", "chat-required chat-error-body", "no `error`: OpenAI's SDKs and the AI SDK show no message"),
    ("api.x.ai", "responses-type responses-error-body", "`error` is a text: OpenAI's SDK for Python and the AI SDK show no message"),
)  # fmt: skip

OFFICIAL = [each for each in corpus.recordings() if each.official and each.name not in corpus.EDITED]


def errors_of(report: lint.Report) -> set[str]:
    return {each.rule.id for each in report.findings if each.rule.severity is lint.RuleSeverity.ERROR}


def usage_requested(recording: corpus.Recording) -> bool | None:
    if recording.request is None:
        return None
    return bool((recording.request.get("stream_options") or {}).get("include_usage"))


def stream_errors() -> dict[str, set[str]]:
    found = {}
    for each in corpus.recordings():
        report = lint.check_stream(each.protocol, each.read(), usage_requested=usage_requested(each))
        found[each.name] = errors_of(report)
    return {name: rules for name, rules in found.items() if rules}


@pytest.mark.parametrize("recording", OFFICIAL, ids=lambda each: each.name)
def test_official_recordings_have_no_error(recording: corpus.Recording) -> None:
    requested = usage_requested(recording)
    report = lint.check_stream(recording.protocol, recording.read(), usage_requested=requested)
    assert errors_of(report) == set()


def test_each_other_error_is_one_that_clients_fail_on() -> None:
    """The table is complete, and has nothing that is not found."""
    everywhere = {rule for name, rules, _ in STREAMS if not name for rule in rules.split()}
    found = stream_errors()
    assert everywhere <= set().union(*found.values())
    named = {name: set(rules.split()) for name, rules, _ in STREAMS if name}
    assert {name: rules - everywhere for name, rules in found.items() if rules - everywhere} == named


def test_error_responses_have_an_error_where_clients_lose_the_message() -> None:
    found: dict[str, set[str]] = {}
    for each in corpus.errors():
        if rules := errors_of(lint.check_error(each.protocol, each.status, each.body)):
            found.setdefault(each.name.split("-", 1)[1].removesuffix(f"-{each.status}"), set()).update(rules)
    assert found == {host: set(rules.split()) for host, rules, _ in ERRORS}
