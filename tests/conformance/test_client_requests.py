"""Recorded requests of Claude Code, Codex, opencode, aider, pi and qwen, for an upstream of every protocol.

Each request is translated, and every value of it is compared with a table of its rows. A value without a row, a value
that differs from its row, a value at the upstream without a row, and a difference between ledger and rows are problems.
Where the protocols are equal, only the model's name may change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from agents import tables_chat, tables_claude_code, tables_codex, tables_messages, tables_responses
from agents.requests import CASES, MODELS, TARGETS, Case, vendor_target
from agents.rows import IMPLIED, Row, TableCheck, lost, made, to
from failures.rules import refused
from failures.translate import UpstreamRequest, name_of, translate_request
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES

Json = dict[str, Any]
Table = tuple[dict[str, Row], dict[str, Any]]

# (case, the client's protocol, the upstream's) -> rows, and what is added.
TABLES: dict[tuple[str, str, str], Table] = {
    **{(name, MESSAGES, upstream): table for (name, upstream), table in tables_claude_code.TABLES.items()},
    **{(name, RESPONSES, upstream): table for (name, upstream), table in tables_codex.TABLES.items()},
    **tables_chat.TABLES,
    **tables_messages.TABLES,
    **tables_responses.TABLES,
}


def others(case: Case) -> list[str]:
    return [upstream for upstream in PROTOCOL_NAMES if upstream != case.protocol]


def translated_case(case: Case, upstream: str) -> UpstreamRequest:
    return translate_request(
        case.protocol, upstream, case.body, capabilities=TARGETS[upstream], model=MODELS[upstream]
    )


def checked(case: Case, upstream: str) -> tuple[TableCheck, list[str]]:
    rows, added = TABLES[case.name, case.protocol, upstream]
    requested = translated_case(case, upstream)
    check = TableCheck(case.body, requested.body, rows, added)
    return check, check.run((loss.code.value, loss.path) for loss in requested.translated.losses)


@pytest.mark.promise("R13")
def test_every_value_is_kept_mapped_or_in_the_ledger(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            for upstream in others(case):
                _, problems = checked(case, upstream)
                assert problems == [], upstream


def test_the_vendors_rules_are_kept(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            for upstream in others(case):
                assert refused(upstream, translated_case(case, upstream).body) == [], upstream


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES, ids=name_of)
def test_every_row_is_used(protocol: str) -> None:
    """A row that fits nothing checks nothing."""
    for upstream in PROTOCOL_NAMES:
        named: set[str] = set()
        used: set[str] = set()
        for case in CASES:
            if case.protocol == protocol and upstream != protocol:
                rows, added = TABLES[case.name, protocol, upstream]
                named |= {*rows, *added}
                used |= checked(case, upstream)[0].used
        assert named - used == set()


@pytest.mark.promise("R12")
def test_an_upstream_of_the_same_protocol_gets_the_clients_bytes(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            requested = translated_case(case, case.protocol)
            assert requested.translated.relayed
            assert list(requested.translated.losses) == []
            assert requested.body == {**case.body, "model": MODELS[case.protocol]}
            body = json.dumps(case.body).encode()
            name = json.dumps(case.body["model"]).encode()
            other = json.dumps(MODELS[case.protocol]).encode()
            assert requested.translated.body == body.replace(b'"model": ' + name, b'"model": ' + other, 1)


@pytest.mark.promise("R12")
def test_without_another_name_for_the_model_not_a_byte_changes(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            requested = translate_request(case.protocol, case.protocol, case.body)
            assert requested.translated.body == json.dumps(case.body).encode()


def test_plain_upstreams_accept_every_request_and_get_all_its_text(
    subtests: pytest.Subtests,
) -> None:
    """Upstreams with default capabilities may lose more, but never a text."""
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            for upstream in others(case):
                requested = translate_request(case.protocol, upstream, case.body)
                text = json.dumps(requested.body, ensure_ascii=False)
                for word in texts_of(case.body):
                    if word.startswith("x-anthropic-billing-header:"):
                        continue  # for the client's provider, and for no model
                    assert json.dumps(word, ensure_ascii=False)[1:-1] in text, upstream


# Of Chat Completions, as far as these requests could have them.
_TAKEN = {
    "deepseek": {"thinking"},
    "mistral": {"reasoning_effort"},
}
_TAKEN_BY_ALL = {
    "max_tokens",
    "messages",
    "model",
    "reasoning_effort",
    "response_format",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
}


@pytest.mark.parametrize(
    ("host", "model"), [("deepseek", "deepseek-v4-pro"), ("mistral", "devstral-medium-latest")]
)
def test_strict_hosts_accept_the_bodies(subtests: pytest.Subtests, host: str, model: str) -> None:
    for case in (case for case in CASES if case.protocol != CHAT):
        with subtests.test(case=case.name, protocol=case.protocol):
            sent = translate_request(
                case.protocol, CHAT, case.body, capabilities=vendor_target(host, CHAT, model), model=model
            ).body
            assert sent.keys() <= _TAKEN_BY_ALL | _TAKEN[host]
            roles = [message["role"] for message in sent["messages"]]
            assert set(roles) == {"system", "user", "assistant", "tool"} or case.client == "aider"
            assert ("tool", "user") not in pairwise(roles) or host != "mistral"
            assert ("user", "user") not in pairwise(roles)
            for message in sent["messages"]:
                # "invalid type: sequence, expected a string";
                # "body.messages.31.assistant.reasoning_content: extra_forbidden"
                images = isinstance(message["content"], list) and message["content"][0]["type"] == "image_url"
                assert message["content"] is None or isinstance(message["content"], str) or images
                assert host != "mistral" or message.keys() <= {
                    "role",
                    "content",
                    "tool_calls",
                    "tool_call_id",
                }


def texts_of(body: Json) -> list[str]:
    """Return the texts of users, agents and tools in a request."""
    found: list[str] = []

    def walk(value: Any, key: str) -> None:
        if isinstance(value, dict):
            if value.get("type") in ("thinking", "reasoning"):
                return
            for name, each in value.items():
                walk(each, name)
        elif isinstance(value, list):
            for each in value:
                walk(each, key)
        elif key in ("text", "content", "instructions", "system", "output", "data") and value:
            found.append(value)

    for name in ("system", "instructions", "messages", "input"):
        walk(body.get(name), name)
    assert len(found) >= 4
    return found


# --- the check itself -------------------------------------------------------------------------------------------

ROWS: Mapping[str, Row] = {
    "/a": to("/x"),
    "/b/...": lost(),
    "/c/{n}/d": made("e", "/y/{n}"),
    "/f": IMPLIED,
}
SENT: Json = {"a": 1, "b": {"c": [2]}, "c": [{"d": 3}], "f": True}
GOT: Json = {"x": 1, "y": ["e"], "z": 0}
REPORTED = [("dropped", "/b")]


PROBLEMS: list[tuple[Json, Json, list[tuple[str, str]], Any]] = [
    (SENT, GOT, REPORTED, []),
    ({**SENT, "g": 1}, GOT, REPORTED, ["no row for /g = 1"]),
    ({**SENT, "c": [{"d": 3, "e": {}}]}, GOT, REPORTED, ["no row for /c/0/e = {}"]),
    (SENT, {**GOT, "x": True}, REPORTED, ["/a arrives at /x as True"]),
    (SENT, {"y": ["e"], "z": 0}, REPORTED, ["/a does not arrive at /x"]),
    (SENT, {**GOT, "w": {"v": 1}}, REPORTED, ["out of nowhere: /w/v = 1"]),
    (SENT, {**GOT, "z": False}, REPORTED, ["/z is False, not 0"]),
    (SENT, GOT, [], ["the ledger does not say ('dropped', '/b')"]),
    (SENT, GOT, [*REPORTED, ("altered", "/a")], ["the ledger says ('altered', '/a'), no row does"]),
    (SENT, GOT, [("altered", "/b")], 2),
]


def test_differences_are_reported(subtests: pytest.Subtests) -> None:
    for sent, got, reported, expected in PROBLEMS:
        with subtests.test(sent=sent):
            problems = TableCheck(sent, got, ROWS, {"/z": 0}).run(reported)
            assert len(problems) == expected if isinstance(expected, int) else problems == expected


def test_every_client_is_here_in_every_protocol_that_it_speaks() -> None:
    with_text = {(case.client, case.protocol) for case in CASES}
    assert with_text == {
        ("claude-code", MESSAGES),
        ("codex", RESPONSES),
        *((client, protocol) for client in ("opencode", "pi", "qwen") for protocol in PROTOCOL_NAMES),
        ("aider", CHAT),
        ("aider", MESSAGES),
    }
