"""Framing, what is no finding, and what a finding says. The rules of order and sums are in the text files beside this.

A broken stream is a good one with one change: see core/rows.py.
"""

# ruff: noqa: E501 -- the tables are read by row

import copy
import json
import re
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s
from oracle.changes import GEMINI_ERROR, GOOD, VARIANTS, Change, drop, put

from dragoman import lint


def found(
    protocol: str, change: Change, *, usage_requested: bool | None = True, call_forced: bool = False
) -> list[lint.LintFinding]:
    payloads = GOOD[protocol]()
    change(payloads)
    stream = s.render(protocol, payloads)
    return lint.check_stream(
        protocol, stream, usage_requested=usage_requested, call_forced=call_forced
    ).findings


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_streams_have_no_findings(protocol: str) -> None:
    for name, change in VARIANTS[protocol]:
        assert found(protocol, change, usage_requested=None) == [], name


FRAMING: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("bom", lambda stream: b"\xef\xbb\xbf" + stream, "sse-bom"),
    ("crlf", lambda stream: stream.replace(b"\n", b"\r\n"), "sse-line-end"),
    ("no last blank line", lambda stream: stream[:-1], "sse-end"),
    ("cut in the last line", lambda stream: stream[:-2], "sse-end"),
    ("cut in a field", lambda stream: stream + b"da", "sse-end"),
    ("cut after a comment", lambda stream: stream + b": beat", "sse-blank-line"),
    ("a carriage return alone", lambda stream: stream.replace(b"\n\n", b"\r\r", 1), "sse-carriage-return"),
    ("no space", lambda stream: stream.replace(b"data: ", b"data:", 1), "sse-space"),
    ("two data lines", lambda stream: stream.replace(b"data: ", b"data: \ndata: ", 1), "sse-data"),
    ("an id line", lambda stream: b"id: 1\n" + stream, "sse-field"),
    ("a line without a colon", lambda stream: b"ping\n" + stream, "sse-field"),
    ("stray blank line", lambda stream: stream.replace(b"\n\n", b"\n\n\n", 1), "sse-blank-line"),
    ("only event", lambda stream: b"event: ping\n\n" + stream, "sse-no-data"),
    ("event twice", lambda stream: b"event: ping\nevent: ping\n" + stream, "sse-event-line"),
    ("not UTF-8", lambda stream: b": \xff\n\n" + stream, "sse-utf-8"),
    ("NaN", lambda stream: stream.replace(b": 1", b": NaN", 1), "json-syntax"),
    ("a name twice", lambda stream: stream.replace(b'{"', b'{"x":1,"x":1,"', 1), "json-duplicate"),
    ("no JSON", lambda stream: b"event: ping\ndata: {\n\n" + stream, "json-syntax"),
    ("no object", lambda stream: b"event: ping\ndata: 1\n\n" + stream, "json-object"),
    ("too deep", lambda stream: b"event: ping\ndata: " + b"[" * 100_000 + b"\n\n" + stream, "json-syntax"),
    ("nothing", lambda stream: b"", "sse-empty"),
    ("an array", lambda stream: b"[]", "sse-field"),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_framing_has_a_finding(subtests: pytest.Subtests, protocol: str) -> None:
    for name, change, rule in FRAMING:
        if protocol == GEMINI and name in ("crlf", "an array"):
            continue  # as the vendor's servers send it
        with subtests.test(name=name):
            stream = change(s.render(protocol, GOOD[protocol]()))
            findings = lint.check_stream(protocol, stream).findings
            assert rule in {each.rule.id for each in findings}, findings


# Clients of Gemini read less: see the next test but one.
BY_THE_STANDARD = (CHAT, MESSAGES, RESPONSES)


@pytest.mark.parametrize("protocol", BY_THE_STANDARD)
def test_comments_are_heartbeats(protocol: str) -> None:
    stream = s.render(protocol, GOOD[protocol]()).replace(b"\n\n", b"\n\n: beat\n\n", 3)
    assert lint.check_stream(protocol, stream).findings == []


@pytest.mark.parametrize(
    ("ending", "rules"), [(b"\n", []), (b"\r\n", ["sse-line-end"]), (b"\r", ["sse-carriage-return"])]
)
@pytest.mark.parametrize("protocol", BY_THE_STANDARD)
def test_every_line_ending_of_the_standard_is_read(protocol: str, ending: bytes, rules: list[str]) -> None:
    stream = s.render(protocol, GOOD[protocol]()).replace(b"\n", ending)
    assert [each.rule.id for each in lint.check_stream(protocol, stream).findings] == rules


def test_gemini_is_stricter_than_the_standard_and_ends_lines_as_its_servers_do() -> None:
    good = s.render(GEMINI, s.gemini()).replace(b"\n", b"\r\n")
    error = json.dumps(GEMINI_ERROR).encode()
    array = json.dumps(s.gemini(), indent=1).encode()
    for stream, rules in (
        (good, []),
        (good + b"data: " + error + b"\r\n\r\n" + error + b"\n\n", []),
        (b": beat\r\n\r\n" + good, ["gemini-comment"]),
        (good.replace(b"see.", "see.\u2028".encode()), ["gemini-line-separator"]),
        (good + b"data: [DONE]\r\n\r\n", ["gemini-done"]),
        (b"event: message\r\n" + good, ["gemini-event-line"]),
        (good + b"data: " + error + b"\r\n\r\n" + b"data: {}\r\n\r\n", ["gemini-after-error"]),
        (b" " + array.replace(b"see.", "see.\u2028".encode()), []),
        (b"[{},{}," + array[1:], []),
        (array[:-1], ["json-syntax"]),
        (array.replace(b"},\n {", b"}\n {", 1), ["json-syntax"]),
        (array.replace(b"see.", b"see.\xff"), ["sse-utf-8"]),
        (b"[]", ["json-syntax", "gemini-empty"]),
    ):
        assert [each.rule.id for each in lint.check_stream(GEMINI, stream).findings] == rules
    before, _, after = array.rpartition(b'"model"')
    [found] = lint.check_stream(GEMINI, before + b'"user"' + after).findings
    assert (found.frame, found.pointer, found.offset) == (5, "/candidates/0/content/role", len(before))


def test_event_lines() -> None:
    """Chat has none; the others' name the type of the data."""
    named = s.render(MESSAGES, s.messages()).replace(b"event: message_stop", b"event: message_end")
    bare = re.sub(rb"event: [a-z_.]+\n", b"", s.render(MESSAGES, s.messages()))
    chat = s.render(CHAT, s.chat()).replace(b"data: [DONE]", b"event: end\ndata: [DONE]")
    responses = re.sub(rb"event: [a-z_.]+\n", b"", s.render(RESPONSES, s.responses()))
    for protocol, stream, rule in (
        (MESSAGES, named, "messages-event-line"),
        (MESSAGES, bare, "messages-event-line"),
        (CHAT, chat, "chat-event-line"),
        (RESPONSES, responses, "responses-event-line"),
    ):
        assert {each.rule.id for each in lint.check_stream(protocol, stream).findings} == {rule}


def test_one_finding_an_event_after_the_end_of_a_response() -> None:
    """Not also what each event of a second response lacks in the first."""
    stream = s.render(RESPONSES, GOOD[RESPONSES]())
    second = s.render(RESPONSES, GOOD[RESPONSES]()[:3])
    rules = [each.rule.id for each in lint.check_stream(RESPONSES, stream + second).findings]
    assert rules == ["responses-sequence", "responses-after-end"] * 3


# What real clients do with a stream that breaks the rule: "error" where one of them fails, hangs, or loses content.
SEVERITIES = {
    "error": (
        "sse-bom sse-carriage-return sse-no-data sse-end json-duplicate chat-end chat-finish chat-finish-calls chat-role "
        "chat-role-again chat-required chat-usage-missing messages-after-end messages-input-start messages-stop-reason "
        "messages-message-delta responses-start responses-output responses-part responses-item-empty responses-usage "
        "responses-error responses-end responses-after-end"
    ),
    "warning": (
        "sse-line-end sse-blank-line chat-done chat-finish-again chat-finish-stop chat-usage-place chat-after-finish "
        "chat-tolerated messages-done messages-signature messages-message-delta-again messages-error-type "
        "messages-tolerated responses-in-progress responses-item-added responses-after-error responses-tolerated"
    ),
}  # fmt: skip


def test_the_severity_of_a_rule_is_what_clients_do() -> None:
    wrong = [
        rule
        for severity, rules in SEVERITIES.items()
        for rule in rules.split()
        if lint.RULES[rule].severity.value != severity
    ]
    assert wrong == []


def test_what_follows_the_end_of_a_message_is_an_error() -> None:
    stream = s.render(MESSAGES, GOOD[MESSAGES]())
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    for after in (s.render(MESSAGES, [delta]), stream):
        findings = lint.check_stream(MESSAGES, stream + after).findings
        [rule] = {each.rule for each in findings if each.rule.id != "messages-ping"}
        assert (rule.id, rule.severity) == ("messages-after-end", lint.RuleSeverity.ERROR)


def test_a_finding_has_the_byte_the_event_and_the_member() -> None:
    stream = s.render(CHAT, s.chat()).replace(b'"index": 0', b'"index": "0"', 1)
    [first, *_] = lint.check_stream(CHAT, stream).findings
    expected = (0, "/choices/0/index", lint.RuleSeverity.ERROR)
    assert (first.frame, first.pointer, first.rule.severity) == expected
    assert stream[first.offset :].startswith(b'"0"')
    assert first.rule.source.startswith("https://")
    assert (
        str(first)
        == f"byte {first.offset}, event 0 /choices/0/index: error chat-type: a string, expected an integer"
    )


def test_findings_of_the_end_are_at_the_end() -> None:
    stream = s.render(CHAT, s.chat()[:-1])
    [finding] = lint.check_stream(CHAT, stream).findings
    assert (finding.rule.id, finding.offset, finding.frame) == ("chat-done", len(stream), None)


def test_the_findings_of_a_report_are_bounded() -> None:
    report = lint.check_stream(CHAT, b"data: {}\n\n" * 1000)
    assert len(report.findings) == lint.MAX_FINDINGS
    assert report.overflow > 0


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    [],
    [None],
    [[]],
    {},
    {"type": "x"},
    {"type": None},
    [{}],
    [{"type": "message"}],
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.no_cover
def test_no_value_of_any_member_breaks_the_judge(protocol: str) -> None:
    """Each member of each event, and each member inside, is left out, and replaced by a value of another type."""
    good = GOOD[protocol]()
    values = cycle(HOSTILE)
    for number, payload in enumerate(good):
        for path in _paths(payload):
            for change in (
                drop(number, path),
                put(number, path, next(values)),
                put(number, path, next(values)),
            ):
                payloads = copy.deepcopy(good)
                change(payloads)
                stream = "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in payloads)
                assert lint.check_stream(protocol, stream.encode()).findings


def _paths(payload: Any) -> Iterator[str]:
    inner = (
        payload.items()
        if isinstance(payload, dict)
        else enumerate(payload)
        if isinstance(payload, list)
        else ()
    )
    for key, value in inner:
        yield str(key)
        yield from (f"{key}.{path}" for path in _paths(value))
