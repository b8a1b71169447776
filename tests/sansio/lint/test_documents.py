"""Whole responses and errors: what is no finding, and places in the text. Rules have rows in the text files."""

# ruff: noqa: E501 -- the tables are read by row

import copy
import json
from typing import Any

import pytest
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s
from oracle.changes import GEMINI_ERROR, put

from dragoman import lint
from dragoman.lint import report


def rules_of(report: lint.Report) -> set[str]:
    return {each.rule.id for each in report.findings}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_responses_have_no_findings(protocol: str) -> None:
    assert lint.check_whole(protocol, json.dumps(s.WHOLE[protocol]).encode()).findings == []


CUSTOM_CALL = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}


def test_the_input_of_a_custom_call_is_free_text() -> None:
    payloads = [copy.deepcopy(s.WHOLE[CHAT])]
    put(0, "choices.0.message.tool_calls", [CUSTOM_CALL])(payloads)
    assert lint.check_whole(CHAT, json.dumps(payloads[0]).encode()).findings == []


def test_usage_may_be_absent_in_chat() -> None:
    body = {name: value for name, value in s.WHOLE[CHAT].items() if name != "usage"}
    assert lint.check_whole(CHAT, json.dumps(body).encode()).findings == []


OPENAI_ERROR = {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}}
MESSAGES_ERROR = {
    "type": "error",
    "error": {"type": "rate_limit_error", "message": "later"},
    "request_id": None,
}


@pytest.mark.parametrize(
    ("protocol", "status", "body", "rules"),
    [
        (CHAT, 500, OPENAI_ERROR, set()),
        (RESPONSES, 404, OPENAI_ERROR, set()),
        (MESSAGES, 429, MESSAGES_ERROR, set()),
        (MESSAGES, 418, MESSAGES_ERROR, set()),
        (CHAT, 200, OPENAI_ERROR, {"http-status"}),
        (CHAT, 400, {"error": "gone"}, {"chat-type", "chat-error-body"}),
        (RESPONSES, 400, {"error": {**OPENAI_ERROR["error"], "message": ""}}, {"responses-error-body"}),
        (RESPONSES, 400, {**OPENAI_ERROR, "detail": "x"}, {"responses-unknown-member"}),
        (MESSAGES, 500, MESSAGES_ERROR, {"messages-error-type"}),
        (MESSAGES, 500, {"type": "error"}, {"messages-required", "messages-error-body", "messages-error-type"}),
        (MESSAGES, 400, OPENAI_ERROR, {"messages-required", "messages-unknown-member", "messages-value", "messages-error-type"}),
        (GEMINI, 503, GEMINI_ERROR, set()),
        (GEMINI, 500, GEMINI_ERROR, {"gemini-error-code"}),
        (GEMINI, 503, {"error": {**GEMINI_ERROR["error"], "status": "INTERNAL"}}, {"gemini-error-status"}),
        (GEMINI, 418, {"error": {**GEMINI_ERROR["error"], "code": 418}}, set()),
        (CHAT, 502, b"<html>", {"json-syntax"}),
        (CHAT, 502, b"\xff", {"json-syntax"}),
        (CHAT, 502, b"[]", {"json-object"}),
    ],
)  # fmt: skip
def test_errors(protocol: str, status: int, body: Any, rules: set[str]) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert rules_of(lint.check_error(protocol, status, data)) == rules


def test_what_is_no_object_is_no_response() -> None:
    assert rules_of(lint.check_whole(CHAT, b"[]")) == {"json-object"}


@pytest.mark.parametrize(
    ("text", "pointer", "rest"),
    [
        ('{"a": [1, {"b/c": "x"}], "d": 2}', "/a/1/b~1c", '"x"'),
        ('{"a": [1, {"b": "x"}], "d": 2}', "/d", "2"),
        (' {"a": {}}', "", '{"a"'),
        ('{"a": {}, "b": 1}', "/a/x", '{}, "b"'),
        ('{"a": "text"}', "/a/0", '"text"'),
        ('{"a": [5, 6]}', "/a/7", "[5, 6]"),
        ('{"\u00e4": "\u00e4\u00e4", "b": 1}', "/b", "1}"),
        ("", "", ""),
    ],
)
def test_a_pointer_has_an_offset_in_bytes(text: str, pointer: str, rest: str) -> None:
    assert text.encode()[lint.byte_offset(text, pointer) :].decode().startswith(rest)


def test_the_search_for_bytes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SCAN_BUDGET", 1)
    findings = lint.check_whole(MESSAGES, json.dumps({"x": 1, "y": 2}).encode()).findings
    assert sorted({each.offset for each in findings})[0] == 0
    assert len([each for each in findings if each.offset]) <= 1
    assert len(findings) > 2


def test_each_rule_has_a_fix_and_a_source() -> None:
    for name, rule in lint.RULES.items():
        assert (rule.id, rule.fix[-1], rule.source[:8]) == (name, ".", "https://")
