"""The oracle's comparisons: which losses are reported.

A row of `PAIRS` is what an upstream said, what a client received, and the problem that must be reported, None for none.
"""

# ruff: noqa: E501 -- the tables are read by row

import copy
import json
from typing import Any

import pytest
from oracle import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Block,
    Kind,
    Meaning,
    Stop,
    check_error,
    compare,
    compare_error,
    read_error,
)

from dragoman.events import Usage

TEXT, REASONING, CALL, REFUSAL = Kind.TEXT, Kind.REASONING, Kind.CALL, Kind.REFUSAL


def _meaning(*blocks: Block, stop: Stop = Stop.END, **fields: Any) -> Meaning:
    return Meaning(choices={0: [copy.copy(block) for block in blocks]}, stop=stop, **fields)


A, B = Block(TEXT, "a"), Block(TEXT, "b")
R = Block(REASONING, "think\n\nmore")
F = Block(CALL, '{"x": 1.10}', "f", "id1")
G = Block(CALL, "{}", "g", "id2")
HOSTED = Block(Kind.HOSTED, name="web_search")
CUSTOM_BLOCK = Block(CALL, "free", "p", "id3", custom=True)
WRAPPED = Block(CALL, '{"input": "free"}', "p", "id3")
SPOILT = Block(CALL, '{"x": ', "f", "id1")
FULL = Usage(10, 5, 4, 1, 2)
GONE = "gone"
PAIRS: list[tuple[str, str, Meaning, Meaning, str | None]] = [
    ("texts are joined for chat", CHAT, _meaning(A, F, B, stop=Stop.TOOL), _meaning(Block(TEXT, "ab"), F, stop=Stop.TOOL), None),
    ("order is kept for messages", MESSAGES, _meaning(A, F, B, stop=Stop.TOOL), _meaning(Block(TEXT, "ab"), F, stop=Stop.TOOL), "order:"),
    ("split texts are one", RESPONSES, _meaning(Block(TEXT, "ab")), _meaning(A, B), None),
    ("text between moves", RESPONSES, _meaning(A, R, B), _meaning(Block(TEXT, "ab"), R), "order:"),
    ("text is lost", CHAT, _meaning(A, B), _meaning(A), "text: at 1"),
    ("text is invented", MESSAGES, _meaning(A), _meaning(A, B), "text: at 1"),
    ("summary parts may be joined", MESSAGES, _meaning(R), _meaning(Block(REASONING, "thinkmore")), None),
    ("reasoning is lost", CHAT, _meaning(R, A), _meaning(A), "reasoning:"),
    ("reasoning becomes text", CHAT, _meaning(R), _meaning(Block(TEXT, R.text)), "reasoning:"),
    ("hosted blocks may go", CHAT, _meaning(HOSTED, A), _meaning(A), None),
    ("hosted blocks may be calls", CHAT, _meaning(HOSTED), _meaning(Block(CALL, "{}", "web_search", "x"), stop=Stop.TOOL), None),
    ("call is lost", CHAT, _meaning(F, G, stop=Stop.TOOL), _meaning(F, stop=Stop.TOOL), "calls:"),
    ("call is invented", CHAT, _meaning(F, stop=Stop.TOOL), _meaning(F, G, stop=Stop.TOOL), "calls:"),
    ("name changes", CHAT, _meaning(F, stop=Stop.TOOL), _meaning(Block(CALL, F.text, "h", "id1"), stop=Stop.TOOL), "the name became"),
    ("namespace is put before", CHAT, _meaning(F, stop=Stop.TOOL), _meaning(Block(CALL, F.text, "ns__f", "id1"), stop=Stop.TOOL), None),
    ("plain id changes", CHAT, _meaning(F, stop=Stop.TOOL), _meaning(Block(CALL, F.text, "f", "id9"), stop=Stop.TOOL), "the id 'id1' became"),
    ("odd id may change", MESSAGES, _meaning(Block(CALL, "{}", "f", "f.x:0"), stop=Stop.TOOL), _meaning(Block(CALL, "{}", "f", "f_x_0"), stop=Stop.TOOL), None),
    ("same JSON, other spacing", CHAT, _meaning(F, stop=Stop.TOOL), _meaning(Block(CALL, '{"x":1.1}', "f", "id1"), stop=Stop.TOOL), None),
    ("a digit is lost", CHAT, _meaning(Block(CALL, '{"x": 12345678901234567.5}', "f", "i"), stop=Stop.TOOL), _meaning(Block(CALL, '{"x": 12345678901234568}', "f", "i"), stop=Stop.TOOL), "the input"),
    ("empty is {}", MESSAGES, _meaning(Block(CALL, "", "f", "i"), stop=Stop.TOOL), _meaning(Block(CALL, "{}", "f", "i"), stop=Stop.TOOL), None),
    ("broken JSON becomes {}", MESSAGES, _meaning(SPOILT, stop=Stop.TOOL), _meaning(Block(CALL, "{}", "f", "id1"), stop=Stop.TOOL), "the input"),
    ("broken JSON is wrapped", MESSAGES, _meaning(SPOILT, stop=Stop.TOOL), _meaning(Block(CALL, json.dumps({"_raw": SPOILT.text}), "f", "id1"), stop=Stop.TOOL), None),
    ("custom call is wrapped", MESSAGES, _meaning(CUSTOM_BLOCK, stop=Stop.TOOL), _meaning(WRAPPED, stop=Stop.TOOL), None),
    ("custom call is unwrapped", RESPONSES, _meaning(WRAPPED, stop=Stop.TOOL), _meaning(CUSTOM_BLOCK, stop=Stop.TOOL), None),
    ("custom input changes", RESPONSES, _meaning(WRAPPED, stop=Stop.TOOL), _meaning(Block(CALL, "fre", "p", "id3", custom=True), stop=Stop.TOOL), "the input"),
    ("length becomes end", CHAT, _meaning(A, stop=Stop.LENGTH), _meaning(A), "stop: length became end"),
    ("stop sequence for responses", RESPONSES, _meaning(A, stop=Stop.SEQUENCE), _meaning(A), None),
    ("stop sequence for messages", MESSAGES, _meaning(A, stop=Stop.SEQUENCE, stop_sequence="X"), _meaning(A), "stop:"),
    ("another stop sequence", MESSAGES, _meaning(A, stop=Stop.SEQUENCE, stop_sequence="X"), _meaning(A, stop=Stop.SEQUENCE, stop_sequence="Y"), "stop_sequence:"),
    ("pause for chat", CHAT, _meaning(A, stop=Stop.PAUSE), _meaning(A), None),
    ("pause for messages", MESSAGES, _meaning(A, stop=Stop.PAUSE), _meaning(A), "stop:"),
    ("filter explained", CHAT, _meaning(stop=Stop.FILTER, explanation="no"), _meaning(Block(REFUSAL, "no"), stop=Stop.FILTER), None),
    ("filter loses its text", RESPONSES, _meaning(A, stop=Stop.FILTER), _meaning(stop=Stop.FILTER), "refused text:"),
    ("filter becomes end", CHAT, _meaning(A, stop=Stop.FILTER), _meaning(A), "stop:"),
    ("refusal for messages", MESSAGES, _meaning(Block(REFUSAL, "no")), _meaning(Block(TEXT, "no"), stop=Stop.FILTER), None),
    ("refusal as a plain end", MESSAGES, _meaning(Block(REFUSAL, "no")), _meaning(Block(TEXT, "no")), "stop:"),
    ("text becomes a refusal", CHAT, _meaning(A), _meaning(A, Block(REFUSAL, "x")), "refused nothing"),
    ("cut is an error", CHAT, _meaning(A, F, stop=Stop.CUT), _meaning(A, stop=Stop.ERROR, failure=GONE), None),
    ("cut is a success", CHAT, _meaning(A, stop=Stop.CUT), _meaning(A), "the upstream's cut came out as end"),
    ("error is a success", MESSAGES, _meaning(A, stop=Stop.ERROR, failure=GONE), _meaning(A), "came out as end"),
    ("error keeps its message", RESPONSES, _meaning(stop=Stop.ERROR, failure=GONE), _meaning(stop=Stop.ERROR, failure=GONE), None),
    ("error loses its message", RESPONSES, _meaning(stop=Stop.ERROR, failure=GONE), _meaning(stop=Stop.ERROR), "error:"),
    ("cut loses its text", CHAT, _meaning(A, stop=Stop.CUT), _meaning(stop=Stop.ERROR, failure=GONE), "text:"),
    ("cut call in part", CHAT, _meaning(F, stop=Stop.CUT), _meaning(SPOILT, stop=Stop.ERROR, failure=GONE), None),
    ("usage", MESSAGES, _meaning(A, usage=FULL), _meaning(A, usage=Usage(10, 5, 4, 1, 2)), None),
    ("usage counts the cache twice", MESSAGES, _meaning(A, usage=FULL), _meaning(A, usage=Usage(14, 5, 4, 1, 2)), "usage.input"),
    ("usage loses the cache", RESPONSES, _meaning(A, usage=FULL), _meaning(A, usage=Usage(10, 5, 0, 1, 2)), "usage.cached"),
    ("usage loses reasoning", RESPONSES, _meaning(A, usage=FULL), _meaning(A, usage=Usage(10, 5, 4, 1, 0)), "usage.reasoning"),
    ("usage is lost", CHAT, _meaning(A, usage=FULL), _meaning(A), "usage.input"),
    ("usage unknown upstream", CHAT, _meaning(A), _meaning(A, usage=FULL), None),
    ("a part above its whole", RESPONSES, _meaning(A, usage=Usage(10, 5, 0, 0, 25)), _meaning(A, usage=Usage(10, 5, 0, 0, 0)), None),
]  # fmt: skip


def test_compare(subtests: pytest.Subtests) -> None:
    for name, protocol, expected, received, problem in PAIRS:
        with subtests.test(name=name):
            found = compare(expected, received, protocol)
            assert (
                found == [] if problem is None else [reported for reported in found if problem in reported]
            ), found


def test_a_chat_client_that_did_not_request_usage_needs_none() -> None:
    assert compare(_meaning(A, usage=FULL), _meaning(A), CHAT, include_usage=False) == []


def _error(protocol: str, kind: str, message: str, code: str | None = None) -> bytes:
    if protocol == MESSAGES:
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


ERRORS: list[tuple[str, int, bytes, str | None]] = [
    (CHAT, 429, _error(CHAT, "requests", "slow", "rate_limit_exceeded"), None),
    (MESSAGES, 529, _error(MESSAGES, "overloaded_error", "busy"), None),
    (RESPONSES, 400, _error(RESPONSES, "invalid_request_error", "no"), None),
    (CHAT, 200, _error(CHAT, "requests", "slow"), "is not the status of an error"),
    (CHAT, 400, b'{"error": {"message": "no", "type": "x", "param": null}}', "error.code: absent"),
    (CHAT, 400, b'{"message": "no"}', "expected only `error`"),
    (CHAT, 400, b"<html>", "json:"),
    (MESSAGES, 400, _error(CHAT, "x", "no"), "type: must be 'error'"),
    (MESSAGES, 429, _error(MESSAGES, "api_error", "no"), "'api_error' with status 429"),
    (MESSAGES, 400, _error(MESSAGES, "server_error", "no"), "error.type: unknown"),
]


def assert_found(problem: str | None, found: list[str]) -> None:
    assert found == [] if problem is None else any(problem in reported for reported in found), found


def test_error_responses(subtests: pytest.Subtests) -> None:
    for protocol, status, body, problem in ERRORS:
        with subtests.test(protocol=protocol, status=status):
            assert_found(problem, check_error(protocol, status, body))


ERROR_PAIRS: list[tuple[tuple[str, int, bytes], tuple[str, int, bytes], str | None]] = [
    ((MESSAGES, 529, _error(MESSAGES, "overloaded_error", "busy")), (CHAT, 503, _error(CHAT, "server_error", "busy", "overloaded")), None),
    ((CHAT, 503, _error(CHAT, "server_error", "busy")), (MESSAGES, 529, _error(MESSAGES, "overloaded_error", "upstream: busy")), None),
    ((CHAT, 401, b'{"detail": "no key"}'), (RESPONSES, 401, _error(RESPONSES, "x", "no key", "invalid_api_key")), None),
    ((CHAT, 401, b"<html>"), (MESSAGES, 401, _error(MESSAGES, "authentication_error", "the upstream said 401")), None),
    ((CHAT, 429, _error(CHAT, "x", "slow")), (MESSAGES, 502, _error(MESSAGES, "api_error", "slow")), "status: 429 became 502"),
    ((CHAT, 400, _error(CHAT, "x", "bad n")), (MESSAGES, 400, _error(MESSAGES, "invalid_request_error", "bad")), "message:"),
    ((MESSAGES, 429, _error(MESSAGES, "rate_limit_error", "slow")), (CHAT, 429, _error(CHAT, "x", "slow")), "code:"),
    ((MESSAGES, 400, _error(MESSAGES, "invalid_request_error", "prompt is too long: 9")), (CHAT, 400, _error(CHAT, "x", "prompt is too long: 9")), "code: a context overflow"),
    ((CHAT, 400, _error(CHAT, "x", "too big", "context_length_exceeded")), (MESSAGES, 400, _error(MESSAGES, "invalid_request_error", "too big")), "does not say"),
]  # fmt: skip


def test_error_pairs(subtests: pytest.Subtests) -> None:
    for upstream, client, problem in ERROR_PAIRS:
        with subtests.test(upstream=upstream):
            assert_found(problem, compare_error(read_error(*upstream), read_error(*client)))
